//! The gap between the lock and the start of the command: a run that is stopped there may have lost the lock when it
//! is continued.

use std::time::{Duration, Instant};

use leasehold_testkit::wait_until;
use rustix::process::Signal;

use crate::bench::{Bench, LONG, Run, children, field};

/// How often the test tries to stop a supervisor between the starts of its two children, which are milliseconds apart.
const TRIES: usize = 100;

/// The supervisor is stopped while its minder starts, and for longer than the lease: the command must not be started
/// without a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_no_command_is_started_after_a_stop_beyond_the_lease() {
    let bench = Bench::new();
    let run = (0..TRIES).find_map(|_| stopped_in_the_gap(&bench)).expect("one was stopped there");
    let (guard, _) = bench.next().await;
    run.signal(Signal::CONT);
    let ended = run.ends();
    assert_eq!(ended.code, Some(123), "{ended:?}");
    assert!(ended.err.contains("was lost before the command was started"), "{ended:?}");
    assert!(guard.is_valid());
}

/// Returns a run that has a minder, and no command yet.
fn stopped_in_the_gap(bench: &Bench) -> Option<Run> {
    let run = bench.run(&["--lease", "1s"], &["sleep", "60"]);
    let pid = run.pid().as_raw_nonzero().get();
    let begun = Instant::now();
    // Its first child is the minder, for whose message it waits.
    while std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().is_empty() {
        assert!(begun.elapsed() < LONG, "no minder is started");
    }
    run.signal(Signal::STOP);
    wait_until("it is stopped", LONG, || field(pid, 0).as_deref() == Some("T"));
    std::thread::sleep(Duration::from_millis(1));
    (children(run.pid()).len() == 1).then_some(run)
}
