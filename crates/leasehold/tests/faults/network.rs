//! Connections that break, stall, or are restored in part.

use std::time::{Duration, Instant};

use leasehold::Released;
use leasehold::seam::Script;
use leasehold_testkit::proxy::{Fault, Requests, Way};
use leasehold_testkit::wait_until;

use crate::common::{
    CLAIM, CLAIM_SLACK, Harness, LONG, NAME, PROMPT, TAKEOVER_SLACK, assert_kept, assert_within_server, await_waiters,
    granted, inboxes, join, lock, script, within,
};

const LEASE: Duration = Duration::from_secs(30);

/// Nothing of a session is lost: its leases, its waiters, and its releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_cut_again_and_again() {
    let (harness, lease) = (Harness::new(), Duration::from_millis(1500));
    let (client, other) = (harness.through(lease).await, harness.beside(LEASE).await);
    let kept = client.mutex(NAME).lock().await.unwrap();
    let theirs = other.mutex("b").lock().await.unwrap();
    let waiting = join(&client, "b", 1).await;
    for round in 1..=5_u64 {
        assert!(harness.proxy.cut_all() >= 1);
        // The inbox is proved again, on a new connection.
        harness.proxy.wait_seen("the session has reconnected", LONG, |seen| seen.count("PUBLISH") > round);
        assert_kept(&kept, lease / 5).await;
    }
    assert!(harness.proxy.seen().cut >= 5);
    assert_kept(&kept, lease).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    let guard = granted(PROMPT, waiting).await;
    assert!(guard.token() > kept.token());
    harness.proxy.cut_all();
    assert_eq!(kept.release().await.unwrap(), Released::Released);
    drop(guard);
    drop(within(PROMPT, "the dropped guard is released", other.mutex("b").lock()).await.unwrap());
}

/// The worst moment: the renewal is in flight. The stalled data arrives when the stall ends, so no caller gets an
/// error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_stalled_for_half_a_lease() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(4));
    let (client, other) = (harness.through(lease).await, harness.beside(LEASE).await);
    let theirs = other.mutex("b").lock().await.unwrap();
    let waiting = join(&client, "b", 1).await;
    let kept = client.mutex(NAME).lock().await.unwrap();
    let renewal = harness.proxy.inject(Fault::hold(script(Script::Renew)).once());
    renewal.wait(1, LONG);
    harness.proxy.stall(Way::Both);
    let new = lock(&client, "c");
    assert_kept(&kept, lease / 2).await;
    assert!(harness.proxy.seen().stalled_requests >= 1, "the stall delayed data: {:?}", harness.proxy.seen());
    harness.proxy.resume();
    renewal.lift();
    assert_kept(&kept, lease).await;
    assert_within_server(&kept, &other).await;
    drop(granted(PROMPT, new).await);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
    assert_eq!(kept.release().await.unwrap(), Released::Released);
}

/// The same, but the stalled connections never recover: TCP alone would keep them for minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_stall_for_ever_are_replaced() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(3));
    let (client, other) = (harness.through(lease).await, harness.beside(LEASE).await);
    let kept = client.mutex(NAME).lock().await.unwrap();
    let theirs = other.mutex("b").lock().await.unwrap();
    let waiting = join(&client, "b", 1).await;
    // From now on all data on the existing connections is lost.
    let opened = harness.proxy.seen().accepted;
    let silent = harness.proxy.inject(Fault::hold(Requests::matching(move |c| c.connection <= opened)));
    assert_kept(&kept, 2 * lease).await;
    assert!(silent.hits() >= 1);
    assert!(harness.proxy.seen().accepted > opened);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
    assert_eq!(within(LONG, "the release", kept.release()).await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn re_subscription_refused_once() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    let refused = harness.proxy.inject(Fault::refuse(Requests::named("SUBSCRIBE"), "NOPERM not now").once());
    assert!(harness.proxy.cut_all() >= 1);
    refused.wait(1, LONG);
    // A probe is sent with each subscription, also with the one that is refused.
    harness.proxy.wait_seen("the session has reconnected", LONG, |seen| seen.count("PUBLISH") == 3);
    wait_until("its inbox is attached", LONG, || inboxes(&harness.server) == 2);
    await_waiters(&other, NAME, 1).await;
    assert_eq!((refused.hits(), inboxes(&harness.server)), (1, 2));
    let released = Instant::now();
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    let guard = granted(PROMPT, waiting).await;
    assert!(released.elapsed() < PROMPT, "by the push: a re-check comes after 4 s at the earliest");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// A subscription that was confirmed but does not deliver is useless: its probe does not arrive. No acquire that may
/// wait is sent then, although the callers' connection is up (P11).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acquire_before_the_inbox_is_proved() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let _renewed = client.mutex("b").lease(Duration::from_secs(1)).lock().await.unwrap();
    let home = harness.home();
    // The probe is the one message that arrives.
    let deaf = harness.proxy.inject(Fault::drop_push().once());
    let cut = harness.proxy.inject(Fault::cut_before(Requests::matching(move |c| c.connection == home)).once());
    deaf.wait(1, LONG);
    assert_eq!((cut.hits(), harness.proxy.seen().cut), (1, 1), "the session's connection, and not the callers'");
    let calls = harness.calls(Script::Acquire).len();
    let waiting = lock(&client, NAME);
    // This request cannot wait in a queue. It uses the callers' connection, and is answered after any acquire that the
    // lock would have sent.
    assert!(client.mutex(NAME).fair().try_lock().await.unwrap().is_none());
    assert_eq!(harness.calls(Script::Acquire).len(), calls + 1, "an acquire that may wait was sent without an inbox");
    // Connecting, greeting and proving have five seconds together. Then the session tries again.
    harness.proxy.wait_seen("another probe", LONG, |seen| seen.count("PUBLISH") == 3);
    await_waiters(&other, NAME, 1).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
}

/// A waiter whose push was lost gets its place back by a re-check (P15). Until then the next waiter waits for a claim
/// at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_lost() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(6));
    let (client, other) = (harness.through(lease).await, harness.beside(lease).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    let lost = harness.proxy.inject(Fault::drop_push().once());
    let released = Instant::now();
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    lost.wait(1, LONG);
    let seen = other.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("granted all the same");
    // A re-check in each third of a lease, and 20 % more.
    let look = lease / 3 * 12 / 10;
    let guard = granted(look + TAKEOVER_SLACK, waiting).await;
    assert!(released.elapsed() <= look + TAKEOVER_SLACK);
    assert!(guard.token() >= seen.token);
    assert_eq!(lost.hits(), 1);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// A push that was lost does not delay the push to a second waiter in another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_lost_costs_the_next_waiter_a_claim() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let first = join(&client, NAME, 1).await;
    let second = join(&other, NAME, 2).await;
    let lost = harness.proxy.inject(Fault::drop_push().once());
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    lost.wait(1, LONG);
    let guard = granted(CLAIM + CLAIM_SLACK, second).await;
    await_waiters(&other, NAME, 1).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, first).await);
    assert_eq!(lost.hits(), 1);
}

/// A fixed lease is never renewed, but its push is claimed once. It lasts as long as requested, counted from the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushed_fixed_lease_lasts_as_long_as_requested() {
    fixed(0).await;
}

/// The same when the push was lost, and a re-check after a reconnect found the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fixed_lease_whose_push_was_lost_lasts_as_long_as_requested() {
    fixed(1).await;
}

async fn fixed(lost_pushes: u64) {
    let (harness, lease) = (Harness::new(), Duration::from_secs(3));
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let mutex = client.mutex(NAME).fixed_lease(lease);
    let waiting = tokio::spawn(async move { mutex.lock().await });
    await_waiters(&other, NAME, 1).await;
    let lost = harness.proxy.inject(Fault::drop_push().times(lost_pushes));
    let released = Instant::now();
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    lost.wait(lost_pushes, LONG);
    if lost_pushes > 0 {
        assert!(harness.proxy.cut_all() >= 1);
    }
    let guard = granted(PROMPT, waiting).await;
    within(LONG, "its end", guard.lost()).await;
    let lasted = released.elapsed();
    assert!(lasted > lease * 9 / 10 && lasted <= lease + PROMPT, "{lasted:?}");
    assert_eq!(lost.hits(), lost_pushes);
}
