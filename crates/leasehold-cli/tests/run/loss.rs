//! No command outlives its lease, whatever fails.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold_testkit::proxy::{Fault, Requests, Way};
use leasehold_testkit::{boottime_us, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, LONG, NAME, TAKEOVER_SLACK, field, is_alive};

const LEASE: Duration = Duration::from_secs(2);
const OPTIONS: [&str; 2] = ["--lease", "2s"];

/// A killed supervisor: the minder ends the command, even one that ignores TERM, and the next run holds within the lease
/// and a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_killed_supervisor() {
    for stubborn in [false, true] {
        let bench = Bench::new();
        let life = bench.life();
        let command = if stubborn { life.stubborn() } else { life.command() };
        let run = bench.run(&OPTIONS, &command);
        life.has_begun();
        let killed_us = boottime_us();
        run.signal(Signal::KILL);
        let (guard, granted_us) = bench.next().await;
        let waited = Duration::from_micros(granted_us - killed_us);
        assert!(waited < LEASE + TAKEOVER_SLACK, "{waited:?}");
        life.has_ended_before(granted_us, guard.token().get());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_stopped_supervisor() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&OPTIONS, &life.stubborn());
    life.has_begun();
    run.signal(Signal::STOP);
    let (guard, granted_us) = bench.next().await;
    life.has_ended_before(granted_us, guard.token().get());
    run.signal(Signal::CONT);
    let ended = run.ends();
    assert_eq!(ended.code, Some(123), "{ended:?}");
    assert!(ended.err.contains("is lost"), "{ended:?}");
    assert!(guard.is_valid(), "it did not touch the later grant");
}

/// All processes are stopped, as in a frozen container. The supervisor is continued first: it must not continue the
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_everybody_stopped() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&OPTIONS, &life.stubborn());
    let worker = Pid::from_raw(life.has_begun().pid).unwrap();
    let minder = run.minder(None);
    // The minder is stopped after its supervisor, which would continue it.
    for pid in [run.pid(), minder, worker] {
        kill_process(pid, Signal::STOP).unwrap();
        wait_until("it is stopped", LONG, || field(pid.as_raw_nonzero().get(), 0).as_deref() == Some("T"));
    }
    let (guard, granted_us) = bench.next().await;
    run.signal(Signal::CONT);
    let ended = run.ends();
    assert_eq!(ended.code, Some(123), "{ended:?}");
    life.has_ended_before(granted_us, guard.token().get());
}

/// A supervisor is stopped, and continued before a TERM is due: nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_was_stopped_for_a_moment() {
    let bench = Bench::new();
    let mut run = bench.run(&["--lease", "30s"], &["sh", "-c", "echo ready; read line; exit 4"]);
    run.read_to("ready\n");
    run.signal(Signal::STOP);
    run.signal(Signal::CONT);
    run.write("\n");
    assert_eq!(run.ends().code, Some(4));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_silent_store() {
    for stubborn in [false, true] {
        let bench = Bench::new();
        let life = bench.life();
        let command = if stubborn { life.stubborn() } else { life.command() };
        let run = bench.run_through(&OPTIONS, &command);
        life.has_begun();
        bench.proxy.stall(Way::Both);
        let (guard, granted_us) = bench.next().await;
        life.has_ended_before(granted_us, guard.token().get());
        let ended = run.ends();
        assert_eq!(ended.code, Some(123), "{ended:?}");
        assert!(ended.err.contains("could not be renewed in time (last renewed "), "{ended:?}");
    }
}

/// A command may leave its group. It must still be ended, and an empty group must not get another KILL: its ID may belong
/// to another group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_command_that_leads_a_group_of_its_own() {
    for how in [Some(Signal::KILL), Some(Signal::STOP), None] {
        let bench = Bench::new();
        let life = bench.life();
        let run = bench.run_through(&OPTIONS, &life.leading());
        let worker = life.has_begun().pid.to_string();
        wait_until("it leads its own group", LONG, || field(worker.parse().unwrap(), 2).as_deref() == Some(&worker));
        match how {
            Some(signal) => run.signal(signal),
            None => bench.proxy.stall(Way::Both),
        }
        let (guard, granted_us) = bench.next().await;
        life.has_ended_before(granted_us, guard.token().get());
        if how != Some(Signal::KILL) {
            let _goes_on = kill_process(run.pid(), Signal::CONT);
            assert_eq!(run.ends().code, Some(123));
        }
    }
}

/// An outage that is shorter than the lease loses nothing.
#[test]
fn a_store_that_was_silent_for_a_moment() {
    let bench = Bench::new();
    let mut run = bench.run_through(&["--lease", "6s"], &["sh", "-c", "echo ready; read line; exit 4"]);
    run.read_to("ready\n");
    bench.proxy.stall(Way::Both);
    bench.proxy.wait_seen("a renewal is held up", LONG, |seen| seen.stalled_requests > 0);
    bench.proxy.resume();
    run.write("\n");
    let ended = run.ends();
    assert_eq!(ended.code, Some(4), "{ended:?}");
}

/// While the command runs, an overdue renewal is reported, and the end of the outage.
#[test]
fn an_overdue_renewal_is_reported() {
    let bench = Bench::new();
    let script = ["sh", "-c", "echo ready; read line; exit 4"];
    let mut run = bench.run_through(&["--lease", "15s"], &script);
    run.read_to("ready\n");
    bench.proxy.stall(Way::Both);
    let overdue = run.read_error_line();
    assert!(overdue.starts_with("leasehold: the store is unreachable: \"job\" was last renewed "), "{overdue}");
    assert!(overdue.contains(" s ago; the command gets TERM in "), "{overdue}");
    bench.proxy.resume();
    let renewed = run.read_error_line();
    assert!(renewed.starts_with("leasehold: the store is reachable again: \"job\" is renewed"), "{renewed}");
    run.write("\n");
    let ended = run.ends();
    assert_eq!((ended.code, ended.err.as_str()), (Some(4), ""), "{ended:?}");
}

/// The command may use the grace of a revocation: it has ended when the grace is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_revoked_lock() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&["--lease", "30s"], &life.stubborn());
    life.has_begun();
    let mutex = bench.client().await.mutex(NAME);
    let holder = mutex.inspect().await.unwrap().holder().cloned().expect("it holds");
    let begun = Instant::now();
    let _within = mutex.revoke(&holder, Duration::from_secs(2)).await.unwrap();
    let (guard, granted_us) = bench.next().await;
    life.has_ended_before(granted_us, guard.token().get());
    assert!(begun.elapsed() < LONG);
    let ended = run.ends();
    assert_eq!(ended.code, Some(123), "{ended:?}");
    assert!(ended.err.contains("\"job\" was revoked; the command gets TERM, and KILL in 1."), "{ended:?}");
}

/// A command that ends at its TERM: the lock is released at once, and nobody waits for the grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_lock_whose_command_obeys() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&["--lease", "30s"], &life.command());
    life.has_begun();
    let mutex = bench.client().await.mutex(NAME);
    let holder = mutex.inspect().await.unwrap().holder().cloned().expect("it holds");
    let begun = Instant::now();
    let _within = mutex.revoke(&holder, Duration::from_secs(5)).await.unwrap();
    let (guard, granted_us) = bench.next().await;
    life.has_ended_before(granted_us, guard.token().get());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(run.ends().code, Some(123));
}

/// The store has forgotten the lock. The next renewal finds that out, and the command is ended at once. Until then, only a
/// fence separates the two holders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_has_forgotten() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&OPTIONS, &life.stubborn());
    let pid = life.has_begun().pid;
    let _flushed = bench.server.command(&["FLUSHALL"]);
    let ended = run.ends();
    assert_eq!(ended.code, Some(123), "{ended:?}");
    assert!(ended.err.contains("\"job\" is lost: the store has no record of the lease"), "{ended:?}");
    assert!(!is_alive(Pid::from_raw(pid).unwrap()));
}

/// The lock is held, and renewed, until the group is empty. The processes that the command left behind are ended with the
/// lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_whom_the_command_left_behind() {
    let bench = Bench::new();
    let life = bench.life();
    let run = bench.run(&OPTIONS, &life.left_behind());
    let sign = life.has_begun();
    let mutex = bench.client().await.mutex(NAME);
    tokio::time::sleep(LEASE + LEASE / 2).await;
    let holder = mutex.inspect().await.unwrap().holder().cloned().expect("it holds, longer than a lease");
    assert!(!holder.is_revoked);
    kill_process(Pid::from_raw(sign.pid).unwrap(), Signal::KILL).unwrap();
    let ended = run.ends();
    assert_eq!(ended.code, Some(5), "the command's own status: {ended:?}");
    assert_eq!(ended.err.matches("left processes behind").count(), 1, "{ended:?}");
    assert!(mutex.inspect().await.unwrap().holder().is_none(), "free at once");

    // If the supervisor is killed, they are ended like a command.
    life.touch();
    let run = bench.run(&OPTIONS, &life.left_behind());
    life.has_begun();
    run.signal(Signal::KILL);
    let (guard, granted_us) = bench.next().await;
    life.has_ended_before(granted_us, guard.token().get());
}

/// A hand-over grants only a claim of a second. If the store becomes silent then, a command that was started on the claim
/// could not be ended in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p29_a_command_starts_on_a_whole_lease() {
    let bench = Bench::new();
    let started = bench.dir.path().join("started");
    let guard = bench.client().await.mutex(NAME).lock().await.unwrap();
    let claims = bench.proxy.inject(Fault::hold(Requests::script(Script::Renew.sha())));
    let script = format!("echo > {}; exit 3", started.display());
    let run = bench.run_through(&["--lease", "30s"], &["sh", "-c", &script]);
    bench.waiters(1).await;
    drop(guard);
    // This is the claim, or the renewal a third later if a command was started on the claim.
    claims.wait(1, LONG);
    assert!(!started.exists(), "a command was started on a claim");
    let mutex = bench.client().await.mutex(NAME);
    let holder = mutex.inspect().await.unwrap().holder().cloned().expect("it was handed over");
    assert!(holder.remaining < Duration::from_secs(2), "a claim: {holder:?}");
    claims.lift();
    assert_eq!(run.ends().code, Some(3));
    assert!(started.exists());
}
