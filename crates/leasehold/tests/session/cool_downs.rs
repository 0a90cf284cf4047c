//! Minimum hold (P23): the cool-down that a session asks for when a guard is released earlier.

use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::World;
use leasehold::{ErrorKind, Guard, Mutex, Released};
use leasehold_spec::{Acquire, GrantId, Op, Outcome, Was};

use crate::harness::{Altered, Harness, MS, pause, queued, token};
use crate::store::gone;

const HOLD_MS: u64 = 20_000;

fn mutex(harness: &Harness) -> Mutex {
    harness.leasehold.mutex("name").min_hold(Duration::from_millis(HOLD_MS))
}

/// Locks with a minimum hold, and is granted the lock at once.
async fn locked(harness: &mut Harness) -> (Guard, GrantId) {
    let mutex = mutex(harness);
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (request, Acquire { id, range, .. }) = harness.next_acquire().await;
    assert_eq!(range, 1, "nothing is handed on inside");
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    (locking.await.unwrap().unwrap(), id)
}

/// Returns the length of the cool-down that the request asks for.
fn asked_for(op: &Op, of: GrantId) -> u64 {
    match *op {
        Op::CoolDown { id, used, for_ms } if (id, used) == (of, token(7)) => for_ms,
        ref other => panic!("a cool-down was expected: {other:?}"),
    }
}

#[tokio::test]
async fn p23_a_release_asks_for_the_rest_of_the_minimum_hold() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let (guard, id) = locked(&mut harness).await;
    world.advance(5_000 * MS);
    let releasing = tokio::spawn(guard.release());
    let request = harness.next().await;
    assert_eq!(asked_for(&request.op, id), HOLD_MS - 5_000);
    harness.reply(request, Outcome::Left { was: Was::Granted }, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    pause(50).await;
    harness.expect_no_request();
}

#[tokio::test]
async fn p23_a_dropped_guard_asks_for_the_rest_too() {
    let mut harness = Harness::new().await;
    let (guard, id) = locked(&mut harness).await;
    drop(guard);
    let request = harness.next().await;
    assert!((HOLD_MS - 5_000..=HOLD_MS).contains(&asked_for(&request.op, id)));
}

#[tokio::test]
async fn p23_a_closed_client_asks_for_the_rest_too() {
    let mut harness = Harness::new().await;
    let (_guard, id) = locked(&mut harness).await;
    let closing = tokio::spawn(harness.leasehold.clone().close());
    let request = harness.next().await;
    assert!((HOLD_MS - 5_000..=HOLD_MS).contains(&asked_for(&request.op, id)));
    harness.reply(request, Outcome::Left { was: Was::Granted }, 7);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
}

#[tokio::test]
async fn p23_a_release_after_the_minimum_hold_is_a_release() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let (guard, id) = locked(&mut harness).await;
    world.advance(HOLD_MS * MS);
    drop(guard);
    let request = harness.next_but_renewals().await;
    assert_eq!(request.op, Op::Release { id, token: token(7), used: token(7) });
}

/// The reply is lost. 5 s later the session asks again, for the time that is left by then. When no time is left, it
/// leaves.
#[tokio::test]
async fn p23_a_repeated_cool_down_asks_for_what_is_left() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let (guard, id) = locked(&mut harness).await;
    let releasing = tokio::spawn(guard.release());
    let lost = harness.next().await;
    assert_eq!(asked_for(&lost.op, id), HOLD_MS);
    world.advance(5_000 * MS);
    drop(lost.reply.send(Err(gone())));
    let again = harness.next().await;
    assert_eq!(asked_for(&again.op, id), HOLD_MS - 5_000);
    world.advance((HOLD_MS - 5_000) * MS);
    drop(again.reply.send(Err(gone())));
    let last = harness.next().await;
    assert_eq!(last.op, Op::Leave { id, used: token(7) });
    harness.reply(last, Outcome::Left { was: Was::Absent }, 7);
    // Nobody knows which of the three requests ended the grant.
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// There was nothing to release: the work outlived its lease, and the caller must know this.
#[tokio::test]
async fn p23_a_cool_down_of_nothing_is_not_held() {
    let mut harness = Harness::new().await;
    let (guard, id) = locked(&mut harness).await;
    let releasing = tokio::spawn(guard.release());
    let request = harness.next().await;
    asked_for(&request.op, id);
    harness.reply(request, Outcome::Left { was: Was::Absent }, 9);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
}

/// A failover lost the cool-down. The session repeats it to the new run, for the time that is left.
#[tokio::test]
async fn p23_a_cool_down_is_repeated_to_another_run() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let (guard, id) = locked(&mut harness).await;
    let releasing = tokio::spawn(guard.release());
    let request = harness.next().await;
    harness.reply(request, Outcome::Left { was: Was::Granted }, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    world.advance(3_000 * MS);
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    let again = harness.next().await;
    assert_eq!(asked_for(&again.op, id), HOLD_MS - 3_000);
}

/// A second task of the client waits. It is not handed the lease, because nobody may hold before the time is over.
#[tokio::test]
async fn p23_a_lease_with_a_minimum_hold_is_not_handed_on_inside() {
    let mut harness = Harness::new().await;
    let (guard, id) = locked(&mut harness).await;
    let mutex = mutex(&harness);
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let (request, acquire) = harness.next_acquire().await;
    assert_ne!(acquire.id, id, "it asks the store");
    harness.reply(request, queued(1, 30_000), 7);
    drop(guard);
    let request = harness.next_but(|op| matches!(op, Op::Acquire(_))).await;
    asked_for(&request.op, id);
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test]
async fn a_minimum_hold_out_of_range_is_invalid() {
    let mut harness = Harness::new().await;
    let minute = Duration::from_secs(60);
    let of = || harness.leasehold.mutex("name").min_hold(minute);
    let too_long = [
        (of().max_hold(minute / 2), "a min_hold of 60s is longer than max_hold: use a shorter one"),
        (of().fixed_lease(minute / 2), "a min_hold of 60s is longer than the fixed lease: use a shorter one"),
        (of().min_hold(Duration::MAX), "is longer than 24 h: use a shorter one"),
        (of().sticky(minute), "sticky cannot be combined with"),
    ];
    for (mutex, why) in too_long {
        let error = mutex.lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(why), "{error}");
    }
    harness.expect_no_request();
}

/// Queues the next acquire and pushes its grant. The push is processed on this stack, so the caller has not seen it
/// yet.
async fn granted_unseen(harness: &mut Harness) {
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 7);
    pause(50).await;
    harness.push(id, 8, harness.store.server_us(), 1_000 * MS);
}

async fn expect_release_at_once(harness: &mut Harness) {
    let request = harness.next_but_renewals().await;
    assert!(!matches!(request.op, Op::CoolDown { .. }), "{:?}", request.op);
}

/// The future of `lock` is dropped in the moment in which its lease is granted. No guard ever existed.
#[tokio::test]
async fn p23_an_untaken_grant_does_not_cool_down() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness);
    let locking = tokio::spawn(async move { mutex.lock().await });
    granted_unseen(&mut harness).await;
    locking.abort();
    expect_release_at_once(&mut harness).await;
}

/// The same with `select!`, as a program would do it.
#[tokio::test]
async fn p23_a_select_that_drops_a_granted_lock_does_not_cool_down() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let locking = tokio::spawn(async move {
        tokio::select! {
            biased;
            _ = stopped => None,
            guard = mutex.lock() => Some(guard.unwrap()),
        }
    });
    granted_unseen(&mut harness).await;
    stop.send(()).unwrap();
    assert!(locking.await.unwrap().is_none(), "the caller never had a guard");
    expect_release_at_once(&mut harness).await;
}

/// The client is closed in the moment in which the lease is granted.
#[tokio::test]
async fn p23_a_close_before_the_guard_is_taken_does_not_cool_down() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness);
    let _locking = tokio::spawn(async move { mutex.lock().await });
    granted_unseen(&mut harness).await;
    let _closing = harness.leasehold.clone().close();
    expect_release_at_once(&mut harness).await;
}

/// The lease was lost, so the minimum hold no longer applies to it.
#[tokio::test]
async fn p23_a_lease_that_was_lost_by_time_does_not_cool_down() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness).lease(Duration::from_millis(1_000));
    let locking = tokio::spawn(async move { mutex.lock().await });
    let (request, Acquire { .. }) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 1_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let request = harness.next_but_renewals().await;
    assert!(guard.check().is_err());
    assert!(!matches!(request.op, Op::CoolDown { .. }), "{:?}", request.op);
}

/// The guards of an owner share one lease, and so they share one minimum hold.
#[tokio::test]
async fn p23_a_waiver_counts_for_all_guards_of_its_owner() {
    let mut harness = Harness::new().await;
    let owner = leasehold::Owner::new();
    let mutex = mutex(&harness).owner(&owner);
    let locking = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let worked = locking.await.unwrap().unwrap();
    let idle = mutex.lock().await.unwrap();
    idle.waive_min_hold();
    drop(idle);
    drop(worked);
    let request = harness.next_but_renewals().await;
    assert_eq!(request.op, Op::Release { id, token: token(7), used: token(7) });
}
