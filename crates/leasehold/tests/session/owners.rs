//! Owners that re-enter: what goes to the store, and what does not.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use leasehold::seam::World;
use leasehold::{ErrorKind, Guard, LostReason, Mutex, Owner, Released, Result};
use leasehold_spec::{Contention, Delivery, Event, Op, Outcome, Rest, Was};
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, queued, token};
use crate::store::gone;

const LEASE_MS: u64 = 30_000;
const SOON: Duration = Duration::from_secs(10);

fn mutex(bench: &Bench, owner: &Owner) -> Mutex {
    bench.leasehold.mutex("name").lease(Duration::from_millis(LEASE_MS)).owner(owner)
}

/// Locks as the first of its owner: the store is asked.
async fn first(bench: &mut Bench, mutex: &Mutex, number: u64) -> Guard {
    let locking = tokio::spawn(lock(mutex));
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(number), left_us: acquire.lease_ms * MS, range: 1 }, number);
    locking.await.unwrap().unwrap()
}

type Locking = Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

fn lock(mutex: &Mutex) -> Locking {
    let mutex = mutex.clone();
    Box::pin(async move { mutex.lock().await })
}

/// Polls it once, to see how far it comes by itself.
async fn poll(locking: &mut Locking) -> Poll<Result<Guard>> {
    poll_fn(|context| Poll::Ready(locking.as_mut().poll(context))).await
}

async fn released(bench: &mut Bench, guard: Guard) -> Released {
    let releasing = tokio::spawn(guard.release());
    let release = bench.next_but_renewals().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    bench.say(release, Outcome::Released, 7);
    releasing.await.unwrap().unwrap()
}

#[tokio::test]
async fn p16_the_last_guard_of_an_owner_gives_back_and_no_other() {
    // Whichever of them goes last, and however the others go.
    for last in 0..3 {
        let mut bench = Bench::new().await;
        let mutex = mutex(&bench, &Owner::new());
        let mut guards = vec![first(&mut bench, &mutex, 7).await];
        for _ in 0..2 {
            guards.push(mutex.try_lock().await.unwrap().expect("it holds"));
        }
        let kept = guards.remove(last);
        assert!(guards.iter().all(|guard| guard.check() == Ok(token(7))), "one grant, one token");
        let told = timeout(SOON, guards.remove(0).release()).await.expect("no round trip");
        assert_eq!(told.unwrap(), Released::Released);
        drop(guards);
        assert_eq!(kept.check(), Ok(token(7)), "it is still held");
        bench.nothing();
        assert_eq!(released(&mut bench, kept).await, Released::Released);
        // Nothing of it is entered any more.
        drop(first(&mut bench, &mutex, 8).await);
    }
}

#[tokio::test]
async fn p16_a_lost_lease_is_not_entered_until_its_last_guard_has_gone() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new());
    let locking = tokio::spawn(lock(&mutex));
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: LEASE_MS * MS, range: 1 }, 7);
    let (outer, inner) = (locking.await.unwrap().unwrap(), mutex.lock().await.unwrap());
    bench.deliver(Delivery {
        to: acquire.id.session,
        now_us: bench.store.server_us(),
        contention: Contention::None,
        rest: Rest::Done,
        id: acquire.id,
        token: token(7),
        left_us: 5_000 * MS,
        event: Event::Revoked,
        range: 1,
    });
    assert_eq!(outer.check().map_err(|lost| lost.reason()), Err(LostReason::Revoked));
    assert_eq!(inner.check(), outer.check());
    let refused = async |mutex: &Mutex| {
        let error = mutex.lock().await.expect_err("its guard is out");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(error.to_string().contains("drop that guard before you lock again"), "{error}");
        assert_eq!(mutex.try_lock().await.expect_err("it is").kind(), ErrorKind::Lost);
        assert_eq!(mutex.try_lock_for(Duration::ZERO).await.expect_err("it is").kind(), ErrorKind::Lost);
    };
    refused(&mutex).await;
    assert_eq!(outer.release().await.unwrap(), Released::NotHeld, "no round trip, and the truth");
    refused(&mutex).await;
    bench.nothing();
    drop(inner);
    let release = bench.next().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    drop(first(&mut bench, &mutex, 8).await);
}

#[tokio::test]
async fn p16_two_tasks_of_an_owner_share_one_attempt() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new());
    let (mut one, mut two) = (lock(&mutex), lock(&mutex));
    assert!(poll(&mut one).await.is_pending());
    let (asked, _) = bench.next_acquire().await;
    assert!(poll(&mut two).await.is_pending());
    // Who does not wait is told at once, and who waits a while in time; neither asks the store.
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(mutex.try_lock_for(Duration::from_millis(20)).await.unwrap().is_none());
    bench.nothing();
    bench.say(asked, queued(1, 60_000), 6);
    assert!(poll(&mut one).await.is_pending() && poll(&mut two).await.is_pending());
    assert!(mutex.try_lock().await.unwrap().is_none(), "it waits, for somebody else");
    bench.nothing();

    // The first gives up: the second asks in its place, and not before the first has left.
    drop(one);
    let locking = tokio::spawn(two);
    let mut asked = vec![bench.next().await, bench.next().await];
    asked.sort_by_key(|asked| matches!(asked.op, Op::Acquire(_)));
    let (acquire, leave) = (asked.pop().unwrap(), asked.pop().unwrap());
    assert!(matches!(leave.op, Op::Leave { .. }), "{:?}", leave.op);
    bench.say(leave, Outcome::Left { was: Was::Queued }, 6);
    bench.say(acquire, Outcome::Granted { token: token(7), left_us: LEASE_MS * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();

    // While the store is asked others of this owner come and share what it says.
    assert_eq!(released(&mut bench, guard).await, Released::Released);
    let tasks: Vec<_> = (0..5).map(|_| tokio::spawn(lock(&mutex))).collect();
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(8), left_us: LEASE_MS * MS, range: 1 }, 8);
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap().unwrap());
    }
    assert!(guards.iter().all(|guard| guard.token() == token(8)));
    bench.nothing();
}

/// A failure is the first one's own: the second asks for itself.
#[tokio::test]
async fn an_attempt_that_fails_is_followed_by_the_next_ones() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new());
    let tries = mutex.clone();
    let trying = tokio::spawn(async move { tries.try_lock().await });
    let (asked, _) = bench.next_acquire().await;
    let mut waits = lock(&mutex);
    assert!(poll(&mut waits).await.is_pending());
    drop(asked.reply.send(Err(gone())));
    assert!(trying.await.unwrap().expect_err("nobody knows").may_have_acted());
    let waiting = tokio::spawn(waits);
    let asked = bench.next_but(|op| matches!(op, Op::Leave { .. })).await;
    assert!(matches!(asked.op, Op::Acquire(_)), "{:?}", asked.op);
    bench.say(asked, Outcome::Granted { token: token(7), left_us: LEASE_MS * MS, range: 1 }, 7);
    assert_eq!(waiting.await.unwrap().unwrap().token(), token(7));
}

/// The attempt that the second waited for was granted, and its guard was lost and dropped before the second came to look:
/// there is nothing to re-enter.
#[tokio::test]
async fn what_was_lost_and_dropped_meanwhile_is_acquired_anew() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new()).fixed_lease(Duration::from_millis(100));
    let (mut one, mut two) = (lock(&mutex), lock(&mutex));
    assert!(poll(&mut one).await.is_pending());
    let (asked, _) = bench.next_acquire().await;
    assert!(poll(&mut two).await.is_pending());
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 100 * MS, range: 1 }, 7);
    let guard = one.await.unwrap();
    assert!(guard.lost().await.reason().is_expiry());
    drop(guard);
    let waiting = tokio::spawn(two);
    let asked = bench.next_but(|op| matches!(op, Op::Release { .. })).await;
    bench.say(asked, Outcome::Granted { token: token(8), left_us: 100 * MS, range: 1 }, 8);
    assert_eq!(waiting.await.unwrap().unwrap().token(), token(8));
}

/// What is being given back is not entered, although the store has not said so yet.
#[tokio::test]
async fn a_lock_behind_a_release_that_is_under_way_asks_the_store() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new());
    let guard = first(&mut bench, &mutex, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    let locking = tokio::spawn(lock(&mutex));
    let (asked, acquire) = bench.next_acquire().await;
    assert_ne!(release.op, Op::Release { id: acquire.id, token: token(7), used: token(7) }, "another attempt");
    bench.say(release, Outcome::Released, 7);
    bench.say(asked, Outcome::Granted { token: token(8), left_us: LEASE_MS * MS, range: 1 }, 8);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

#[tokio::test]
async fn a_longer_lease_is_asked_for_at_once() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new());
    let outer = first(&mut bench, &mutex, 7).await;
    let longer = |ms| mutex.clone().lease(Duration::from_millis(ms));
    let renewal = async |bench: &mut Bench, lease_ms| {
        let asked = bench.next().await;
        let Op::Renew(renew) = asked.op.clone() else { panic!("{:?}", asked.op) };
        assert_eq!((renew.lease_ms, renew.token), (lease_ms, token(7)));
        asked
    };
    drop(longer(1_000).lock().await.unwrap());
    drop(longer(LEASE_MS).lock().await.unwrap());
    bench.nothing();
    let inner = longer(60_000).lock().await.unwrap();
    let asked = renewal(&mut bench, 60_000).await;
    // Longer still, while that is under way: it is asked for when that is answered.
    let innermost = longer(90_000).lock().await.unwrap();
    bench.nothing();
    bench.say(asked, Outcome::Renewed { left_us: 60_000 * MS }, 7);
    let asked = renewal(&mut bench, 90_000).await;
    bench.say(asked, Outcome::Renewed { left_us: 90_000 * MS }, 7);
    drop((innermost, inner));
    while outer.remaining() < Duration::from_secs(85) {
        tokio::task::yield_now().await;
    }
    bench.nothing();
}

#[tokio::test]
async fn a_fixed_lease_keeps_its_end() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new());
    let fixed = mutex.clone().fixed_lease(Duration::from_millis(400));
    let outer = first(&mut bench, &fixed, 7).await;
    let inner = mutex.lock().await.unwrap();
    let lost = inner.lost();
    tokio::select! {
        biased;
        why = lost => assert!(why.reason().is_expiry(), "{why:?}"),
        asked = bench.next() => panic!("nothing is asked for: {:?}", asked.op),
    }
    assert!(outer.check().is_err_and(|lost| lost.reason().is_expiry()));
}

/// A longest hold is the first one's word: what is asked for on re-entry goes no further.
#[tokio::test]
async fn a_longest_hold_is_not_lengthened() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new());
    let ms = Duration::from_millis;
    let outer = first(&mut bench, &mutex.clone().lease(ms(300)).max_hold(ms(900)), 7).await;
    let begun = std::time::Instant::now();
    let inner = mutex.lock().await.unwrap();
    let (mut lost, mut renewals) = (inner.lost(), 0);
    loop {
        tokio::select! {
            biased;
            _ = &mut lost => break,
            asked = bench.next() => {
                let Op::Renew(renew) = asked.op.clone() else { panic!("{:?}", asked.op) };
                assert!(ms(renew.lease_ms) <= ms(900).saturating_sub(begun.elapsed()) + ms(300), "{renew:?}");
                bench.say(asked, Outcome::Renewed { left_us: renew.lease_ms * MS }, 7);
                renewals += 1;
            }
        }
    }
    assert!(
        begun.elapsed() >= ms(800) && outer.check().is_err_and(|lost| lost.reason().is_expiry()),
        "{:?}",
        begun.elapsed()
    );
    assert!((1..=5).contains(&renewals), "{renewals}");
}

#[tokio::test]
async fn two_owners_and_none_wait_for_each_other() {
    let mut bench = Bench::new().await;
    let (ours, theirs) = (Owner::new(), Owner::new());
    assert!(ours == ours.clone() && ours != theirs);
    let _held = {
        let mutex = mutex(&bench, &ours);
        first(&mut bench, &mutex, 7).await
    };
    let strangers = [
        mutex(&bench, &theirs).fair(),
        bench.leasehold.mutex("name").fair(),
        bench.leasehold.mutex("other").owner(&ours),
    ];
    for stranger in strangers {
        let waiting = tokio::spawn(lock(&stranger));
        let (asked, _) = bench.next_acquire().await;
        bench.say(asked, queued(1, 60_000), 7);
        waiting.abort();
        let (asked, _) = bench.next_leave().await;
        bench.say(asked, Outcome::Left { was: Was::Queued }, 7);
    }
}

/// Whoever waits at the gate hears it, like whoever waits at the store; and a guard that is out is no reason for another
/// answer.
#[tokio::test]
async fn a_closed_client_refuses_its_owners() {
    let mut bench = Bench::new().await;
    let (holding, waiting) = (mutex(&bench, &Owner::new()), mutex(&bench, &Owner::new()).fair());
    let guard = first(&mut bench, &holding, 7).await;
    let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(lock(&waiting))).collect();
    let patient = waiting.clone();
    let bounded = tokio::spawn(async move { patient.try_lock_for(Duration::from_secs(60)).await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    tokio::task::yield_now().await;
    let closing = tokio::spawn(bench.leasehold.clone().close());
    for task in tasks {
        assert_eq!(task.await.unwrap().expect_err("closed").kind(), ErrorKind::Closed);
    }
    assert_eq!(bounded.await.unwrap().expect_err("closed").kind(), ErrorKind::Closed);
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Closed));
    assert_eq!(holding.lock().await.expect_err("closed").kind(), ErrorKind::Closed);
    drop(guard);
    assert_eq!(holding.try_lock().await.expect_err("closed").kind(), ErrorKind::Closed);
    closing.abort();
}

/// A child that was forked has a copy of every gate, and of locks that nobody there will ever open.
#[tokio::test]
async fn a_forked_child_re_enters_nothing() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let mutex = mutex(&bench, &Owner::new());
    let (outer, inner, copy) =
        (first(&mut bench, &mutex, 7).await, mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
    world.process.fetch_add(1, Ordering::SeqCst);
    let unsupported = ErrorKind::Unsupported;
    assert_eq!(mutex.lock().await.expect_err("in the child").kind(), unsupported);
    assert_eq!(mutex.try_lock().await.expect_err("in the child").kind(), unsupported);
    assert_eq!(inner.release().await.expect_err("in the child").kind(), unsupported);
    drop(copy);
    bench.nothing();
    world.process.fetch_sub(1, Ordering::SeqCst);
    assert!(outer.is_valid());
    bench.nothing();
}

/// The first task of an owner waits for the lock, on a runtime that does not poll it any more. The client is closed. The
/// other tasks of the owner, which wait for the first one, get the error too.
#[tokio::test]
async fn p18_a_task_that_waits_for_another_of_its_owner_hears_that_the_client_is_closed() {
    let mut bench = Bench::new().await;
    let mutex = mutex(&bench, &Owner::new());
    let mut first = lock(&mutex);
    assert!(poll(&mut first).await.is_pending());
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, queued(1, 30_000), 7);
    let second = tokio::spawn(lock(&mutex));
    tokio::task::yield_now().await;
    let mut closing = tokio::spawn(bench.leasehold.clone().close());
    let closed = async {
        loop {
            tokio::select! {
                closed = &mut closing => return closed.unwrap(),
                (left, _) = bench.next_leave() => bench.say(left, Outcome::Left { was: Was::Absent }, 7),
            }
        }
    };
    assert!(timeout(SOON, closed).await.expect("bounded").unconfirmed().is_empty());
    let told = timeout(SOON, second).await.expect("the client is closed, and its lock() waits on").unwrap();
    assert_eq!(told.expect_err("closed").kind(), ErrorKind::Closed);
    drop(first);
}
