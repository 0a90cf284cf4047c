//! The minder: it runs, and it can be killed, stopped and replaced.

use std::fs;
use std::time::Duration;

use leasehold_testkit::wait_until;
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, LONG, field, is_alive};

const OPTIONS: [&str; 2] = ["--lease", "2s"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_minder_that_is_killed_is_replaced() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&OPTIONS, &life.stubborn());
    let sign = life.has_begun();
    let first = run.minder(None);
    kill_process(first, Signal::KILL).unwrap();
    let second = run.minder(Some(first));
    assert_eq!(field(second.as_raw_nonzero().get(), 2), field(sign.pid, 2), "in the command's group");
    kill_process(second, Signal::KILL).unwrap();
    let third = run.minder(Some(second));
    // It works like the first: the supervisor is killed, and the command is ended.
    ready(third);
    run.signal(Signal::KILL);
    let (guard, granted_us) = bench.next().await;
    life.has_ended_before(granted_us, guard.token().get());
    wait_until("the minder is gone", LONG, || !is_alive(third));
}

/// Waits until the minder has blocked its signals: from then on no signal to the group ends it.
fn ready(minder: Pid) {
    let path = format!("/proc/{}/status", minder.as_raw_nonzero());
    wait_until("the minder is ready", LONG, || {
        let status = fs::read_to_string(&path).unwrap_or_default();
        status.lines().any(|line| line.starts_with("SigBlk:") && line.contains("fffffffe"))
    });
}

/// A later minder also knows a command that is in a group of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_another_minder_knows_a_command_that_has_left_the_group() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&OPTIONS, &life.leading());
    let worker = life.has_begun().pid;
    wait_until("it leads its own group", LONG, || field(worker, 2) == Some(worker.to_string()));
    let first = run.minder(None);
    kill_process(first, Signal::KILL).unwrap();
    let second = run.minder(Some(first));
    ready(second);
    run.signal(Signal::KILL);
    let (guard, granted_us) = bench.next().await;
    life.has_ended_before(granted_us, guard.token().get());
}

/// A command kills its whole group, including the minder: another minder checks whether the group is empty.
#[test]
fn a_command_that_kills_its_group() {
    let bench = Bench::new();
    for _ in 0..5 {
        let ended = bench.run(&OPTIONS, &["sh", "-c", "kill -KILL 0"]).ends();
        assert_eq!(ended.code, Some(128 + 9), "{ended:?}");
    }
}

#[test]
fn a_command_goes_on_under_another_minder() {
    let bench = Bench::new();
    let mut run = bench.run(&OPTIONS, &["sh", "-c", "echo ready; read line; exit 4"]);
    run.read_to("ready\n");
    let first = run.minder(None);
    kill_process(first, Signal::KILL).unwrap();
    let second = run.minder(Some(first));
    ready(second);
    let called = fs::read_to_string(format!("/proc/{}/comm", second.as_raw_nonzero())).unwrap();
    assert_eq!(called, "leasehold\n", "the name of the process is visible");
    run.write("\n");
    let ended = run.ends();
    assert_eq!((ended.code, ended.err.as_str()), (Some(4), ""), "{ended:?}");
}

#[test]
fn a_minder_that_is_stopped_goes_on() {
    let bench = Bench::new();
    let mut run = bench.run(&OPTIONS, &["sh", "-c", "echo ready; read line; exit 4"]);
    run.read_to("ready\n");
    let minder = run.minder(None);
    ready(minder);
    kill_process(minder, Signal::STOP).unwrap();
    wait_until("it is continued", LONG, || field(minder.as_raw_nonzero().get(), 0).as_deref() == Some("S"));
    run.write("\n");
    assert_eq!(run.ends().code, Some(4));
}

/// A limit of P29: while supervisor and minder are both stopped, nothing ends the command. The first to be continued does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_supervisor_and_minder_are_stopped_outlives_its_lease() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&OPTIONS, &life.stubborn());
    let worker = Pid::from_raw(life.has_begun().pid).unwrap();
    let minder = run.minder(None);
    ready(minder);
    // The supervisor first: it would continue the minder.
    for stopped in [run.pid(), minder] {
        kill_process(stopped, Signal::STOP).unwrap();
    }
    let (_guard, granted_us) = bench.next().await;
    wait_until("the command works beside the next holder", LONG, || life.last().unwrap().boot_us > granted_us);
    kill_process(minder, Signal::CONT).unwrap();
    wait_until("the command is ended", LONG, || !is_alive(worker));
}

/// Signals to the whole group also reach the minder.
#[test]
fn no_signal_of_the_groups_ends_the_minder() {
    let bench = Bench::new();
    let script = "trap : HUP INT TERM QUIT USR1 USR2 ALRM; echo ready; while read line; do :; done; exit 4";
    let mut run = bench.run(&OPTIONS, &["sh", "-c", script]);
    run.read_to("ready\n");
    let minder = run.minder(None);
    for signal in [Signal::HUP, Signal::INT, Signal::TERM, Signal::QUIT, Signal::USR1, Signal::TSTP, Signal::TTIN] {
        kill_process(minder, signal).unwrap();
    }
    // The minder answers, so it lives: the run ends only after its message about the group.
    std::thread::sleep(Duration::from_millis(50));
    assert!(is_alive(minder) && field(minder.as_raw_nonzero().get(), 0).as_deref() == Some("S"));
    assert_eq!(run.ends().code, Some(4));
    wait_until("the minder is gone", LONG, || !is_alive(minder));
}
