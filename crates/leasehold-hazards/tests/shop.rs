//! The example `shop`, under a load: which locks oversell, and which do not.
#![cfg(feature = "live")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A run that takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

/// Returns the example. `cargo test` has built it, unless it builds only this test: then this builds it.
static EXAMPLE: LazyLock<PathBuf> = LazyLock::new(|| {
    let test = env::current_exe().expect("this test has a path");
    let program = test.ancestors().nth(2).expect("it is in a folder of the target").join("examples/shop");
    if !is_fresh(&program) {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--package", "leasehold-hazards", "--features", "live", "--example", "shop"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "the example does not build");
        assert!(is_fresh(&program), "cargo has put the example elsewhere than {}", program.display());
    }
    program
});

/// Whether the program is newer than all its sources, which cargo lists beside it. Otherwise an old program would be
/// tested.
fn is_fresh(program: &Path) -> bool {
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    let (Some(built), Ok(list)) = (changed(program), fs::read_to_string(program.with_extension("d"))) else {
        return false;
    };
    let sources = list.split_once(": ").map_or("", |(_, sources)| sources);
    sources.split_whitespace().all(|source| changed(Path::new(source)).is_some_and(|changed| changed <= built))
}

struct Run {
    status: Option<i32>,
    figures: Value,
    shown: String,
}

impl Run {
    fn figure(&self, name: &str) -> u64 {
        self.figures[name].as_u64().unwrap_or_else(|| panic!("no figure {name} in {}", self.shown))
    }
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(&*EXAMPLE);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the example starts")
}

/// Waits for a run, and kills one that hangs.
fn output(mut child: Child) -> Output {
    let deadline = Instant::now() + LONG;
    while child.try_wait().expect("it is a child").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("it is a child");
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("its output can be read")
}

fn run(lock: &str, arguments: &[&str]) -> Run {
    let output = output(start(&[&["--json", "--stock", "200", "--lock", lock], arguments].concat()));
    let text = String::from_utf8_lossy(&output.stdout);
    let shown = format!("{:?} {text} {}", output.status, String::from_utf8_lossy(&output.stderr));
    Run { status: output.status.code(), figures: serde_json::from_str(&text).unwrap_or(Value::Null), shown }
}

#[track_caller]
fn oversells(run: &Run) {
    assert_eq!(run.status, Some(1), "{}", run.shown);
    assert!(run.figure("sold") > 200, "{}", run.shown);
    assert_eq!(run.figure("sold") + run.figure("left") - 200, run.figure("oversold"), "{}", run.shown);
}

#[track_caller]
fn sells_each_piece_once(run: &Run) {
    assert_eq!(run.status, Some(0), "{}", run.shown);
    assert_eq!((run.figure("sold"), run.figure("left"), run.figure("failed")), (200, 0, 0), "{}", run.shown);
}

#[test]
fn no_lock_and_a_lock_in_each_process_oversell() {
    for lock in ["none", "local"] {
        oversells(&run(lock, &[]));
    }
    // The owner of this lock is the number of a thread, and both processes have a thread with each number.
    oversells(&run("reentrant", &[]));
}

#[test]
fn a_lock_in_the_process_suffices_for_one_process() {
    sells_each_piece_once(&run("local", &["--processes", "1"]));
}

#[test]
fn locks_without_faults_sell_each_piece_once() {
    for lock in ["setnx", "redisson", "redlock"] {
        sells_each_piece_once(&run(lock, &[]));
    }
}

#[test]
fn leasehold_sells_each_piece_once() {
    for processes in ["2", "4"] {
        sells_each_piece_once(&run("leasehold", &["--processes", processes]));
    }
}

#[test]
fn a_process_that_is_stopped_beyond_its_lease_oversells_with_compare_and_delete() {
    let run = run("compare-and-delete", &["--pause"]);
    oversells(&run);
    assert!(run.figures["stopped_s"].as_f64() >= Some(3.0), "{}", run.shown);
}

#[test]
fn a_process_that_is_stopped_beyond_its_lease_does_not_oversell_with_leasehold() {
    let run = run("leasehold", &["--pause"]);
    sells_each_piece_once(&run);
    assert_eq!(run.figure("refused"), 1, "{}", run.shown);
}

#[test]
fn a_request_waits_no_longer_than_its_limit() {
    // A holder that works for 1 s excludes 15 others, which wait for 100 ms.
    let slow = ["--work", "1s", "--limit", "100ms", "--seconds", "1"];
    for lock in ["getset", "redisson", "redlock", "leasehold"] {
        let run = run(lock, &slow);
        assert!(run.figure("no_lock") >= 15, "{}", run.shown);
        assert_eq!(run.figure("failed"), 0, "{}", run.shown);
    }
}

#[test]
fn nothing_is_left_if_the_run_is_killed() {
    // One process is stopped: the signal finds it in its sale.
    let mut run = start(&["--lock", "set-ex", "--lease", "60", "--pause", "--seconds", "60", "--limit", "60s"]);
    let below = |id: u32| {
        let mut found = BTreeSet::from([id]);
        while let Some(more) =
            processes().into_iter().find(|(child, parent)| found.contains(parent) && !found.contains(child))
        {
            found.insert(more.0);
        }
        found
    };
    // The run, the keepers of its directories and of Redis, Redis, and two services, of which one is stopped.
    let is_ready = |ids: &BTreeSet<u32>| ids.len() == 6 && ids.iter().any(|id| state(*id) == Some('T'));
    let deadline = Instant::now() + LONG;
    let mut ids = below(run.id());
    while !is_ready(&ids) {
        assert!(Instant::now() < deadline, "the run does not start: {ids:?}");
        thread::sleep(Duration::from_millis(10));
        ids = below(run.id());
    }
    run.kill().expect("it is a child");
    run.wait().expect("it is a child");
    let is_left = |id: &&u32| !matches!(state(**id), None | Some('Z'));
    let deadline = Instant::now() + Duration::from_secs(10);
    while let Some(id) = ids.iter().find(is_left) {
        assert!(Instant::now() < deadline, "process {id} is left");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interrupted_run_ends_and_says_so() {
    let run = start(&["--lock", "leasehold", "--stock", "1000000", "--seconds", "60"]);
    // The keepers of its directories and of Redis, and two services.
    let is_ready = || processes().into_iter().filter(|(_, parent)| *parent == run.id()).count() == 4;
    let deadline = Instant::now() + LONG;
    while !is_ready() {
        assert!(Instant::now() < deadline, "the run does not start");
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&run), Signal::INT).expect("it is a child");
    let output = output(run);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "shop: interrupted\n");
}

/// Returns all processes, each with its parent.
fn processes() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").expect("this is Linux").flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(|id| Some((id, stat(id)?.1))).collect()
}

/// Returns the state of a process: T if it is stopped, Z if it has ended and nobody has waited for it.
fn state(id: u32) -> Option<char> {
    Some(stat(id)?.0)
}

fn stat(id: u32) -> Option<(char, u32)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program, which is before, can contain anything.
    let mut words = text.rsplit_once(") ")?.1.split(' ');
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()?))
}
