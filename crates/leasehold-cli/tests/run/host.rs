//! On one host, without a server: the next run gets the lock as soon as no process of the last one is left, and not
//! before.

use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold};
use leasehold_testkit::boottime_us;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::bench::{NAME, Run};
use crate::worker::Life;

/// Far longer than any wait in these tests: no lease ends by itself.
const OPTIONS: [&str; 4] = ["--lease", "60s", "--kill-after", "500ms"];
/// The time limit for the end of a command by its minder, on a busy machine.
const SOON: Duration = Duration::from_secs(10);

struct Host {
    url: String,
    dir: TempDir,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { url: format!("file:{}", dir.path().join("store").display()), dir }
    }

    fn run(&self, command: &[impl AsRef<str>]) -> Run {
        Run::start(&self.url, &OPTIONS, command)
    }

    fn life(&self) -> Life {
        Life::new(self.dir.path())
    }

    async fn next(&self) -> (Guard, u64) {
        let mutex = Leasehold::connect(&self.url).await.unwrap().mutex(NAME);
        let guard = tokio::time::timeout(Duration::from_secs(50), mutex.lock()).await.expect("the lock").unwrap();
        (guard, boottime_us())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_killed_supervisor_is_followed_when_its_command_is_gone() {
    let host = Host::new();
    let life = host.life();
    for command in [life.command(), life.stubborn(), life.closing(), life.left_behind()] {
        let run = host.run(&command);
        life.has_begun();
        let begun = Instant::now();
        run.signal(Signal::KILL);
        let (guard, granted_us) = host.next().await;
        life.has_ended_before(granted_us, guard.token().get());
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        life.touch();
    }
}

/// Nobody is left to end the command. Its inherited descriptor keeps the others out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_supervisor_and_minder_are_killed_at_once() {
    let host = Host::new();
    let life = host.life();
    let run = host.run(&life.stubborn());
    let worker = Pid::from_raw(life.has_begun().pid).unwrap();
    let minder = run.minder(None);
    kill_process(run.pid(), Signal::STOP).unwrap();
    kill_process(minder, Signal::KILL).unwrap();
    run.signal(Signal::KILL);
    let mutex = Leasehold::connect(&host.url).await.unwrap().mutex(NAME);
    let early = mutex.try_lock_for(Duration::from_secs(1)).await.unwrap();
    assert!(early.is_none(), "the command works on");
    kill_process(worker, Signal::KILL).unwrap();
    let (guard, granted_us) = host.next().await;
    life.has_ended_before(granted_us, guard.token().get());
}

/// In an empty home of its own: the locks of the test must not disturb the user who runs it.
#[test]
fn without_a_store_it_is_the_hosts_own() {
    // The second command finds its own program by a path that the new home does not cover.
    let script = "exec 3<\"$0\" && mount -t tmpfs none ~root && exec /proc/self/fd/3 \"$@\"";
    let unshare = ["--mount", "--propagation", "private", "sh", "-c", script];
    let leasehold = |arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(unshare).arg(env!("CARGO_BIN_EXE_leasehold")).args(arguments);
        command.env("HOME", "/nonexistent").env_remove("LEASEHOLD_STORE").output().unwrap()
    };
    // The store is below the home of the user database, and not below the home of the environment.
    let run = |options: &[&str]| {
        let find = ["--", "sh", "-c", "find ~root -type d -name '*leasehold*'; ls -d /nonexistent"];
        leasehold(&[&["run", NAME][..], options, &find].concat())
    };
    let loud = run(&[]);
    let (out, errors) = (String::from_utf8(loud.stdout).unwrap(), String::from_utf8(loud.stderr).unwrap());
    let (notice, ls) = errors.split_once('\n').expect("lines");
    let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    assert_eq!(notice, format!("leasehold: this lock excludes only programs of root on {host}"), "as root: {errors}");
    assert!(out.starts_with('/') && !out.contains("nonexistent"), "{out}");
    assert!(ls.starts_with("ls: ") && ls.lines().count() == 1, "nothing was made there: {errors}");
    let quiet = leasehold(&["run", "-q", NAME, "--", "true"]);
    for verb in [&["inspect", NAME][..], &["ls"]] {
        let err = String::from_utf8(leasehold(verb).stderr).unwrap();
        assert!(!err.contains("this lock excludes"), "{verb:?}: {err}");
    }
    assert_eq!((quiet.status.code(), quiet.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Process 1 of a container that was started in a group and session from outside: they have no IDs inside.
#[test]
fn p29_a_group_that_is_led_from_outside_of_the_pid_namespace() {
    let host = Host::new();
    let script = "(sleep 0.1 &); exit 3";
    for by in [&["--mount-proc", "--"][..], &["--mount-proc", "--", "sh", "-c", "\"$@\"; exit $?", "sh"]] {
        let mut run = Command::new("unshare");
        run.args(["--pid", "--fork", "--kill-child"]).args(by).arg(env!("CARGO_BIN_EXE_leasehold"));
        run.args(["run", "--store", &host.url, NAME, "--", "sh", "-c", script]);
        let ended = Run::of(&mut run).ends();
        assert_eq!(ended.code, Some(3), "{ended:?}");
    }
}

/// Process 1 of a container often waits for no children: processes that have ended stay zombies of their group forever. The
/// next run gets the lock when they have ended, and not only after the KILL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_killed_supervisor_whose_command_nobody_waits_for() {
    let host = Host::new();
    let life = host.life();
    let mut run = Command::new("unshare");
    run.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--", "sh", "-c", "\"$@\" & exec sleep 600", "sh"]);
    run.args([env!("CARGO_BIN_EXE_leasehold"), "run", "--store", &host.url]).args([
        "--lease",
        "60s",
        "--kill-after",
        "20s",
    ]);
    let container = Run::of(run.arg(NAME).arg("--").args(life.command()));
    life.has_begun();
    let begun = Instant::now();
    kill_process(supervisor_of(&host.url), Signal::KILL).unwrap();
    let (_guard, granted_us) = host.next().await;
    // The process ID is only valid inside the container.
    assert!(life.last().expect("it had begun").boot_us < granted_us);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    container.signal(Signal::KILL);
}

/// Finds it by its command line: its ID in its own namespace is not valid here.
fn supervisor_of(store: &str) -> Pid {
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, std::fs::read_to_string(entry.path().join("cmdline")).ok()?))
    });
    let wanted = format!("{}\0run\0--store\0{store}\0", env!("CARGO_BIN_EXE_leasehold"));
    let found: Vec<i32> = lines.filter(|(_, line)| line.starts_with(&wanted)).map(|(pid, _)| pid).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    Pid::from_raw(found[0]).expect("a process has a number")
}
