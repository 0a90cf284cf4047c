//! `--min-hold`: a short job keeps others out, even after its process has ended (P23).

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::bench::{Bench, LONG, is_alive, leasehold};

/// A second machine starts when the job of the first one is already over.
#[test]
fn p23_a_short_job_keeps_the_others_out() {
    let bench = Bench::new();
    let begun = Instant::now();
    let ended = bench.run(&["--min-hold", "4s"], &["true"]).ends();
    assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(3), "it does not wait for the end: {:?}", begun.elapsed());
    let late = bench.run(&["--no-wait"], &["true"]).ends();
    assert!(late.code == Some(124) && late.err.contains("was released by"), "nobody holds it: {late:?}");
    let mut waiting = bench.run(&[], &["true"]);
    let line = waiting.read_error_line();
    assert!(line.contains("released by") && line.contains("kept for its minimum hold"), "{line}");
    assert_eq!(waiting.ends().code, Some(0));
    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
}

/// The store of this host frees what a dead process held. This lease was released.
#[test]
fn p23_a_minimum_hold_on_this_host_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let run = |options: &[&str]| {
        let store = format!("file:{}", dir.path().display());
        let output = leasehold().args(["run", "job", "--store", &store]).args(options).args(["--", "true"]).output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let begun = Instant::now();
    assert_eq!(run(&["-q", "--min-hold", "3s"]), (Some(0), String::new()));
    assert_eq!(run(&["-q", "--no-wait"]).0, Some(124));
    assert_eq!(run(&["-q", "--wait", "1m"]).0, Some(0));
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// The command ends in an outage that is longer than `run` usually waits for a release.
#[test]
fn p23_a_minimum_hold_outlasts_an_outage_at_its_end() {
    let bench = Bench::new();
    let mut run = bench.run_through(&["--lease", "20s", "--min-hold", "15s"], &["sh", "-c", "echo ready; read line"]);
    run.read_to("ready\n");
    let begun = Instant::now();
    bench.proxy.refuse_connections();
    bench.proxy.cut_all();
    run.write("\n");
    std::thread::sleep(Duration::from_secs(7));
    assert!(is_alive(run.pid()), "it still tries to release");
    bench.proxy.accept_connections();
    assert_eq!(run.ends().code, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(14), "it does not wait for the end: {:?}", begun.elapsed());
    assert_eq!(bench.run(&["--no-wait"], &["true"]).ends().code, Some(124), "others are kept out");
    assert_eq!(bench.run(&["--wait", "1m"], &["true"]).ends().code, Some(0));
    assert!(begun.elapsed() >= Duration::from_secs(14), "{:?}", begun.elapsed());
}

/// A signal ends the wait for the store. The message reports what may be lost.
#[test]
fn p23_a_signal_ends_the_wait_for_a_release() {
    let bench = Bench::new();
    let mut run = bench.run_through(&["--lease", "30s", "--min-hold", "1m"], &["sh", "-c", "echo ready; read line"]);
    run.read_to("ready\n");
    bench.proxy.refuse_connections();
    bench.proxy.cut_all();
    run.write("\n");
    std::thread::sleep(Duration::from_secs(6));
    assert!(is_alive(run.pid()), "it still tries to release");
    let begun = Instant::now();
    run.signal(Signal::TERM);
    let ended = run.ends();
    assert!(begun.elapsed() < LONG / 4, "{:?}", begun.elapsed());
    assert!(ended.err.contains("its minimum hold may not be kept"), "{ended:?}");
}

/// The job was not done here: another machine may have the program.
#[test]
fn p23_a_command_that_cannot_be_executed_keeps_nobody_out() {
    let bench = Bench::new();
    let ended = bench.run(&["--min-hold", "1m"], &["/nowhere/to/be/found"]).ends();
    assert_eq!(ended.code, Some(127), "{ended:?}");
    assert_eq!(bench.run(&["--no-wait"], &["true"]).ends().code, Some(0));
}

#[test]
fn a_minimum_hold_out_of_range_is_an_invalid_argument() {
    let bench = Bench::new();
    for (hold, why) in [("25h", "is longer than 24 h"), ("5", "expected a duration such as 500ms")] {
        let ended = bench.run(&["--min-hold", hold], &["true"]).ends();
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains(why), "{ended:?}");
    }
}
