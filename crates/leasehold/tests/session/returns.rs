//! What is given back, again if need be, and when that is over.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use leasehold::seam::Message;
use leasehold::{Guard, Lost, Released};
use leasehold_spec::{Acquire, Contention, Delivery, Event, GrantId, Name, Op, Outcome, Rest, Token, Was};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, pause, queued, token};
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
    assert_eq!(guard.lost().await, Lost::Revoked);
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
    assert_eq!(guard.lost().await, Lost::Revoked);
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

/// A lease whose session's thread has noted a look, and stands still before it sends it: the grant was pushed meanwhile.
async fn held_before_its_look(bench: &mut Bench) -> (Guard, GrantId, std::sync::mpsc::Sender<()>) {
    let locking = bench.lock(30_000);
    let (asked, Acquire { id, .. }) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    let (at_the_gap, is_at_the_gap) = oneshot::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    let at_the_gap = Mutex::new(Some((at_the_gap, may_go_on)));
    *bench.store.on_ask.lock().unwrap() = Some(Arc::new(move |op: &Op| {
        let first = at_the_gap.lock().unwrap().take_if(|_| matches!(op, Op::Acquire(_)));
        if let Some((at_the_gap, may_go_on)) = first {
            at_the_gap.send(()).unwrap();
            may_go_on.recv_timeout(Duration::from_secs(10)).unwrap();
        }
    }));
    bench.tell(Message::Look(Name::new("name").unwrap()));
    is_at_the_gap.await.unwrap();
    bench.push_range(id, 8, 4);
    (locking.await.unwrap().unwrap(), id, go_on)
}

/// It is given back by its caller at once. Before the look a leave would find what the look then finds again, for nobody.
#[tokio::test]
async fn p14_a_release_waits_for_a_look_that_the_thread_has_still_to_send() {
    let mut bench = Bench::new().await;
    let (guard, id, go_on) = held_before_its_look(&mut bench).await;
    let mut releasing = Box::pin(guard.release());
    assert!(releasing.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    bench.nothing();
    go_on.send(()).unwrap();
    let (look, again) = bench.next_acquire().await;
    let (leave, left) = bench.next_leave().await;
    assert_eq!((again.id, left, leave.link), (id, id, look.link), "behind what it ends");
    bench.say(look, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 4 }, 11);
    bench.say(leave, Outcome::Left { was: Was::Granted }, 8);
    assert_eq!(releasing.await.unwrap(), Released::Released);
    let mut closing = pin!(bench.leasehold.clone().close());
    let closed = loop {
        tokio::select! {
            closed = &mut closing => break closed,
            // The two answers are heard by two tasks: in the other order the first one is of a closed attempt.
            (leave, left) = bench.next_leave() => {
                assert_eq!(left, id);
                bench.say(leave, Outcome::Left { was: Was::Absent }, 8);
            }
        }
    };
    assert!(closed.unconfirmed().is_empty());
}

/// The same where its guard is dropped and its caller tries again: it does not hurry its leave before the look.
#[tokio::test]
async fn p14_a_leave_that_hurries_waits_for_a_look_that_the_thread_has_still_to_send() {
    let mut bench = Bench::new().await;
    let (guard, id, go_on) = held_before_its_look(&mut bench).await;
    drop(guard);
    let mutex = bench.leasehold.mutex("name");
    let mut trying = Box::pin(async move { mutex.try_lock().await });
    assert!(trying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let trying = tokio::spawn(trying);
    bench.nothing();
    go_on.send(()).unwrap();
    let (look, again) = bench.next_acquire().await;
    let (leave, left) = bench.next_leave().await;
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!((again.id, left), (id, id));
    assert_ne!(acquire.id, id);
    assert_eq!((leave.link, asked.link), (look.link, look.link), "their order is kept on one link only");
    bench.say(look, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 4 }, 11);
    bench.say(leave, Outcome::Left { was: Was::Granted }, 8);
    bench.say(asked, Outcome::Granted { token: token(9), left_us: 30_000 * MS, range: 4 }, 12);
    assert_eq!(trying.await.unwrap().unwrap().expect("nobody else is there").token(), token(9));
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

/// Whoever drops a guard and tries again is not to hear that somebody holds: the release comes first, on one link.
#[tokio::test]
async fn p16_what_was_dropped_goes_back_before_its_own_session_asks() {
    const LANE: usize = 1;
    let mut bench = Bench::new().await;
    let (plain, other) = (bench.leasehold.mutex("name"), bench.leasehold.mutex("name").lease(Duration::from_secs(10)));
    let granted = |number| Outcome::Granted { token: token(number), left_us: 10_000 * MS, range: 4 };
    let polled = |mutex: &leasehold::Mutex| {
        let mutex = mutex.clone();
        let mut trying = Box::pin(async move { mutex.try_lock().await });
        assert!(trying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        tokio::spawn(trying)
    };

    // Whoever sends it: the thread is woken by the drop, and may be first.
    for number in (10..2_000).step_by(10) {
        let guard = bench.locked(30_000, number).await;
        drop(guard);
        let trying = polled(if number % 20 == 0 { &plain } else { &other });
        let release = bench.next().await;
        assert!(matches!(release.op, Op::Release { token: of, .. } if of == token(number)), "{:?}", release.op);
        let (asked, _) = bench.next_acquire().await;
        assert_eq!(asked.link, release.link, "their order is kept on one link only");
        bench.nothing();
        bench.say(release, Outcome::Released, number);
        bench.say(asked, granted(number + 1), number + 1);
        let guard = trying.await.unwrap().unwrap().expect("nobody else is there");
        let releasing = tokio::spawn(guard.release());
        let release = bench.next().await;
        assert_eq!(release.link, LANE);
        bench.say(release, Outcome::Released, number + 1);
        let _released = releasing.await.unwrap().unwrap();
    }

    // What has left is not sent again, and its link is that of the request.
    drop(bench.locked(30_000, 3_000).await);
    let release = bench.next().await;
    let trying = polled(&plain);
    let (asked, _) = bench.next_acquire().await;
    assert_eq!(asked.link, release.link);
    bench.say(release, Outcome::Released, 3_000);
    bench.say(asked, granted(3_001), 3_001);
    let guard = trying.await.unwrap().unwrap().expect("nobody else is there");
    bench.nothing();
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    bench.say(release, Outcome::Released, 3_001);
    let _released = releasing.await.unwrap().unwrap();

    // What is kept is in the way of other terms.
    let keeps = plain.clone().sticky(Duration::from_secs(60));
    let locking = tokio::spawn(async move { keeps.lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, granted(4_000), 4_000);
    drop(locking.await.unwrap().unwrap());
    bench.nothing();
    let trying = polled(&other);
    let release = bench.next().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(4_001)), "{:?}", release.op);
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!((asked.link, release.link), (LANE, LANE), "by the caller, both");

    // Given up before either is answered: the thread sees to both.
    trying.abort();
    let (mut repeated, mut left) = (false, false);
    while !repeated || !left {
        let again = bench.next().await;
        repeated |= again.op == release.op;
        left |= matches!(again.op, Op::Leave { id, .. } if id == acquire.id);
    }
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

/// The same where an acquire of it is unanswered, so that it is left and not released.
#[tokio::test]
async fn p16_what_is_left_goes_back_before_its_own_session_asks() {
    let mut bench = Bench::new().await;
    let mut unanswered = Vec::new();
    for number in (10..1_000).step_by(10) {
        let locking = bench.lock(30_000);
        let (asked, Acquire { id, .. }) = bench.next_acquire().await;
        bench.push_range(id, number, 4);
        drop(locking.await.unwrap().unwrap());
        let mutex = bench.leasehold.mutex("name");
        let mut trying = Box::pin(async move { mutex.try_lock().await });
        assert!(trying.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let trying = tokio::spawn(trying);
        let (left, of) = bench.next_leave().await;
        assert_eq!((of, left.link), (id, asked.link), "behind what it ends");
        let (again, _) = bench.next_acquire().await;
        assert_eq!(again.link, left.link, "their order is kept on one link only");
        bench.nothing();
        bench.say(left, Outcome::Left { was: Was::Granted }, number);
        bench.say(again, Outcome::Granted { token: token(number + 1), left_us: 30_000 * MS, range: 4 }, number + 1);
        let guard = trying.await.unwrap().unwrap().expect("nobody else is there");
        let releasing = tokio::spawn(guard.release());
        let release = bench.next().await;
        bench.say(release, Outcome::Released, number + 1);
        let _released = releasing.await.unwrap().unwrap();
        unanswered.push(asked);
    }
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

/// The session's thread is at its turn and sees no change before the end of it. What fell due meanwhile is sent then, and
/// not after the shortest sleep.
#[tokio::test]
async fn what_is_dropped_during_a_turn_goes_back_without_a_sleep() {
    const NOT_YET: usize = usize::MAX;
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<_>).await;
    let dropped = Mutex::new(Some(bench.locked(30_000, 7).await));
    let _renewed = bench.locked(3_000, 8).await;
    let (at_drop, at_release) = (Arc::new(AtomicUsize::new(NOT_YET)), Arc::new(AtomicUsize::new(NOT_YET)));
    let (dropping, releasing) = (Arc::clone(&at_drop), Arc::clone(&at_release));
    *bench.store.on_ask.lock().unwrap() = Some(Arc::new(move |op: &Op| {
        let naps = world.naps.load(Ordering::SeqCst);
        match op {
            // Within the turn in which it was due.
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
    let released = bench.next_but_renewals().await;
    assert!(matches!(released.op, Op::Release { .. }), "{:?}", released.op);
    assert_ne!(at_drop.load(Ordering::SeqCst), NOT_YET);
    assert_eq!(at_release.load(Ordering::SeqCst), at_drop.load(Ordering::SeqCst), "it slept before the release");
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
