//! The order in which releases, leaves and acquires are sent: no request overtakes a request that ends its predecessor,
//! and a session does not contend with itself.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::seam::Message;
use leasehold::{Guard, Released};
use leasehold_spec::{Acquire, GrantId, Name, Op, Outcome, Was};
use tokio::sync::oneshot;

use crate::harness::{Altered, Harness, MS, queued, token};

/// Returns a guard whose lease was pushed while the session's thread was about to send a re-check. The thread has noted
/// the re-check, and stops before it sends it until the sender is used.
async fn held_before_its_recheck(harness: &mut Harness) -> (Guard, GrantId, std::sync::mpsc::Sender<()>) {
    let locking = harness.lock(30_000);
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    let (at_the_gap, is_at_the_gap) = oneshot::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    let at_the_gap = Mutex::new(Some((at_the_gap, may_go_on)));
    *harness.store.on_ask.lock().unwrap() = Some(Arc::new(move |op: &Op| {
        let first = at_the_gap.lock().unwrap().take_if(|_| matches!(op, Op::Acquire(_)));
        if let Some((at_the_gap, may_go_on)) = first {
            at_the_gap.send(()).unwrap();
            may_go_on.recv_timeout(Duration::from_secs(10)).unwrap();
        }
    }));
    harness.send_message(Message::Recheck(Name::new("name").unwrap()));
    is_at_the_gap.await.unwrap();
    harness.push_range(id, 8, 4);
    (locking.await.unwrap().unwrap(), id, go_on)
}

/// The caller releases at once. A leave before the re-check would end the grant, and the re-check would then be granted
/// a lease that nobody holds.
#[tokio::test]
async fn p14_a_release_waits_for_a_recheck_that_the_thread_has_not_sent_yet() {
    let mut harness = Harness::new().await;
    let (guard, id, go_on) = held_before_its_recheck(&mut harness).await;
    let mut releasing = Box::pin(guard.release());
    assert!(releasing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    harness.expect_no_request();
    go_on.send(()).unwrap();
    let (recheck, again) = harness.next_acquire().await;
    let (leave, left) = harness.next_leave().await;
    assert_eq!((again.id, left, leave.link), (id, id, recheck.link), "behind the request that it ends");
    harness.reply(recheck, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 4 }, 11);
    harness.reply(leave, Outcome::Left { was: Was::Granted }, 8);
    assert_eq!(releasing.await.unwrap(), Released::Released);
    let mut closing = pin!(harness.leasehold.clone().close());
    let closed = loop {
        tokio::select! {
            closed = &mut closing => break closed,
            // Two tasks receive the two replies. In the other order the first reply belongs to a closed attempt.
            (leave, left) = harness.next_leave() => {
                assert_eq!(left, id);
                harness.reply(leave, Outcome::Left { was: Was::Absent }, 8);
            }
        }
    };
    assert!(closed.unconfirmed().is_empty());
}

/// The same when the guard is dropped and its caller tries again: the early leave is not sent before the re-check
/// either.
#[tokio::test]
async fn p14_an_early_leave_waits_for_a_recheck_that_the_thread_has_not_sent_yet() {
    let mut harness = Harness::new().await;
    let (guard, id, go_on) = held_before_its_recheck(&mut harness).await;
    drop(guard);
    let mutex = harness.leasehold.mutex("name");
    let mut trying = Box::pin(async move { mutex.try_lock().await });
    assert!(trying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let trying = tokio::spawn(trying);
    harness.expect_no_request();
    go_on.send(()).unwrap();
    let (recheck, again) = harness.next_acquire().await;
    let (leave, left) = harness.next_leave().await;
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!((again.id, left), (id, id));
    assert_ne!(acquire.id, id);
    assert_eq!((leave.link, request.link), (recheck.link, recheck.link), "only one connection keeps their order");
    harness.reply(recheck, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 4 }, 11);
    harness.reply(leave, Outcome::Left { was: Was::Granted }, 8);
    harness.reply(request, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 4 }, 12);
    assert_eq!(trying.await.unwrap().unwrap().expect("no other client contends").token(), token(9));
}

/// A `try_lock` after a drop must not get "busy" from its own session: the release is sent first, on the same
/// connection.
#[tokio::test]
async fn p16_a_dropped_guard_is_released_before_its_session_asks_again() {
    const LANE: usize = 1;
    let mut harness = Harness::new().await;
    let (plain, other) =
        (harness.leasehold.mutex("name"), harness.leasehold.mutex("name").lease(Duration::from_secs(10)));
    let granted = |number| Outcome::Granted { token: token(number), left_us: 10_000 * MS, range: 4 };
    let polled = |mutex: &leasehold::Mutex| {
        let mutex = mutex.clone();
        let mut trying = Box::pin(async move { mutex.try_lock().await });
        assert!(trying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tokio::spawn(trying)
    };

    // Either side may send it: the drop wakes the thread, and the thread may be first.
    for number in (10..2_000).step_by(10) {
        let guard = harness.locked(30_000, number).await;
        drop(guard);
        let trying = polled(if number % 20 == 0 { &plain } else { &other });
        let release = harness.next().await;
        assert!(matches!(release.op, Op::Release { token: of, .. } if of == token(number)), "{:?}", release.op);
        let (request, _) = harness.next_acquire().await;
        assert_eq!(request.link, release.link, "only one connection keeps their order");
        harness.expect_no_request();
        harness.reply(release, Outcome::Released, number);
        harness.reply(request, granted(number + 1), number + 1);
        let guard = trying.await.unwrap().unwrap().expect("no other client contends");
        let releasing = tokio::spawn(guard.release());
        let release = harness.next().await;
        assert_eq!(release.link, LANE);
        harness.reply(release, Outcome::Released, number + 1);
        let _released = releasing.await.unwrap().unwrap();
    }

    // A release that was sent is not repeated, and the request uses the same connection.
    drop(harness.locked(30_000, 3_000).await);
    let release = harness.next().await;
    let trying = polled(&plain);
    let (request, _) = harness.next_acquire().await;
    assert_eq!(request.link, release.link);
    harness.reply(release, Outcome::Released, 3_000);
    harness.reply(request, granted(3_001), 3_001);
    let guard = trying.await.unwrap().unwrap().expect("no other client contends");
    harness.expect_no_request();
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    harness.reply(release, Outcome::Released, 3_001);
    let _released = releasing.await.unwrap().unwrap();

    // A kept lease is in the way of a request with other terms.
    let keeps = plain.clone().sticky(Duration::from_secs(60));
    let locking = tokio::spawn(async move { keeps.lock().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, granted(4_000), 4_000);
    drop(locking.await.unwrap().unwrap());
    harness.expect_no_request();
    let trying = polled(&other);
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(4_001)), "{:?}", release.op);
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!((request.link, release.link), (LANE, LANE), "the caller sends both");

    // The caller gives up before either request is answered: the thread handles both.
    trying.abort();
    let (mut repeated, mut left) = (false, false);
    while !repeated || !left {
        let again = harness.next().await;
        repeated |= again.op == release.op;
        left |= matches!(again.op, Op::Leave { id, .. } if id == acquire.id);
    }
}

/// The same when an acquire is unanswered, so the session sends a leave and no release.
#[tokio::test]
async fn p16_a_leave_is_sent_before_its_session_asks_again() {
    let mut harness = Harness::new().await;
    let mut unanswered = Vec::new();
    for number in (10..1_000).step_by(10) {
        let locking = harness.lock(30_000);
        let (request, Acquire { id, .. }) = harness.next_acquire().await;
        harness.push_range(id, number, 4);
        drop(locking.await.unwrap().unwrap());
        let mutex = harness.leasehold.mutex("name");
        let mut trying = Box::pin(async move { mutex.try_lock().await });
        assert!(trying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let trying = tokio::spawn(trying);
        let (left, of) = harness.next_leave().await;
        assert_eq!((of, left.link), (id, request.link), "behind the request that it ends");
        let (again, _) = harness.next_acquire().await;
        assert_eq!(again.link, left.link, "only one connection keeps their order");
        harness.expect_no_request();
        harness.reply(left, Outcome::Left { was: Was::Granted }, number);
        harness.reply(again, Outcome::Granted { token: token(number + 1), left_us: 30_000 * MS, range: 4 }, number + 1);
        let guard = trying.await.unwrap().unwrap().expect("no other client contends");
        let releasing = tokio::spawn(guard.release());
        let release = harness.next().await;
        harness.reply(release, Outcome::Released, number + 1);
        let _released = releasing.await.unwrap().unwrap();
        unanswered.push(request);
    }
}

/// The session's thread is in the middle of a turn, and sees changes only at the end of it. A request that became due
/// meanwhile is sent then, and not after the shortest sleep.
#[tokio::test]
async fn a_guard_dropped_during_a_turn_is_released_without_a_sleep() {
    const NOT_YET: usize = usize::MAX;
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<_>).await;
    let dropped = Mutex::new(Some(harness.locked(30_000, 7).await));
    let _renewed = harness.locked(3_000, 8).await;
    let (at_drop, at_release) = (Arc::new(AtomicUsize::new(NOT_YET)), Arc::new(AtomicUsize::new(NOT_YET)));
    let (dropping, releasing) = (Arc::clone(&at_drop), Arc::clone(&at_release));
    *harness.store.on_ask.lock().unwrap() = Some(Arc::new(move |op: &Op| {
        let naps = world.naps.load(Ordering::SeqCst);
        match op {
            // Within the turn in which the renewal was due.
            Op::Renew(_) => {
                if let Some(guard) = dropped.lock().unwrap().take() {
                    dropping.store(naps, Ordering::SeqCst);
                    drop(guard);
                }
            }
            Op::Release { .. } => releasing.store(naps, Ordering::SeqCst),
            _ => {}
        }
    }));
    let released = harness.next_but_renewals().await;
    assert!(matches!(released.op, Op::Release { .. }), "{:?}", released.op);
    assert_ne!(at_drop.load(Ordering::SeqCst), NOT_YET);
    assert_eq!(at_release.load(Ordering::SeqCst), at_drop.load(Ordering::SeqCst), "it slept before the release");
}
