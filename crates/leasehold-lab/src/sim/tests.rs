//! Unit tests of the simulation's parts. Whole seeds are played by processes of their own (tests/sim.rs): here the
//! models switch flaws on and off, for every test in this process.

use super::book::Book;
use super::exec::{Exec, Halt, Part, Stop, WORLD};
use super::jumps::Trip;
use super::mutants::ALL;
use super::plan::Plan;
use super::report::Total;
use super::rng::Rng;
use super::run::play;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_spec::{GrantId, SessionId};

#[test]
fn events_that_never_occurred_are_named() {
    let everything = Total::default().missed();
    assert!(["cut", "settle", "GhostPush"].iter().all(|what| everything.contains(what)), "{everything:?}");
    let mut total = Total::default();
    total.add(play(Plan::of(1), Book::default()));
    let missed = total.missed();
    assert!(missed.len() < everything.len() && !missed.contains(&"acquire: granted"), "{missed:?}");
}

#[test]
fn seeds_differ_in_what_goes_wrong() {
    let plans: Vec<Plan> = (1..200).map(Plan::of).collect();
    assert!(plans.iter().any(|plan| plan.faults.is_empty()));
    assert!(plans.iter().any(|plan| plan.faults.len() > 8));
    assert!(plans.iter().any(|plan| plan.lease_max_us() > 100_000_000));
    assert!(plans.iter().any(|plan| plan.lease_max_us() < 3_000_000));
}

/// Returns the ID of an attempt.
fn id(counter: u64) -> GrantId {
    GrantId { session: SessionId(1), counter, nonce: 1 }
}

/// A failover brings back an earlier state, and the next grant of the new run gets the token of a section that has
/// panicked.
#[test]
fn a_panic_is_not_that_of_another_grant_with_the_same_token() {
    let book = Book::default();
    book.given("a", 7, id(1), 100);
    book.panicked(1, "a", 7);
    book.given("a", 7, id(1), 150);
    assert!(book.is_behind_a_panic(1, "a", 8), "handed on under the same grant");
    assert!(!book.is_behind_a_panic(2, "a", 8), "another process");
    book.given("a", 7, id(2), 200);
    assert!(!book.is_behind_a_panic(1, "a", 8), "another grant");
}

#[test]
fn a_revocation_excuses_only_later_tokens_of_its_own_grant() {
    let book = Book::default();
    book.given("a", 7, id(7), 100);
    book.revoked("a", 7, 400);
    book.given("a", 20, id(20), 500);
    let is_excused = |name, token, at_us| book.handed_on_unaware(name, token, at_us).is_some();
    assert!(is_excused("a", 8, 400));
    assert!(!is_excused("a", 8, 399), "it has not ended");
    assert!(!is_excused("a", 7, 400), "the store's own grant");
    assert!(!is_excused("a", 21, 600), "of the next grant");
    assert!(!is_excused("b", 8, 600), "of another name");
}

#[test]
fn an_early_end_excuses_only_later_tokens_of_its_own_grant() {
    let book = Book::default();
    book.given("a", 7, id(7), 100);
    book.ended_early("a", 7, (400, 900));
    book.given("a", 20, id(20), 500);
    let is_excused = |token, at_us| book.handed_on_unaware("a", token, at_us).is_some();
    assert!(is_excused(8, 400) && is_excused(9, 900));
    assert!(!is_excused(8, 399), "it has not ended");
    assert!(!is_excused(8, 901), "it would have ended");
    assert!(!is_excused(7, 500), "the store's own grant");
    assert!(!is_excused(21, 600), "of the next grant");
    book.ended_early("a", 20, (700, 900));
    book.renewed("a", 20, 600);
    assert!(!is_excused(21, 800), "it was renewed in time");
}

#[test]
fn an_old_clock_dates_only_a_grant_after_a_jump_that_its_client_does_not_know() {
    let book = Book::default();
    let at = |us| Trip { sent_us: us, made_us: us, received_us: us };
    book.record_answer(1, at(100));
    book.jumps(200, 10_000);
    [("a", 7, 150), ("a", 8, 250)]
        .into_iter()
        .for_each(|(name, token, at_us)| book.given(name, token, id(token), at_us));
    assert!(book.is_placed_by_an_old_clock(1, "a", 8));
    assert!(!book.is_placed_by_an_old_clock(1, "a", 7), "made before it");
    book.record_answer(2, at(210));
    assert!(!book.is_placed_by_an_old_clock(2, "a", 8), "another client, which knows the jump");
    book.record_answer(1, at(260));
    assert!(!book.is_placed_by_an_old_clock(1, "a", 8), "it knows the jump now");
}

#[test]
fn flaws_have_names_of_their_own() {
    let mut names: Vec<String> = ALL.iter().map(|mutant| format!("{mutant:?}")).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), ALL.len());
}

/// Returns an executor, a process in it, and the time at which its sleep of a second was over.
fn sleeper(rate_ppm: i64) -> (Arc<Exec>, usize, Arc<AtomicU64>) {
    let exec = Arc::new(Exec::new(Rng::new(1), 0));
    let pid = exec.start(5_000_000, rate_ppm);
    let woke_us = Arc::new(AtomicU64::new(0));
    let (there, woke) = (Arc::clone(&exec), Arc::clone(&woke_us));
    let slept = exec.sleep(pid, Duration::from_secs(1));
    let sleeping = async move {
        slept.await;
        woke.store(there.now_us(), Ordering::SeqCst);
    };
    exec.spawn(pid, Part::Thread, "a sleeper", Box::pin(sleeping));
    (exec, pid, woke_us)
}

#[test]
fn timers_run_at_the_rate_of_their_process() {
    let (exec, pid, woke_us) = sleeper(10_000);
    assert_eq!(exec.run(2_000_000, || false), Stop::Idle);
    assert_eq!(woke_us.load(Ordering::SeqCst), 990_000);
    assert_eq!(exec.local_us(pid), 5_000_000 + 999_900);
}

#[test]
fn a_halted_process_wakes_late_and_its_clock_continues() {
    let (exec, pid, woke_us) = sleeper(0);
    exec.run(500_000, || false);
    exec.halt(pid, Halt::All);
    let there = Arc::clone(&exec);
    exec.after(2_000_000, move || there.resume(pid, Halt::All));
    exec.run(10_000_000, || false);
    assert_eq!(woke_us.load(Ordering::SeqCst), 2_500_000, "as soon as it runs");
    assert_eq!(exec.halted_us(pid, Part::Thread), 2_000_000);
}

#[test]
fn sleep_stops_the_timers_of_a_process_but_not_its_clock() {
    let (exec, pid, woke_us) = sleeper(0);
    exec.run(500_000, || false);
    exec.suspend(pid);
    let there = Arc::clone(&exec);
    exec.after(2_000_000, move || {
        there.awake(pid);
        assert_eq!(there.local_us(pid), 5_000_000 + 2_500_000);
    });
    exec.run(10_000_000, || false);
    assert_eq!(woke_us.load(Ordering::SeqCst), 3_000_000, "half a second was left");
}

#[test]
fn a_dead_process_runs_nothing_and_leaves_nothing() {
    let (exec, pid, woke_us) = sleeper(0);
    exec.run(500_000, || false);
    exec.kill(pid);
    exec.spawn(pid, Part::Thread, "a ghost", Box::pin(async { panic!("it runs") }));
    exec.run(10_000_000, || false);
    assert_eq!((woke_us.load(Ordering::SeqCst), exec.tasks_of(pid)), (0, Vec::new()));
}

/// Returns a process with two runtimes, and the progress of each of them.
fn two_runtimes() -> (Arc<Exec>, usize, [Arc<AtomicU64>; 2]) {
    let exec = Arc::new(Exec::new(Rng::new(1), 0));
    let pid = exec.start(0, 0);
    let woke_us = [0, 1].map(|number| {
        assert_eq!(exec.start_runtime(pid), number);
        let woke_us = Arc::new(AtomicU64::new(0));
        let (there, woke) = (Arc::clone(&exec), Arc::clone(&woke_us));
        let sleeping = async move {
            there.sleep(pid, Duration::from_secs(1)).await;
            woke.store(there.now_us(), Ordering::SeqCst);
        };
        exec.spawn(pid, Part::Runtime(number), "a sleeper", Box::pin(sleeping));
        woke_us
    });
    (exec, pid, woke_us)
}

#[test]
fn a_runtime_stands_still_alone() {
    let (exec, pid, woke_us) = two_runtimes();
    let (there, first) = (Arc::clone(&exec), Halt::Only(Part::Runtime(0)));
    exec.run(500_000, || false);
    exec.halt(pid, first);
    exec.after(2_000_000, move || there.resume(pid, first));
    exec.run(10_000_000, || false);
    assert_eq!(woke_us.map(|us| us.load(Ordering::SeqCst)), [2_500_000, 1_000_000]);
    assert_eq!([0, 1].map(|number| exec.halted_us(pid, Part::Runtime(number))), [2_000_000, 0]);
}

#[test]
fn a_runtime_ends_alone_and_later_tasks_for_it_are_dropped() {
    let (exec, pid, woke_us) = two_runtimes();
    exec.run(500_000, || false);
    assert!(exec.end_runtime(pid, 0) && !exec.end_runtime(pid, 0), "it ends once");
    assert_eq!(exec.runtimes(pid), [1]);
    let held = Arc::new(());
    let ghost = Arc::clone(&held);
    exec.spawn(pid, Part::Runtime(0), "a ghost", Box::pin(async move { panic!("it runs with {ghost:?}") }));
    assert_eq!(Arc::strong_count(&held), 1, "it was dropped");
    exec.run(10_000_000, || false);
    assert_eq!(woke_us.map(|us| us.load(Ordering::SeqCst)), [0, 1_000_000]);
    assert_eq!(exec.start_runtime(pid), 2, "the next one is another");
}

#[test]
fn a_blocked_runtime_polls_only_the_caller_that_blocks_it() {
    let (exec, pid, woke_us) = two_runtimes();
    exec.halt(pid, Halt::Only(Part::Runtime(1)));
    let (there, seen) = (Arc::clone(&exec), Arc::new(AtomicU64::new(0)));
    let inside = Arc::clone(&seen);
    let blocking = async move {
        let spawned = there.spawn_beside(pid, "beside it", Box::pin(async {}));
        inside.store(u64::from(spawned.is_ok()), Ordering::SeqCst);
        assert!(!there.end_runtime(pid, 1), "its thread is in use");
    };
    exec.spawn(pid, Part::Inside(1), "the blocking caller", Box::pin(blocking));
    exec.run(3_000_000, || false);
    assert_eq!((seen.load(Ordering::SeqCst), exec.tasks_of(pid).len()), (1, 2), "the task beside it, and a sleeper");
    assert_eq!(woke_us.map(|us| us.load(Ordering::SeqCst)), [1_000_000, 0]);
}

#[test]
fn a_livelock_ends_the_run() {
    let exec = Arc::new(Exec::new(Rng::new(1), 0));
    let spinning = std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    });
    exec.spawn(WORLD, Part::Thread, "a spinner", Box::pin(spinning));
    assert_eq!(exec.run(1_000_000, || false), Stop::Livelock);
}

#[test]
fn ready_tasks_run_in_every_order() {
    let orders: std::collections::BTreeSet<Vec<u32>> = (0..50).map(order_of_three).collect();
    assert_eq!(orders.len(), 6);
}

fn order_of_three(seed: u64) -> Vec<u32> {
    let exec = Arc::new(Exec::new(Rng::new(seed), 0));
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..3 {
        let order = Arc::clone(&order);
        let task = async move { order.lock().expect("no task panics").push(number) };
        exec.spawn(WORLD, Part::Thread, "one of three", Box::pin(task));
    }
    exec.run(1, || false);
    let order = order.lock().expect("no task panics");
    order.clone()
}
