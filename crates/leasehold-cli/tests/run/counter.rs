//! Mutual exclusion: each run reads a counter from a file and writes it back plus one. Only the lock protects the file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use leasehold_testkit::RedisServer;
use leasehold_testkit::part::Part;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::bench::{NAME, children, is_minder, leasehold};

const WORKERS: usize = 8;

/// The write is the last step: a command that is ended before it has changed nothing.
const COUNT: &str = r#"set -- $(tail -n 1 "$FILE"); echo "$LEASEHOLD_TOKEN $(($2 + 1))" >> "$FILE""#;
/// As before, but with time to be killed.
const COUNT_SLOWLY: &str = r#"set -- $(tail -n 1 "$FILE"); sleep 0.03; echo "$LEASEHOLD_TOKEN $(($2 + 1))" >> "$FILE""#;

fn file(dir: &Path) -> PathBuf {
    let file = dir.join("counter");
    fs::write(&file, "0 0\n").unwrap();
    file
}

fn count(url: &str, file: &Path, script: &str, lease: &str) -> Command {
    let mut run = leasehold();
    run.env("FILE", file)
        .args(["run", "-q", "--store", url, "--lease", lease, NAME, "--", "sh", "-c", script])
        .stdin(Stdio::null());
    run
}

/// Asserts that the lines count up by one, with rising tokens, and returns their number.
fn judge(file: &Path) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let mut before = (0, 0);
    for line in text.lines().skip(1) {
        let (token, n) = line.split_once(' ').expect("two numbers");
        let now: (u64, usize) = (token.parse().unwrap(), n.parse().unwrap());
        assert_eq!(now.1, before.1 + 1, "behind {before:?} comes {now:?}");
        assert!(now.0 > before.0, "behind {before:?} comes {now:?}");
        before = now;
    }
    before.1
}

#[test]
fn eight_processes_count_without_gap_or_repeat_by_redis() {
    let server = RedisServer::start();
    count_up(&server.url());
}

#[test]
fn eight_processes_count_without_gap_or_repeat_by_file() {
    let dir = tempfile::tempdir().unwrap();
    count_up(&format!("file:{}", dir.path().join("store").display()));
}

#[test]
fn a_killed_run_counts_at_most_once_by_redis() {
    let server = RedisServer::start();
    count_up_and_kill(&server.url());
}

#[test]
fn a_killed_run_counts_at_most_once_by_file() {
    let dir = tempfile::tempdir().unwrap();
    count_up_and_kill(&format!("file:{}", dir.path().join("store").display()));
}

fn count_up(url: &str) {
    let runs = Part::chosen().count(200);
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path());
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                for _ in 0..runs {
                    let status = count(url, &file, COUNT, "30s").status().unwrap();
                    assert!(status.success(), "{status}");
                }
            });
        }
    });
    assert_eq!(judge(&file) as u64, WORKERS as u64 * runs);
}

/// A run that can be killed: its processes, and whether one of them was killed.
struct Running {
    pid: Pid,
    killed: Arc<AtomicBool>,
}

fn count_up_and_kill(url: &str) {
    const RUNS: usize = 25;
    const KILLS: usize = 24;
    let dir = tempfile::tempdir().unwrap();
    let file = file(dir.path());
    let running: Mutex<Vec<Running>> = Mutex::default();
    let (completed, killed, left) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(WORKERS));
    let seed = std::process::id();
    println!("seed {seed}");
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                for _ in 0..RUNS {
                    let mut child = count(url, &file, COUNT_SLOWLY, "1s").spawn().unwrap();
                    let (pid, is_killed) = (Pid::from_child(&child), Arc::new(AtomicBool::new(false)));
                    running.lock().unwrap().push(Running { pid, killed: Arc::clone(&is_killed) });
                    // The wait holds the mutex that the killer needs, too: so the killer always hits our child, and not a
                    // later process with the same ID.
                    let status = loop {
                        let mut running = running.lock().unwrap();
                        if let Some(status) = child.try_wait().unwrap() {
                            running.retain(|run| run.pid != pid);
                            break status;
                        }
                        drop(running);
                        thread::sleep(Duration::from_millis(2));
                    };
                    if status.success() {
                        completed.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert!(is_killed.load(Ordering::Relaxed), "it was not killed: {status}");
                        killed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut random = u64::from(seed);
        for _ in 0..KILLS {
            if left.load(Ordering::Relaxed) == 0 {
                break;
            }
            kill_somebody(&running, &mut random);
            thread::sleep(Duration::from_millis(150));
        }
    });
    let (completed, killed, lines) = (completed.into_inner(), killed.into_inner(), judge(&file));
    println!("{completed} completed, {killed} killed, {lines} lines");
    assert!(completed <= lines && lines <= completed + killed, "{completed} ≤ {lines} ≤ {completed} + {killed}");
    assert!(killed > 0, "no run was killed");
}

/// Kills a supervisor, a minder or a command, of a run that holds or waits.
fn kill_somebody(running: &Mutex<Vec<Running>>, random: &mut u64) {
    let mut draw = |below: usize| {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*random >> 33).unwrap() % below
    };
    let running = running.lock().unwrap();
    if running.is_empty() {
        return;
    }
    // Mostly of a run that holds: of eight runs, seven wait.
    let holders: Vec<&Running> = running.iter().filter(|run| !children(run.pid).is_empty()).collect();
    let (hit, what) = (draw(running.len()), draw(3));
    let run = match holders.first() {
        Some(holder) if draw(4) > 0 => holder,
        _ => &running[hit],
    };
    let part = |wanted: fn(&Pid) -> bool| children(run.pid).into_iter().find(wanted);
    let victim = match what {
        0 => Some(run.pid),
        1 => part(|pid| is_minder(*pid)),
        _ => part(|pid| !is_minder(*pid)),
    };
    let Some(victim) = victim.filter(|victim| test_kill_process(*victim).is_ok()) else { return };
    run.killed.store(true, Ordering::Relaxed);
    let _gone_meanwhile = kill_process(victim, Signal::KILL);
}
