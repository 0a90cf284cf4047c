//! The guarantees of a holder, and the events that end its hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Guard, Leasehold, LostReason, LostSignal, Mutex, Released, Revoked};
use tokio::task::JoinHandle;

use crate::conformance::rules::Raw;
use crate::conformance::stage::{Stage, eventually, release, soon};

const MS: Duration = Duration::from_millis(1);
const GRACE: Duration = Duration::from_millis(300);
const LEASE: Duration = Duration::from_millis(2_400);
/// The promise: within this time after the end of a grace the next waiter holds. The waiters' own re-checks come after 4
/// s at the earliest, so a store that depends on them is too late.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

pub(super) async fn others_wait_is_heard(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = a.mutex(stage.name()).lease(LEASE).lock().await.expect("granted");
    assert!(!guard.others_wait());
    let waits = b.mutex(stage.name());
    let waiting = tokio::spawn(async move { waits.lock().await.expect("granted") });
    eventually("the next renewal says so", async || guard.others_wait()).await;
    release(guard).await;
    let guard = soon("it is granted", waiting).await.expect("no panic");
    assert!(!guard.others_wait(), "nobody waits behind it");
    release(guard).await;
}

pub(super) async fn signals_say_why(stage: &Stage) {
    let client = stage.client("a").await;
    let mutex = client.mutex(stage.name());

    let guard = mutex.clone().fixed_lease(500 * MS).lock().await.expect("granted");
    let signals = [guard.lost(), guard.lost().clone()];
    all_say(signals, stage, LostReason::FixedLease).await;
    drop(guard);

    let guard = mutex.lock().await.expect("granted");
    let (before, seen) = (guard.lost(), stage.inspect(&client).await.holder().cloned().expect("held"));
    let _ = mutex.revoke(&seen, GRACE).await.expect("an answer");
    all_say([before, guard.lost()], stage, LostReason::Revoked).await;
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Revoked));
    drop(guard);

    let guard = mutex.lock().await.expect("granted");
    let (kept, moved) = (guard.lost(), guard.lost());
    let notified = tokio::spawn(moved);
    release(guard).await;
    assert_eq!(soon("it is notified", notified).await.expect("no panic").reason(), LostReason::Released);
    all_say([kept.clone(), kept], stage, LostReason::Released).await;

    let guard = mutex.lock().await.expect("granted");
    let signal = guard.lost();
    assert!(client.close().await.unconfirmed().is_empty());
    all_say([signal, guard.lost()], stage, LostReason::Closed).await;
    assert_eq!(guard.release().await.expect("an answer"), Released::NotHeld);
}

async fn all_say(signals: [LostSignal; 2], stage: &Stage, why: LostReason) {
    for signal in signals {
        let lost = soon("it is notified", signal).await;
        assert_eq!((lost.reason(), lost.name()), (why, stage.name()), "{lost}");
    }
}

pub(super) async fn guards_go_anywhere(stage: &Stage) {
    fn anywhere<T: Send + Sync + 'static>(_: &T) {}
    let client = stage.client("a").await;
    let mutex = client.mutex(stage.name());
    let guard = mutex.lock().await.expect("granted");
    anywhere(&guard);
    anywhere(&guard.lost());
    anywhere(&mutex);
    anywhere(&client);
    // One thread reads it, and another one drops it, without a runtime.
    let shared = Arc::new(guard);
    let looks = Arc::clone(&shared);
    assert!(std::thread::spawn(move || looks.is_valid()).join().expect("no panic"));
    std::thread::spawn(move || drop(shared)).join().expect("no panic");
    let guard = soon("it was given back", mutex.lock()).await.expect("granted");
    let released = tokio::spawn(async move { guard.release().await.expect("an answer") });
    assert_eq!(released.await.expect("no panic"), Released::Released);
}

/// More leases than fit into one batch, for longer than they last without a renewal. Renewals are due at a third of the
/// lease: the rest of it is how long this machine, which plays other cells as well, may stand still.
pub(super) async fn many_leases_are_renewed(stage: &Stage) {
    const LEASE: Duration = Duration::from_millis(4_800);
    let (client, other) = (stage.client("a").await, stage.client("b").await);
    let mutexes: Vec<Mutex> = (0..50).map(|number| client.mutex(stage.name_of(number)).lease(LEASE)).collect();
    let mut guards = Vec::new();
    for mutex in &mutexes {
        guards.push(mutex.lock().await.expect("granted"));
    }
    // Half of them have waiters: their records look different.
    let mut waiting = Vec::new();
    for number in 0..25 {
        let waits = other.mutex(stage.name_of(number));
        waiting.push(tokio::spawn(async move { waits.lock().await.expect("granted") }));
    }
    tokio::time::sleep(2 * LEASE).await;
    assert!(guards.iter().all(Guard::is_valid), "every one of them, long after it would have ended");
    for guard in guards {
        release(guard).await;
    }
    for one in waiting {
        release(soon("it is granted", one).await.expect("no panic")).await;
    }
}

pub(super) async fn loss_drops_the_work(stage: &Stage) {
    struct Work(Arc<AtomicBool>);
    impl Drop for Work {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let client = stage.client("a").await;
    let dropped = Arc::new(AtomicBool::new(false));
    let work = Work(Arc::clone(&dropped));
    let mutex = client.mutex(stage.name()).fixed_lease(500 * MS);
    let lost = mutex.run(async move |guard: &Guard| {
        let _work = (work, guard.token());
        std::future::pending::<()>().await;
    });
    let error = soon("its lease ends", lost).await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(error.name(), Some(stage.name()), "{error}");
    assert!(error.to_string().contains("the fixed lease is over"), "{error}");
    assert!(dropped.load(Ordering::SeqCst), "the work was dropped before the answer came");
}

pub(super) async fn panic_gives_back(stage: &Stage) {
    let client = stage.client("a").await;
    let mutex = client.mutex(stage.name());
    let works = mutex.clone();
    let working = tokio::spawn(async move {
        works.run(async |_| -> () { std::panic::resume_unwind(Box::new("the work gives up")) }).await
    });
    assert!(working.await.expect_err("it panicked").is_panic());
    let guard = soon("it was given back", mutex.lock()).await.expect("nothing is poisoned");
    release(guard).await;
}

pub(super) async fn revoke_names_its_holder(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let (ours, theirs) = (a.mutex(stage.name()), b.mutex(stage.name()));
    let guard = ours.lock().await.expect("granted");
    let seen = stage.inspect(&b).await.holder().cloned().expect("held");
    release(guard).await;
    // The same client locks again: that is another grant all the same.
    let later = ours.lock().await.expect("granted");
    assert_eq!(theirs.revoke(&seen, Duration::ZERO).await.expect("an answer"), Revoked::NotHeld);
    assert!(later.is_valid() && !stage.inspect(&b).await.holder().expect("held").is_revoked);
    assert_ne!(seen.id(), stage.inspect(&b).await.holder().expect("held").id());
    release(later).await;
}

pub(super) async fn grace_runs_out(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = a.mutex(stage.name()).lock().await.expect("granted");
    let (waits, lost) = (b.mutex(stage.name()), guard.lost());
    let waiting = tokio::spawn(async move { waits.lock().await.expect("granted") });
    stage.waiters(&a, 1).await;
    let seen = stage.inspect(&b).await.holder().cloned().expect("held");
    let revoked = Instant::now();
    let Revoked::Within(left) = b.mutex(stage.name()).revoke(&seen, GRACE).await.expect("an answer") else {
        panic!("it holds")
    };
    assert!(left <= GRACE);
    assert_eq!(soon("it is notified", lost).await.reason(), LostReason::Revoked);
    // It goes on, against all advice.
    let next = soon("the next one is granted", waiting).await.expect("no panic");
    assert!(revoked.elapsed() >= GRACE - MS, "not before the grace was over: {:?}", revoked.elapsed());
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.expect("an answer"), Released::NotHeld);
    assert!(next.is_valid(), "a late release is nobody else's");
    release(next).await;
}

/// A client that revokes the holder that it sees, and goes away.
async fn revoke_and_go(stage: &Stage, grace: Duration) -> Instant {
    let operator = Leasehold::connect(stage.url()).await.expect("connected");
    let seen = stage.inspect(&operator).await.holder().cloned().expect("held");
    let revoked = Instant::now();
    let answer = operator.mutex(stage.name()).revoke(&seen, grace).await.expect("an answer");
    assert!(matches!(answer, Revoked::Within(left) if left <= grace), "{answer:?}");
    assert!(operator.close().await.unconfirmed().is_empty());
    revoked
}

fn waits(client: &Leasehold, stage: &Stage) -> JoinHandle<Guard> {
    let mutex = client.mutex(stage.name());
    tokio::spawn(async move { mutex.lock().await.expect("granted") })
}

async fn is_served_in_time(waiting: JoinHandle<Guard>, revoked: Instant, grace: Duration) -> Guard {
    let guard = soon("it is granted", waiting).await.expect("no panic");
    let took = revoked.elapsed();
    let in_time = grace - MS..=grace + SERVED_WITHIN;
    assert!(in_time.contains(&took), "served {took:?} after a revocation with a grace of {grace:?}");
    guard
}

pub(super) async fn grace_ends_for_the_next_waiter(stage: &Stage) {
    let client = stage.client("waits").await;
    let mut silent = Raw::attach(stage).await;
    let token = silent.take().await;
    let waiting = waits(&client, stage);
    stage.waiters(&client, 1).await;
    let revoked = revoke_and_go(stage, GRACE).await;
    let guard = is_served_in_time(waiting, revoked, GRACE).await;
    assert!(guard.token() > token);
    release(guard).await;
}

pub(super) async fn grace_ends_for_whoever_is_left(stage: &Stage) {
    const LONGER: Duration = Duration::from_millis(1_500);
    let clients = [stage.client("first").await, stage.client("second").await, stage.client("last").await];
    let mut silent = Raw::attach(stage).await;
    let token = silent.take().await;
    let mut waiting = Vec::new();
    for client in &clients {
        waiting.push(waits(client, stage));
        stage.waiters(client, waiting.len()).await;
    }
    let revoked = revoke_and_go(stage, LONGER).await;
    let last = waiting.pop().expect("three of them wait");
    waiting.iter().for_each(JoinHandle::abort);
    stage.waiters(&clients[2], 1).await;
    let guard = is_served_in_time(last, revoked, LONGER).await;
    assert!(guard.token() > token);
    release(guard).await;
}

pub(super) async fn no_grace_ends_at_once(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = a.mutex(stage.name()).lock().await.expect("granted");
    let waits = b.mutex(stage.name());
    let waiting = tokio::spawn(async move { waits.lock().await.expect("granted") });
    stage.waiters(&a, 1).await;
    let seen = stage.inspect(&b).await.holder().cloned().expect("held");
    let revoked = b.mutex(stage.name()).revoke(&seen, Duration::ZERO).await.expect("an answer");
    assert_eq!(revoked, Revoked::Within(Duration::ZERO));
    let next = stage.next_holder(&b, seen.token).await;
    assert!(next.token > seen.token && next.label == "b" && !next.is_revoked);
    assert_eq!(soon("it is notified", guard.lost()).await.reason(), LostReason::Revoked);
    release(soon("the next one is granted", waiting).await.expect("no panic")).await;
}

pub(super) async fn crashed_holder_is_followed(stage: &Stage) {
    let client = stage.client("a").await;
    let mut crashed = Raw::attach(stage).await;
    let token = crashed.take().await;
    let shortened = Instant::now();
    crashed.shorten(400).await;
    let guard = soon("its lease ends", client.mutex(stage.name()).lock()).await.expect("granted");
    assert!(guard.token() > token);
    assert!(shortened.elapsed() >= 400 * MS, "not before: {:?}", shortened.elapsed());
    release(guard).await;
}
