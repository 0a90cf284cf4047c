//! Condition variables: when the lock is released and acquired again, and when a waiter wakes up (P41 to P43).

use std::time::{Duration, Instant};

use leasehold::{Condvar, ErrorKind, Guard, LostReason, Woken};
use leasehold_spec::{Acquire, GrantId, Joined, LostHow, Op, Outcome, Take, Was};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::harness::{Harness, MS, pause, queued, token};
use crate::store::{Request, gone};

const LEASE_MS: u64 = 30_000;
/// With this lease a waiter re-checks about every 100 ms.
const SHORT_MS: u64 = 300;
const TICKET: u64 = 42;

type Waiting = JoinHandle<leasehold::Result<(Guard, Woken)>>;

fn stays(ticket: u64, joined: Joined) -> Outcome {
    Outcome::Queued { ticket, left_us: 0, joined }
}

fn granted(number: u64) -> Outcome {
    Outcome::Granted { token: token(number), left_us: LEASE_MS * MS, range: 1 }
}

fn condvar(harness: &Harness, lease_ms: u64) -> Condvar {
    harness.leasehold.condvar("name").lease(Duration::from_millis(lease_ms))
}

/// Begins to wait with a lock that is held with token 7. Returns the request to the condition variable as well.
async fn begin(harness: &mut Harness, lease_ms: u64, within: Duration) -> (Waiting, Request, Acquire) {
    let guard = harness.locked_as("lock", LEASE_MS, 7).await;
    let condvar = condvar(harness, lease_ms);
    let waiting = tokio::spawn(async move { condvar.wait_for(guard, within).await });
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!(acquire.take, Take::NOTIFICATION);
    (waiting, request, acquire)
}

/// Begins to wait, until the lock is released.
async fn waits(harness: &mut Harness, lease_ms: u64) -> (Waiting, GrantId) {
    waits_for(harness, lease_ms, Duration::from_secs(600)).await
}

async fn waits_for(harness: &mut Harness, lease_ms: u64, within: Duration) -> (Waiting, GrantId) {
    let (waiting, request, Acquire { id, .. }) = begin(harness, lease_ms, within).await;
    harness.reply(request, stays(TICKET, Joined::Now), 7);
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 7);
    (waiting, id)
}

fn notify(harness: &Harness, id: GrantId) {
    harness.push(id, 9, harness.store.server_us(), 1_000 * MS);
}

/// Returns the request by which the waiter acquires its lock again. Leaves of the condition variable are answered.
async fn relock(harness: &mut Harness, waiter: GrantId) -> Request {
    loop {
        let request = next_and_renew(harness).await;
        match &request.op {
            Op::Acquire(Acquire { take: Take::MUTEX, .. }) => return request,
            Op::Leave { id, .. } if *id == waiter => {
                harness.reply(request, Outcome::Left { was: Was::Queued }, 9);
            }
            // A new run may have forgotten that the lock was released.
            Op::Leave { used, .. } if *used == token(7) => {
                harness.reply(request, Outcome::Left { was: Was::Absent }, 9);
            }
            other => panic!("not the lock: {other:?}"),
        }
    }
}

async fn next_and_renew(harness: &mut Harness) -> Request {
    loop {
        let request = harness.next().await;
        if !matches!(request.op, Op::Renew(_)) {
            return request;
        }
        harness.reply(request, Outcome::Renewed { left_us: LEASE_MS * MS }, 9);
    }
}

/// Grants the lock, and returns the result of the wait.
async fn ends(harness: &Harness, lock: Request, waiting: Waiting) -> (Guard, Woken) {
    harness.reply(lock, granted(12), 12);
    let (guard, woken) = timeout(Duration::from_secs(5), waiting).await.expect("woken").unwrap().unwrap();
    assert_eq!(guard.check(), Ok(token(12)));
    (guard, woken)
}

/// The release is sent on another connection than the acquire, and may arrive first. The next holder would notify nobody.
#[tokio::test]
async fn p41_the_lock_is_held_until_the_waiter_stands_in_the_queue() {
    let mut harness = Harness::new().await;
    let (waiting, request, _) = begin(&mut harness, LEASE_MS, Duration::from_secs(600)).await;
    pause(100).await;
    harness.expect_no_request();
    harness.reply(request, stays(TICKET, Joined::Now), 7);
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { token: of, .. } if of == token(7)), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 7);
    assert!(!waiting.is_finished());
}

/// The receiver of a notification may die before it has the lock. Until then the notification can pass on.
#[tokio::test]
async fn p42_a_notification_is_spent_once_the_lock_is_held() {
    let mut harness = Harness::new().await;
    let (waiting, id) = waits(&mut harness, LEASE_MS).await;
    notify(&harness, id);
    let lock = relock(&mut harness, id).await;
    pause(100).await;
    while let Some(request) = harness.try_next() {
        assert!(matches!(request.op, Op::Renew(_)), "{:?}", request.op);
        harness.reply(request, Outcome::Renewed { left_us: LEASE_MS * MS }, 9);
    }
    assert!(!waiting.is_finished());
    let (_guard, woken) = ends(&harness, lock, waiting).await;
    assert_eq!(woken, Woken::Notified);
    let spend = next_and_renew(&mut harness).await;
    assert_eq!(spend.op, Op::Spend { id, token: token(9) });
    harness.reply(spend, Outcome::Spent, 9);
    pause(50).await;
    harness.expect_no_request();
}

/// A spend without a reply is repeated.
#[tokio::test]
async fn p42_a_spend_is_repeated_until_it_has_a_reply() {
    let mut harness = Harness::new().await;
    let (waiting, id) = waits(&mut harness, LEASE_MS).await;
    notify(&harness, id);
    let lock = relock(&mut harness, id).await;
    let _held = ends(&harness, lock, waiting).await;
    let spend = next_and_renew(&mut harness).await;
    drop(spend.reply.send(Err(gone())));
    let again = next_and_renew(&mut harness).await;
    assert_eq!(again.op, Op::Spend { id, token: token(9) });
    harness.reply(again, Outcome::Spent, 9);
}

/// A wait whose future is dropped passes its notification on, in each phase.
#[tokio::test]
async fn p42_a_dropped_wait_passes_its_notification_on() {
    // While it enters the queue: the lock goes back, and the entry.
    let mut harness = Harness::new().await;
    let (waiting, request, Acquire { id, .. }) = begin(&mut harness, LEASE_MS, Duration::from_secs(600)).await;
    waiting.abort();
    let mut ended = [false, false];
    harness.reply_if_heard(request, stays(TICKET, Joined::Now), 7);
    while ended != [true, true] {
        let request = next_and_renew(&mut harness).await;
        match request.op {
            Op::Leave { id: left, .. } if left == id => ended[0] = true,
            Op::Release { token: of, .. } if of == token(7) => ended[1] = true,
            ref other => panic!("unexpected: {other:?}"),
        }
        let outcome =
            if matches!(request.op, Op::Leave { .. }) { Outcome::Left { was: Was::Queued } } else { Outcome::Released };
        harness.reply(request, outcome, 7);
    }
    // While it stands in the queue.
    let mut harness = Harness::new().await;
    let (waiting, id) = waits(&mut harness, LEASE_MS).await;
    pause(100).await;
    waiting.abort();
    assert_eq!(harness.next_leave().await.1, id);
    // While it acquires the lock, with a notification in hand.
    let mut harness = Harness::new().await;
    let (waiting, id) = waits(&mut harness, LEASE_MS).await;
    notify(&harness, id);
    let lock = relock(&mut harness, id).await;
    waiting.abort();
    drop(lock);
    loop {
        let request = next_and_renew(&mut harness).await;
        match request.op {
            Op::Release { id: of, token: with, .. } if (of, with) == (id, token(9)) => break,
            Op::Leave { .. } => harness.reply(request, Outcome::Left { was: Was::Absent }, 9),
            ref other => panic!("unexpected: {other:?}"),
        }
    }
}

/// The waiter was dropped from the queue, and its re-check has put it there again: it may have missed a notification.
#[tokio::test]
async fn p43_a_waiter_that_enters_the_queue_again_wakes_up() {
    let mut harness = Harness::new().await;
    let (waiting, id) = waits(&mut harness, SHORT_MS).await;
    let (recheck, acquire) = harness.next_acquire().await;
    assert_eq!(acquire.id, id);
    harness.reply(recheck, stays(TICKET, Joined::Before), 7);
    let (recheck, _) = harness.next_acquire().await;
    harness.reply(recheck, stays(TICKET + 1, Joined::Now), 8);
    let lock = relock(&mut harness, id).await;
    let (_guard, woken) = ends(&harness, lock, waiting).await;
    assert_eq!(woken, Woken::Notified);
}

/// The reply to that re-check is lost. The next re-check finds the waiter in the queue, in another place.
#[tokio::test]
async fn p43_a_waiter_in_another_place_wakes_up() {
    let mut harness = Harness::new().await;
    let (waiting, id) = waits(&mut harness, SHORT_MS).await;
    let (recheck, _) = harness.next_acquire().await;
    drop(recheck.reply.send(Err(gone())));
    let (recheck, _) = harness.next_acquire().await;
    harness.reply(recheck, stays(TICKET + 1, Joined::Before), 8);
    let lock = relock(&mut harness, id).await;
    let _held = ends(&harness, lock, waiting).await;
}

/// A failover may have forgotten a notification that was acknowledged, and kept the entry.
#[tokio::test]
async fn p43_a_waiter_wakes_up_at_a_new_run() {
    let mut harness = Harness::new().await;
    let (waiting, id) = waits(&mut harness, LEASE_MS).await;
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    let lock = relock(&mut harness, id).await;
    let _held = ends(&harness, lock, waiting).await;
}

/// The time is over: the waiter leaves, and the lock is held again. A leave passes a notification on that came just then.
#[tokio::test]
async fn a_wait_that_times_out_holds_the_lock() {
    let mut harness = Harness::new().await;
    let (waiting, id) = waits_for(&mut harness, LEASE_MS, Duration::from_millis(50)).await;
    let mut has_left = false;
    let lock = loop {
        let request = next_and_renew(&mut harness).await;
        match &request.op {
            Op::Acquire(Acquire { take: Take::MUTEX, .. }) if has_left => break request,
            Op::Leave { id: left, .. } if *left == id => {
                has_left = true;
                harness.reply(request, Outcome::Left { was: Was::Granted }, 9);
            }
            Op::Acquire(_) => harness.reply(request, queued(50, 60_000), 9),
            other => panic!("unexpected: {other:?}"),
        }
    };
    let (_guard, woken) = ends(&harness, lock, waiting).await;
    assert_eq!(woken, Woken::TimedOut);
}

/// The lock is lost before the waiter stands in the queue. Its knowledge of the state may be old.
#[tokio::test]
async fn a_wait_with_a_lost_lock_is_an_error() {
    let mut harness = Harness::new().await;
    let guard = harness.locked_as("lock", SHORT_MS, 7).await;
    let condvar = condvar(&harness, LEASE_MS);
    let waiting = tokio::spawn(async move { condvar.wait(guard).await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    let renewal = harness.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)));
    harness.reply(renewal, Outcome::Lost { how: LostHow::NotHeld }, 9);
    let error = timeout(Duration::from_secs(5), waiting).await.expect("told").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    drop(request);
    assert_eq!(harness.next_leave().await.1, id);
}

/// The release finds that the lock was not held any more: others may have changed the state before the waiter stood in the
/// queue.
#[tokio::test]
async fn a_lock_that_was_not_held_at_its_release_is_an_error() {
    let mut harness = Harness::new().await;
    let (waiting, request, Acquire { id, .. }) = begin(&mut harness, LEASE_MS, Duration::from_secs(600)).await;
    harness.reply(request, stays(TICKET, Joined::Now), 7);
    let release = harness.next().await;
    harness.reply(release, Outcome::NotHeld, 9);
    let error = timeout(Duration::from_secs(5), waiting).await.expect("told").unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(harness.next_leave().await.1, id);
}

/// Nobody holds a condition variable, so there is no lease whose end a waiter could await. It asks at its usual pace.
#[tokio::test]
async fn a_waiter_without_a_holder_asks_at_its_pace() {
    let mut harness = Harness::new().await;
    let (_waiting, _) = waits(&mut harness, SHORT_MS).await;
    let began = Instant::now();
    for _ in 0..5 {
        let (recheck, _) = harness.next_acquire().await;
        harness.reply(recheck, stays(TICKET, Joined::Before), 7);
    }
    assert!(began.elapsed() >= Duration::from_millis(5 * SHORT_MS / 3 * 7 / 10), "{:?}", began.elapsed());
}

/// A guard that shares its lease with another one of its owner would not release it.
#[tokio::test]
async fn a_guard_that_shares_its_lease_cannot_wait() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("lock").owner(&leasehold::Owner::new());
    let locking = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, granted(7), 7);
    let (outer, inner) = (locking.await.unwrap().unwrap(), mutex.lock().await.unwrap());
    let error = condvar(&harness, LEASE_MS).wait(inner).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(outer.check(), Ok(token(7)));
    harness.expect_no_request();
    // Alone it can.
    let condvar = condvar(&harness, LEASE_MS);
    let lost = outer.lost();
    let waiting = tokio::spawn(async move { condvar.wait(outer).await });
    let (request, Acquire { id, .. }) = harness.next_acquire().await;
    harness.reply(request, stays(TICKET, Joined::Now), 7);
    let release = harness.next().await;
    harness.reply(release, Outcome::Released, 7);
    assert_eq!(lost.await.reason(), LostReason::Released);
    notify(&harness, id);
    let lock = relock(&mut harness, id).await;
    harness.reply(lock, granted(12), 12);
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(mutex.lock().await.unwrap().token(), guard.token(), "it is the owner's again");
}

/// The first notification was executed, and its reply was lost. The later tries were not even sent.
#[tokio::test]
async fn a_notification_whose_first_reply_was_lost_may_have_acted() {
    let mut harness = Harness::new().await;
    // The client waits for 2 s for a reply, and tries again for the rest of the lease.
    let condvar = condvar(&harness, 3_000);
    let notifying = tokio::spawn(async move { condvar.notify_one().await });
    let unanswered = harness.next().await;
    assert_eq!(unanswered.op, Op::Notify { count: 1 });
    pause(1_000).await;
    harness.store.go_away();
    let error = timeout(Duration::from_secs(10), notifying).await.expect("it ends").unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Unreachable && error.may_have_acted(), "{error}");
}
