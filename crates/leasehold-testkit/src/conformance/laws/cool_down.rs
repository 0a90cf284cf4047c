//! A minimum hold: others are kept out after the guard was released (P23).

use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold, Revoked};
use tokio::task::JoinHandle;

use crate::conformance::Backend;
use crate::conformance::stage::{Stage, eventually, release, soon};

const MS: Duration = Duration::from_millis(1);
const HOLD: Duration = Duration::from_millis(1_500);
/// A waiter is notified when the cool-down ends. Without that it re-checks after 4 s at the earliest, which is too late.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

fn waits(client: &Leasehold, stage: &Stage) -> JoinHandle<Guard> {
    let mutex = client.mutex(stage.name());
    tokio::spawn(async move { mutex.lock().await.expect("granted") })
}

async fn is_served_in_time(waiting: JoinHandle<Guard>, held: Instant, hold: Duration) -> Guard {
    let guard = soon("it is granted", waiting).await.expect("no panic");
    assert_in_time(held.elapsed(), hold);
    guard
}

#[track_caller]
fn assert_in_time(took: Duration, hold: Duration) {
    let in_time = hold - MS..=hold + SERVED_WITHIN;
    assert!(in_time.contains(&took), "granted {took:?} after a guard with a minimum hold of {hold:?}");
}

#[derive(PartialEq)]
enum Next {
    First,
    Second,
}

/// Two clients wait: one since before the release, when the lease had a later end, and one that comes during the
/// cool-down.
pub(super) async fn a_minimum_hold_keeps_others_out(stage: &Stage) {
    let (a, b, c) = (stage.client("a").await, stage.client("b").await, stage.client("c").await);
    let mutex = a.mutex(stage.name()).min_hold(HOLD);
    let guard = mutex.lock().await.expect("granted");
    let (held, token) = (Instant::now(), guard.token());
    let first = waits(&b, stage);
    stage.waiters(&c, 1).await;
    release(guard).await;
    assert!(held.elapsed() < HOLD, "this machine is too slow for the test");
    assert!(mutex.try_lock().await.expect("an answer").is_none(), "nor is it the client's own");
    assert!(c.mutex(stage.name()).try_lock().await.expect("an answer").is_none());
    let seen = stage.inspect(&c).await.holder().cloned().expect("it cools down");
    assert!(seen.is_cooling_down && !seen.is_revoked && seen.label == "a" && seen.remaining <= HOLD, "{seen:?}");
    let (mut first, mut second) = (first, waits(&c, stage));
    // Both ask a quorum at the end of the cool-down, and a quorum promises no order between them.
    let has_order = stage.running().backend() != Backend::Quorum;
    let next = async {
        tokio::select! {
            guard = &mut first => (guard, Next::First),
            guard = &mut second, if !has_order => (guard, Next::Second),
        }
    };
    let (guard, served) = soon("it is granted", next).await;
    let guard = guard.expect("no panic");
    assert_in_time(held.elapsed(), HOLD);
    assert!(guard.token() > token);
    release(guard).await;
    let last = if served == Next::First { second } else { first };
    release(soon("it is granted", last).await.expect("no panic")).await;
}

/// The guard is dropped, and its client is closed: nobody is left.
pub(super) async fn a_minimum_hold_outlives_its_client(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = a.mutex(stage.name()).min_hold(HOLD).lock().await.expect("granted");
    let held = Instant::now();
    drop(guard);
    assert!(a.close().await.unconfirmed().is_empty());
    let waiting = waits(&b, stage);
    release(is_served_in_time(waiting, held, HOLD).await).await;
}

/// A client is closed while its guard still exists: the lease cools down, too.
pub(super) async fn closing_keeps_a_minimum_hold(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = a.mutex(stage.name()).min_hold(HOLD).lock().await.expect("granted");
    let held = Instant::now();
    assert!(a.close().await.unconfirmed().is_empty());
    drop(guard);
    let waiting = waits(&b, stage);
    release(is_served_in_time(waiting, held, HOLD).await).await;
}

pub(super) async fn a_minimum_hold_that_is_over_is_none(stage: &Stage) {
    const SHORT: Duration = Duration::from_millis(200);
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = a.mutex(stage.name()).min_hold(SHORT).lock().await.expect("granted");
    tokio::time::sleep(SHORT).await;
    release(guard).await;
    let free = async || stage.inspect(&b).await.holder().is_none();
    assert!(free().await, "it is free when the release is answered");
    release(b.mutex(stage.name()).try_lock().await.expect("an answer").expect("granted")).await;
}

/// The minimum hold is longer than the test waits.
pub(super) async fn a_revocation_ends_a_cool_down(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = a.mutex(stage.name()).min_hold(Duration::from_secs(5)).lock().await.expect("granted");
    release(guard).await;
    let waiting = waits(&b, stage);
    stage.waiters(&a, 1).await;
    let seen = stage.inspect(&b).await.holder().cloned().expect("it cools down");
    let revoked = b.mutex(stage.name()).revoke(&seen, Duration::from_secs(5)).await.expect("an answer");
    assert_eq!(revoked, Revoked::Within(Duration::ZERO), "nobody works, so nobody needs the grace");
    let ended = Instant::now();
    let guard = soon("it is granted", waiting).await.expect("no panic");
    assert!(ended.elapsed() <= SERVED_WITHIN, "{:?}", ended.elapsed());
    assert!(guard.token() > seen.token);
    release(guard).await;
}

/// An operator who revokes has a reason: a revoked lease is free once it is released.
pub(super) async fn a_revoked_lease_does_not_cool_down(stage: &Stage) {
    let (a, b) = (stage.client("a").await, stage.client("b").await);
    let guard = a.mutex(stage.name()).min_hold(Duration::from_secs(20)).lock().await.expect("granted");
    let seen = stage.inspect(&b).await.holder().cloned().expect("held");
    let _ = b.mutex(stage.name()).revoke(&seen, Duration::from_secs(5)).await.expect("an answer");
    soon("it is notified", guard.lost()).await;
    drop(guard);
    eventually("it is free", async || stage.inspect(&b).await.holder().is_none()).await;
}
