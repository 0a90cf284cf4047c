//! In which order what is given back and what is asked for leave: nothing overtakes what it ends, and a session is not in
//! its own way.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::seam::Message;
use leasehold::{Guard, Released};
use leasehold_spec::{Acquire, GrantId, Name, Op, Outcome, Was};
use tokio::sync::oneshot;

use crate::bench::{Altered, Bench, MS, queued, token};

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
