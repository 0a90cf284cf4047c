//! What is given back, again if need be, and when that is over.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use leasehold::{LostReason, Released};
use leasehold_spec::{Contention, Delivery, Event, Op, Outcome, Rest, Token, Was};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::bench::{Bench, MS, pause, queued, token};
use crate::store::gone;

#[tokio::test]
async fn p13_an_unanswered_release_is_repeated_on_the_next_link() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = bench.next().await;
    drop(first.reply.send(Err(gone())));
    let second = bench.next().await;
    assert_eq!(second.op, first.op);
    bench.say(second, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
}

/// A release was carried out, its answer was lost, and somebody else has released since: the record remembers that one, and
/// the repetition finds nothing. Nobody's work has outlived its lease.
#[tokio::test]
async fn p3_a_repeated_release_that_finds_nothing_proves_no_loss() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = bench.next().await;
    drop(first.reply.send(Err(gone())));
    let second = bench.next().await;
    bench.say(second, Outcome::NotHeld, 9);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    // Sent once and heard, it is the truth.
    let guard = bench.locked(30_000, 10).await;
    let releasing = tokio::spawn(guard.release());
    let only = bench.next().await;
    bench.say(only, Outcome::NotHeld, 12);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
}

/// The answer to an acquire was lost with its link, long ago. A leave would take back whatever that acquire may yet be
/// granted, but cannot say that the lease had been lost before.
#[tokio::test]
async fn p14_an_acquire_that_is_too_late_to_be_carried_out_is_forgotten() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (lost, acquire) = bench.next_acquire().await;
    drop(lost.reply.send(Err(gone())));
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 3_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    while bench.store.server_us() <= acquire.not_after_us + 1_000 * MS {
        let renewal = bench.next().await;
        assert!(matches!(renewal.op, Op::Renew(_)), "{:?}", renewal.op);
        bench.say(renewal, Outcome::Renewed { left_us: 3_000 * MS }, 7);
    }
    let releasing = tokio::spawn(guard.release());
    let release = bench.next_but_renewals().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(7), used: token(7) });
    bench.say(release, Outcome::NotHeld, 9);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn p13_what_was_released_is_said_again_to_another_run() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let first = bench.next().await;
    let release = first.op.clone();
    bench.say(first, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let again = bench.next().await;
    assert_eq!(again.op, release);
}

/// A leave that gave a grant back is a release by another name.
#[tokio::test]
async fn p13_what_was_left_is_said_again_to_another_run() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (_asked, acquire) = bench.next_acquire().await;
    locking.abort();
    let (leave, _) = bench.next_leave().await;
    bench.say(leave, Outcome::Left { was: Was::Granted }, 7);
    pause(50).await;
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let (_, again) = bench.next_leave().await;
    assert_eq!(again, acquire.id);
}

/// A failover can lose a revocation, and then nobody else would give back what it had ended.
#[tokio::test]
async fn p13_what_was_revoked_is_said_again_to_another_run() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    bench.deliver(Delivery {
        to: acquire.id.session,
        now_us: bench.store.server_us(),
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
    bench.nothing();
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    assert_eq!(bench.next().await.op, Op::Release { id: acquire.id, token: token(7), used: token(7) });
}

/// The same while a look is unanswered: the guard goes back by a leave, which finds that the revocation was first.
#[tokio::test]
async fn p13_what_was_revoked_behind_a_look_is_said_again_to_another_run() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(3_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(42, 60_000), 6);
    let (look, _) = bench.next_acquire().await;
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    let guard = locking.await.unwrap().unwrap();
    bench.deliver(Delivery {
        to: acquire.id.session,
        now_us: bench.store.server_us(),
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
    let (leave, id) = bench.next_leave().await;
    assert_eq!(id, acquire.id);
    bench.say(leave, Outcome::Left { was: Was::Absent }, 8);
    drop(look.reply.send(Ok(bench.answer(Outcome::Gone, 8))));
    pause(50).await;
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let (_, again) = bench.next_leave().await;
    assert_eq!(again, acquire.id);
}

/// The answer to the leave that gave the grant back was lost, and the one behind it finds nothing: it may have been that.
#[tokio::test]
async fn p13_what_was_left_unheard_is_said_again_to_another_run() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    locking.abort();
    let (unheard, _) = bench.next_leave().await;
    drop(asked.reply.send(Err(gone())));
    drop(unheard.reply.send(Err(gone())));
    loop {
        let (leave, id) = bench.next_leave().await;
        assert_eq!(id, acquire.id);
        let answered_us = bench.store.server_us();
        bench.say(leave, Outcome::Left { was: Was::Absent }, 7);
        if answered_us > acquire.not_after_us {
            break;
        }
    }
    pause(50).await;
    bench.nothing();
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let (_, again) = bench.next_leave().await;
    assert_eq!(again, acquire.id);
}

#[tokio::test]
async fn p14_an_unanswered_attempt_is_closed_only_beyond_its_not_after() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    locking.abort();
    // The link of the acquire breaks with the acquire on it: it may yet be carried out.
    bench.store.links()[asked.link].closed.store(true, Ordering::SeqCst);
    drop(asked.reply.send(Err(gone())));
    let begun = Instant::now();
    let mut leaves = 0;
    loop {
        let (leave, id) = bench.next_leave().await;
        assert_eq!(id, acquire.id);
        leaves += 1;
        assert!(leaves < 20, "no end of it");
        let answered_us = bench.store.server_us();
        bench.say(leave, Outcome::Left { was: Was::Absent }, 7);
        if answered_us > acquire.not_after_us {
            break;
        }
    }
    assert!(leaves >= 2 && begun.elapsed() > Duration::from_millis(1_500), "{leaves} leaves in {:?}", begun.elapsed());
    assert!(bench.leasehold.close().await.unconfirmed().is_empty());
}

/// A caller is stopped when its attempt is noted and its acquire not sent yet. The client is closed meanwhile: the leave
/// comes first, finds nothing, and is not the last word.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p14_a_leave_before_an_acquire_that_its_caller_had_still_to_send_is_repeated() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    // Without a lane the session's link serves, and a new lane is asked for: between the two steps.
    bench.store.links()[1].closed.store(true, Ordering::SeqCst);
    let (at_the_gap, is_at_the_gap) = oneshot::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    *bench.store.on_open.lock().unwrap() = Some(Box::new(move || {
        at_the_gap.send(()).unwrap();
        may_go_on.recv().unwrap();
    }));
    let locking = bench.lock_apart(30_000);
    is_at_the_gap.await.unwrap();
    let closing = tokio::spawn(bench.leasehold.clone().close());
    // The guard's release is not answered for now: the session lives on.
    let (mut leave, mut release) = (bench.next().await, bench.next().await);
    if matches!(leave.op, Op::Release { .. }) {
        std::mem::swap(&mut leave, &mut release);
    }
    let left = leave.op.clone();
    bench.say(leave, Outcome::Left { was: Was::Absent }, 7);
    pause(50).await;
    go_on.send(()).unwrap();
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!(left, Op::Leave { id: acquire.id, used: Token::NONE });
    drop(asked.reply.send(Ok(bench.answer(Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8))));
    assert_eq!(locking.await.unwrap().unwrap_err().kind(), leasehold::ErrorKind::Closed);
    // On the new lane the release is said again, too.
    let leave = bench.next_but(|op| matches!(op, Op::Release { .. })).await;
    assert_eq!(leave.op, Op::Leave { id: acquire.id, used: Token::NONE });
    bench.say(leave, Outcome::Left { was: Was::Granted }, 8);
    bench.say(release, Outcome::Released, 8);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
    drop(guard);
}

/// A script that the server had forgotten is sent a second time, and that can come behind the leave.
#[tokio::test]
async fn p14_a_look_that_is_granted_behind_its_leave_is_given_back() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(900);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    let (look, _) = bench.next_acquire().await;
    locking.abort();
    let (leave, _) = bench.next_leave().await;
    bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
    pause(50).await;
    bench.say(look, Outcome::Granted { token: token(8), left_us: 900 * MS, range: 1 }, 8);
    let (_, again) = bench.next_leave().await;
    assert_eq!(again, acquire.id);
}

/// The first of a line drops its future while its acquire is on its way, the thread looks on the other link, the second one
/// goes as well, and the leave is answered. The first acquire is carried out only then: it queues, and is granted. Nobody
/// enters, so everybody waits for the end of the claim, unless the message of the grant is answered with a leave at once.
#[tokio::test]
async fn p14_a_push_behind_a_leave_that_was_answered_is_given_back_at_once() {
    let mut bench = Bench::new().await;
    let first = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    let second = bench.in_line(30_000, 1).await.remove(0);
    first.abort();
    let (look, _) = bench.next_acquire().await;
    assert_ne!(look.link, asked.link);
    bench.say(look, queued(1, 60_000), 7);
    pause(20).await;
    second.abort();
    let (leave, _) = bench.next_leave().await;
    bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
    pause(20).await;
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    let begun = Instant::now();
    let (leave, left) = bench.next_leave().await;
    assert_eq!(left, acquire.id);
    assert!(begun.elapsed() < Duration::from_millis(700), "before the claim has ended: {:?}", begun.elapsed());
    // A message from before that says nothing new.
    let before_us = bench.store.server_us();
    bench.say(leave, Outcome::Left { was: Was::Granted }, 8);
    pause(20).await;
    bench.push(acquire.id, 8, before_us - 1, 1_000 * MS);
    pause(100).await;
    bench.nothing();
}

/// The store is away for longer than the lease and 2 s: nothing can be left at it, and the attempt is given up by time. Its
/// entry stands in the queue all the while.
#[tokio::test]
async fn p14_an_entry_that_was_given_up_by_time_is_left_when_it_is_granted() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(300);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    bench.store.go_away();
    locking.abort();
    pause(2_600).await;
    bench.store.is_away.store(false, Ordering::SeqCst);
    bench.home_again(3).await;
    pause(100).await;
    bench.nothing();
    bench.push(acquire.id, 8, bench.store.server_us(), 300 * MS);
    assert_eq!(bench.next_leave().await.1, acquire.id);
}

#[tokio::test]
async fn p14_a_push_for_a_closed_attempt_is_given_back() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(30_000, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let Op::Release { id, .. } = release.op else { panic!("{:?}", release.op) };
    bench.say(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    bench.push(id, 9, bench.store.server_us(), 1_000 * MS);
    let (_, left) = bench.next_leave().await;
    assert_eq!(left, id);
}

#[tokio::test]
async fn p16_a_dropped_future_leaves_the_queue() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    pause(50).await;
    locking.abort();
    let (_, left) = bench.next_leave().await;
    assert_eq!(left, acquire.id);
}

#[tokio::test]
async fn p16_a_dropped_guard_gives_back_and_renews_no_more() {
    let mut bench = Bench::new().await;
    let guard = bench.locked(600, 7).await;
    drop(guard);
    let release = bench.next().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    // Unanswered, it is repeated; the lease would have been renewed twice by now.
    pause(500).await;
    while let Some(asked) = bench.waiting() {
        assert!(matches!(asked.op, Op::Release { .. }), "{:?}", asked.op);
    }
}

#[tokio::test]
async fn p16_a_grant_that_nobody_takes_is_given_back() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name");
    let mut locking = Box::pin(mutex.lock());
    let waker = Waker::noop();
    let mut context = Context::from_waker(waker);
    assert!(locking.as_mut().poll(&mut context).is_pending());
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    assert!(locking.as_mut().poll(&mut context).is_pending());
    // Granted, and the future is dropped before it looks.
    bench.push(acquire.id, 8, bench.store.server_us(), 1_000 * MS);
    drop(locking);
    let release = bench.next().await;
    assert_eq!(release.op, Op::Release { id: acquire.id, token: token(8), used: token(8) });
}

/// A link that is closed wakes who waits on it for an answer, and a waker may do anything: not under the session's lock.
#[test]
fn what_a_closed_link_wakes_may_drop_a_guard() {
    const LANE: usize = 1;
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut bench = Bench::new().await;
            let guard = bench.locked(30_000, 7).await;
            *bench.store.on_close.lock().unwrap() = Some((LANE, Box::new(move || drop(guard))));
            let closing = tokio::spawn(bench.leasehold.clone().close());
            let release = bench.next().await;
            bench.say(release, Outcome::Released, 7);
            assert!(closing.await.unwrap().unconfirmed().is_empty());
            assert!(bench.store.on_close.lock().unwrap().is_none(), "it was closed");
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("it stands still");
}

/// The work is done, and its caller wants to go on. The store is away: the lease goes back in the background.
#[tokio::test]
async fn p13_run_waits_for_its_release_within_bounds() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30));
    let running = timeout(Duration::from_secs(10), mutex.run(async |guard| guard.token()));
    let serving = async {
        let (asked, _) = bench.next_acquire().await;
        bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
        bench.next().await
    };
    let (done, unanswered) = tokio::join!(running, serving);
    assert_eq!(done.expect("bounded").unwrap(), token(7));
    assert!(matches!(unanswered.op, Op::Release { .. }), "{:?}", unanswered.op);
    let again = bench.next().await;
    assert_eq!(again.op, unanswered.op);
    bench.say(again, Outcome::Released, 7);
    assert!(bench.leasehold.close().await.unconfirmed().is_empty());
}

/// So many leases go back at once that the server would be behind for longer than a link is believed. They go in turn.
#[tokio::test]
async fn what_goes_back_at_once_goes_in_turn() {
    const LEASES: u64 = 6_000;
    let mut bench = Bench::new().await;
    let mut guards = Vec::new();
    for number in 1..=LEASES {
        guards.push(bench.locked_as(&format!("name {number}"), 900_000, number).await);
    }
    drop(guards);
    let (mut unanswered, mut released) = (Vec::new(), BTreeSet::new());
    let mut most = 0;
    while (released.len() as u64) < LEASES {
        // Answered where nothing more comes.
        let within = Duration::from_millis(if unanswered.is_empty() { 10_000 } else { 100 });
        if let Ok(Some(asked)) = timeout(within, bench.requests.recv()).await {
            unanswered.push(asked);
            continue;
        }
        assert!(!unanswered.is_empty(), "{} of {LEASES} are forgotten", LEASES - released.len() as u64);
        let mut together = BTreeSet::new();
        for asked in unanswered.drain(..) {
            let Op::Release { token, .. } = asked.op else { panic!("{:?}", asked.op) };
            together.insert(token);
            bench.say(asked, Outcome::Released, token.get());
        }
        most = most.max(together.len());
        released.append(&mut together);
    }
    assert!(most < LEASES as usize, "all at once");
    assert!(bench.leasehold.close().await.unconfirmed().is_empty());
}
