//! Releases and leaves: how a session returns a grant, repeats the request if necessary, and when it stops.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use leasehold::{LostReason, Released};
use leasehold_spec::{Contention, Delivery, Event, LostHow, Op, Outcome, Renew, Rest, Token, Was};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::harness::{Harness, MS, pause, queued, token};
use crate::store::gone;

#[tokio::test]
async fn p13_an_unanswered_release_is_repeated_on_the_next_link() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = harness.next().await;
    drop(first.reply.send(Err(gone())));
    let second = harness.next().await;
    assert_eq!(second.op, first.op);
    harness.reply(second, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// A release was executed, and its reply was lost. Another client has released since, so the record remembers that
/// release, and the repetition finds nothing. That does not mean that the work has outlived its lease.
#[tokio::test]
async fn p3_a_repeated_release_that_finds_nothing_proves_no_loss() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = harness.next().await;
    drop(first.reply.send(Err(gone())));
    let second = harness.next().await;
    harness.reply(second, Outcome::NotHeld, 9);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    // If a release was sent once and answered, the reply is true.
    let guard = harness.locked(30_000, 10).await;
    let releasing = tokio::spawn(guard.release());
    let only = harness.next().await;
    harness.reply(only, Outcome::NotHeld, 12);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
}

/// The reply to an acquire was lost with its connection, long ago. A leave would end any later grant of that acquire,
/// but cannot report that the lease had been lost before.
#[tokio::test]
async fn p14_an_acquire_that_is_too_late_to_be_carried_out_is_forgotten() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(3_000);
    let (lost, acquire) = harness.next_acquire().await;
    drop(lost.reply.send(Err(gone())));
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 3_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    while harness.store.server_us() <= acquire.not_after_us + 1_000 * MS {
        let renewal = harness.next().await;
        assert!(matches!(renewal.op, Op::Renew(_)), "{:?}", renewal.op);
        harness.reply(renewal, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    }
    let releasing = tokio::spawn(guard.release());
    let release = harness.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(7), used: token(7) });
    harness.reply(release, Outcome::NotHeld, 9);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
}

/// A failover can bring back a state in which the attempt still waited. If it is an upgrade, the release of another reader
/// grants it anew, for a whole lease. A release of the old token would not find that grant. The next failover can bring it
/// back again.
#[tokio::test]
async fn p13_each_later_run_gets_a_leave_of_what_was_released() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    let Op::Release { id, token, used } = release.op else { panic!("{:?}", release.op) };
    assert_eq!(used, token);
    harness.reply(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    for (run, was) in
        [("second", Was::Granted), ("third", Was::Absent), ("fourth", Was::Queued), ("fifth", Was::Absent)]
    {
        *harness.store.run.lock().unwrap() = run.into();
        harness.break_session_link();
        let again = harness.next().await;
        assert_eq!(again.op, Op::Leave { id, used }, "the {run} run");
        harness.reply(again, Outcome::Left { was }, 7);
        pause(50).await;
        harness.expect_no_request();
    }
}

/// The same, and the first run did not answer the release.
#[tokio::test]
async fn p13_a_later_run_gets_a_leave_for_a_release_without_an_answer() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    let Op::Release { id, .. } = release.op else { panic!("{:?}", release.op) };
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    drop(release);
    let leave = harness.next().await;
    assert_eq!(leave.op, Op::Leave { id, used: token(7) });
    harness.reply(leave, Outcome::Left { was: Was::Absent }, 9);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released, "the first run may have done it");
}

/// A grant is held while the store fails over. The new run may have brought back an earlier state, unless it confirms the
/// grant.
#[tokio::test]
async fn p13_a_grant_that_a_later_run_has_not_confirmed_is_left() {
    for is_confirmed in [false, true] {
        let mut harness = Harness::new().await;
        let guard = harness.locked(3_000, 7).await;
        *harness.store.run.lock().unwrap() = "second".into();
        harness.break_session_link();
        let renewal = harness.next().await;
        let Op::Renew(Renew { id, .. }) = renewal.op else { panic!("{:?}", renewal.op) };
        if is_confirmed {
            harness.reply(renewal, Outcome::Renewed { left_us: 3_000 * MS }, 7);
            pause(50).await;
        } else {
            harness.reply(renewal, Outcome::Lost { how: LostHow::NotHeld }, 9);
            assert_eq!(guard.lost().await.reason(), LostReason::Superseded);
        }
        drop(guard);
        let end = harness.next().await;
        let (token, used) = (token(7), token(7));
        assert_eq!(end.op, if is_confirmed { Op::Release { id, token, used } } else { Op::Leave { id, used } });
    }
}

/// A leave that ended a grant is equivalent to a release.
#[tokio::test]
async fn p13_a_leave_is_repeated_to_another_run() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (_asked, acquire) = harness.next_acquire().await;
    locking.abort();
    let (leave, _) = harness.next_leave().await;
    harness.reply(leave, Outcome::Left { was: Was::Granted }, 7);
    pause(50).await;
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    let (_, again) = harness.next_leave().await;
    assert_eq!(again, acquire.id);
}

/// A failover can lose a revocation. Then only this session can end the grant that the revocation had ended.
#[tokio::test]
async fn p13_a_release_of_a_revoked_grant_is_repeated_to_another_run() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    harness.deliver(Delivery {
        to: acquire.id.session,
        now_us: harness.store.server_us(),
        contention: Contention::None,
        rest: Rest::Done,
        id: acquire.id,
        token: token(7),
        left_us: 0,
        event: Event::Revoked,
        range: 1,
    });
    assert_eq!(guard.lost().await.reason(), LostReason::Revoked);
    drop(guard);
    pause(50).await;
    harness.expect_no_request();
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    assert_eq!(harness.next().await.op, Op::Leave { id: acquire.id, used: token(7) });
}

/// The same while a re-check is unanswered: the guard is returned by a leave, and the leave finds that the revocation
/// was first.
#[tokio::test]
async fn p13_a_leave_of_a_revoked_grant_is_repeated_to_another_run() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(3_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(42, 60_000), 6);
    let (recheck, _) = harness.next_acquire().await;
    harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    harness.deliver(Delivery {
        to: acquire.id.session,
        now_us: harness.store.server_us(),
        contention: Contention::None,
        rest: Rest::Done,
        id: acquire.id,
        token: token(8),
        left_us: 0,
        event: Event::Revoked,
        range: 1,
    });
    assert_eq!(guard.lost().await.reason(), LostReason::Revoked);
    drop(guard);
    let (leave, id) = harness.next_leave().await;
    assert_eq!(id, acquire.id);
    harness.reply(leave, Outcome::Left { was: Was::Absent }, 8);
    drop(recheck.reply.send(Ok(harness.answer(Outcome::Gone, 8))));
    pause(50).await;
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    let (_, again) = harness.next_leave().await;
    assert_eq!(again, acquire.id);
}

/// The reply to the leave that ended the grant was lost. The next leave finds nothing, possibly for that reason.
#[tokio::test]
async fn p13_a_leave_without_a_reply_is_repeated_to_another_run() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    locking.abort();
    let (unheard, _) = harness.next_leave().await;
    drop(request.reply.send(Err(gone())));
    drop(unheard.reply.send(Err(gone())));
    loop {
        let (leave, id) = harness.next_leave().await;
        assert_eq!(id, acquire.id);
        let answered_us = harness.store.server_us();
        harness.reply(leave, Outcome::Left { was: Was::Absent }, 7);
        if answered_us > acquire.not_after_us {
            break;
        }
    }
    pause(50).await;
    harness.expect_no_request();
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    let (_, again) = harness.next_leave().await;
    assert_eq!(again, acquire.id);
}

#[tokio::test]
async fn p14_an_unanswered_attempt_is_closed_only_beyond_its_not_after() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    locking.abort();
    // The connection of the acquire breaks while the acquire is in flight: the store may still execute it.
    harness.store.links()[request.link].closed.store(true, Ordering::SeqCst);
    drop(request.reply.send(Err(gone())));
    let begun = Instant::now();
    let mut leaves = 0;
    loop {
        let (leave, id) = harness.next_leave().await;
        assert_eq!(id, acquire.id);
        leaves += 1;
        assert!(leaves < 20, "the leaves never stop");
        let answered_us = harness.store.server_us();
        harness.reply(leave, Outcome::Left { was: Was::Absent }, 7);
        if answered_us > acquire.not_after_us {
            break;
        }
    }
    assert!(leaves >= 2 && begun.elapsed() > Duration::from_millis(1_500), "{leaves} leaves in {:?}", begun.elapsed());
    assert!(harness.leasehold.close().await.unconfirmed().is_empty());
}

/// A caller is stopped when its attempt is noted and its acquire is not sent yet. The client is closed meanwhile. The
/// leave is sent first and finds nothing, so it has to be repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_a_leave_before_an_unsent_acquire_is_repeated() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    // Without a lane the caller uses the session's connection, and a new lane is opened: between the two steps.
    harness.store.links()[1].closed.store(true, Ordering::SeqCst);
    let (at_the_gap, is_at_the_gap) = oneshot::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    *harness.store.on_open.lock().unwrap() = Some(Box::new(move || {
        at_the_gap.send(()).unwrap();
        may_go_on.recv().unwrap();
    }));
    let locking = harness.lock_apart(30_000);
    is_at_the_gap.await.unwrap();
    let closing = tokio::spawn(harness.leasehold.clone().close());
    // The guard's release is not answered for now, so the session lives on.
    let (mut leave, mut release) = (harness.next().await, harness.next().await);
    if matches!(leave.op, Op::Release { .. }) {
        std::mem::swap(&mut leave, &mut release);
    }
    let left = leave.op.clone();
    harness.reply(leave, Outcome::Left { was: Was::Absent }, 7);
    pause(50).await;
    go_on.send(()).unwrap();
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!(left, Op::Leave { id: acquire.id, used: Token::NONE });
    drop(
        request.reply.send(Ok(harness.answer(Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8))),
    );
    assert_eq!(locking.await.unwrap().unwrap_err().kind(), leasehold::ErrorKind::Closed);
    // On the new lane the release is repeated, too.
    let leave = harness.next_but(|op| matches!(op, Op::Release { .. })).await;
    assert_eq!(leave.op, Op::Leave { id: acquire.id, used: Token::NONE });
    harness.reply(leave, Outcome::Left { was: Was::Granted }, 8);
    harness.reply(release, Outcome::Released, 8);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
    drop(guard);
}

/// If the server has forgotten a script, the request is sent a second time, and that can be after the leave.
#[tokio::test]
async fn p14_a_recheck_that_is_granted_behind_its_leave_is_left_again() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(900);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    let (recheck, _) = harness.next_acquire().await;
    locking.abort();
    let (leave, _) = harness.next_leave().await;
    harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
    pause(50).await;
    harness.reply(recheck, Outcome::Granted { token: token(8), left_us: 900 * MS, range: 1 }, 8);
    let (_, again) = harness.next_leave().await;
    assert_eq!(again, acquire.id);
}

/// The first waiter of a local queue drops its future while its acquire is in flight. The thread re-checks on the other
/// connection. The second waiter goes as well, and the leave is answered. Only then the store executes the first
/// acquire: it queues, and is granted. Nobody enters, so all clients wait for the end of the claim, unless the session
/// answers the push with a leave at once.
#[tokio::test]
async fn p14_a_push_behind_an_answered_leave_is_left_at_once() {
    let mut harness = Harness::new().await;
    let first = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    let second = harness.add_local_waiters(30_000, 1).await.remove(0);
    first.abort();
    let (recheck, _) = harness.next_acquire().await;
    assert_ne!(recheck.link, request.link);
    harness.reply(recheck, queued(1, 60_000), 7);
    pause(20).await;
    second.abort();
    let (leave, _) = harness.next_leave().await;
    harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
    pause(20).await;
    harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
    let begun = Instant::now();
    let (leave, left) = harness.next_leave().await;
    assert_eq!(left, acquire.id);
    assert!(begun.elapsed() < Duration::from_millis(700), "before the claim has ended: {:?}", begun.elapsed());
    // A message from before that leave says nothing new.
    let before_us = harness.store.server_us();
    harness.reply(leave, Outcome::Left { was: Was::Granted }, 8);
    pause(20).await;
    harness.push(acquire.id, 8, before_us - 1, 1_000 * MS);
    pause(100).await;
    harness.expect_no_request();
}

/// The store is away for longer than the lease and 2 s. The session cannot leave, and gives the attempt up after that
/// time. The entry stays in the queue all the while.
#[tokio::test]
async fn p14_an_entry_that_was_given_up_by_time_is_left_when_it_is_granted() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(300);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    harness.store.go_away();
    locking.abort();
    pause(2_600).await;
    harness.store.is_away.store(false, Ordering::SeqCst);
    harness.await_session_link(3).await;
    pause(100).await;
    harness.expect_no_request();
    harness.push(acquire.id, 8, harness.store.server_us(), 300 * MS);
    assert_eq!(harness.next_leave().await.1, acquire.id);
}

#[tokio::test]
async fn p14_a_push_for_a_closed_attempt_is_left() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    let Op::Release { id, .. } = release.op else { panic!("{:?}", release.op) };
    harness.reply(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    harness.push(id, 9, harness.store.server_us(), 1_000 * MS);
    let (_, left) = harness.next_leave().await;
    assert_eq!(left, id);
}

#[tokio::test]
async fn p16_a_dropped_future_leaves_the_queue() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 7);
    pause(50).await;
    locking.abort();
    let (_, left) = harness.next_leave().await;
    assert_eq!(left, acquire.id);
}

#[tokio::test]
async fn p16_a_dropped_guard_releases_and_renews_no_more() {
    let mut harness = Harness::new().await;
    let guard = harness.locked(600, 7).await;
    drop(guard);
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    // Unanswered, the release is repeated. By now the lease would have been renewed twice.
    pause(500).await;
    while let Some(request) = harness.try_next() {
        assert!(matches!(request.op, Op::Release { .. }), "{:?}", request.op);
    }
}

#[tokio::test]
async fn p16_a_grant_that_is_not_taken_is_released() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name");
    let mut locking = Box::pin(mutex.lock());
    let waker = Waker::noop();
    let mut context = Context::from_waker(waker);
    assert!(locking.as_mut().poll(&mut context).is_pending());
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 7);
    assert!(locking.as_mut().poll(&mut context).is_pending());
    // The lock is granted, and the future is dropped before it is polled again.
    harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
    drop(locking);
    let release = harness.next().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(8), used: token(8) });
}

/// Closing a connection wakes the tasks that wait for its replies, and a waker may run any code. So the session must
/// not hold its lock then.
#[test]
fn a_task_woken_by_a_closed_link_may_drop_a_guard() {
    const LANE: usize = 1;
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut harness = Harness::new().await;
            let guard = harness.locked(30_000, 7).await;
            *harness.store.on_close.lock().unwrap() = Some((LANE, Box::new(move || drop(guard))));
            let closing = tokio::spawn(harness.leasehold.clone().close());
            let release = harness.next().await;
            harness.reply(release, Outcome::Released, 7);
            assert!(closing.await.unwrap().unconfirmed().is_empty());
            assert!(harness.store.on_close.lock().unwrap().is_none(), "the lane was closed");
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("the session is in a deadlock");
}

/// The work is done, and its caller wants to go on. The store is away, so the lease is returned in the background.
#[tokio::test]
async fn p13_run_waits_for_its_release_within_bounds() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
    let running = timeout(Duration::from_secs(10), mutex.run(async |guard| guard.token()));
    let serving = async {
        let (request, _) = harness.next_acquire().await;
        harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
        harness.next().await
    };
    let (done, unanswered) = tokio::join!(running, serving);
    assert_eq!(done.expect("bounded").unwrap(), token(7));
    assert!(matches!(unanswered.op, Op::Release { .. }), "{:?}", unanswered.op);
    let again = harness.next().await;
    assert_eq!(again.op, unanswered.op);
    harness.reply(again, Outcome::Released, 7);
    assert!(harness.leasehold.close().await.unconfirmed().is_empty());
}

/// So many leases are returned at once that the server would be behind for longer than a connection is trusted. The
/// requests are sent in turn.
#[tokio::test]
async fn many_releases_are_sent_in_turn() {
    const LEASES: u64 = 6_000;
    let mut harness = Harness::new().await;
    let mut guards = Vec::new();
    for number in 1..=LEASES {
        guards.push(harness.locked_as(&format!("name {number}"), 900_000, number).await);
    }
    drop(guards);
    let (mut unanswered, mut released) = (Vec::new(), BTreeSet::new());
    let mut most = 0;
    while (released.len() as u64) < LEASES {
        // Answer when no further request comes.
        let within = Duration::from_millis(if unanswered.is_empty() { 10_000 } else { 100 });
        if let Ok(Some(request)) = timeout(within, harness.requests.recv()).await {
            unanswered.push(request);
            continue;
        }
        assert!(!unanswered.is_empty(), "{} of {LEASES} are forgotten", LEASES - released.len() as u64);
        let mut together = BTreeSet::new();
        for request in unanswered.drain(..) {
            let Op::Release { token, .. } = request.op else { panic!("{:?}", request.op) };
            together.insert(token);
            harness.reply(request, Outcome::Released, token.get());
        }
        most = most.max(together.len());
        released.append(&mut together);
    }
    assert!(most < LEASES as usize, "all at once");
    assert!(harness.leasehold.close().await.unconfirmed().is_empty());
}
