//! Owners that re-enter: which calls send a request to the store, and which do not.

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

use crate::harness::{Altered, Harness, MS, queued, token};
use crate::store::gone;

const LEASE_MS: u64 = 30_000;
const SOON: Duration = Duration::from_secs(10);

fn mutex(harness: &Harness, owner: &Owner) -> Mutex {
    harness.leasehold.mutex("name").lease(Duration::from_millis(LEASE_MS)).owner(owner)
}

/// Locks as the first guard of its owner: the store is asked.
async fn first(harness: &mut Harness, mutex: &Mutex, number: u64) -> Guard {
    let locking = tokio::spawn(lock(mutex));
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(number), left_us: acquire.lease_ms * MS, range: 1 }, number);
    locking.await.unwrap().unwrap()
}

type Locking = Pin<Box<dyn Future<Output = Result<Guard>> + Send>>;

fn lock(mutex: &Mutex) -> Locking {
    let mutex = mutex.clone();
    Box::pin(async move { mutex.lock().await })
}

/// Polls the future once.
async fn poll(locking: &mut Locking) -> Poll<Result<Guard>> {
    poll_fn(|context| Poll::Ready(locking.as_mut().poll(context))).await
}

async fn released(harness: &mut Harness, guard: Guard) -> Released {
    let releasing = tokio::spawn(guard.release());
    let release = harness.next_but_renewals().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 7);
    releasing.await.unwrap().unwrap()
}

#[tokio::test]
async fn p16_only_the_last_guard_of_an_owner_releases() {
    // The rule holds whichever guard goes last, and however the others go.
    for last in 0..3 {
        let mut harness = Harness::new().await;
        let mutex = mutex(&harness, &Owner::new());
        let mut guards = vec![first(&mut harness, &mutex, 7).await];
        for _ in 0..2 {
            guards.push(mutex.try_lock().await.unwrap().expect("it holds"));
        }
        let kept = guards.remove(last);
        assert!(guards.iter().all(|guard| guard.check() == Ok(token(7))), "one grant, one token");
        let result = timeout(SOON, guards.remove(0).release()).await.expect("no round trip");
        assert_eq!(result.unwrap(), Released::Released);
        drop(guards);
        assert_eq!(kept.check(), Ok(token(7)), "it is still held");
        harness.expect_no_request();
        assert_eq!(released(&mut harness, kept).await, Released::Released);
        // The released grant cannot be re-entered.
        drop(first(&mut harness, &mutex, 8).await);
    }
}

#[tokio::test]
async fn p16_a_lost_lease_is_not_entered_until_its_last_guard_has_gone() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new());
    let locking = tokio::spawn(lock(&mutex));
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: LEASE_MS * MS, range: 1 }, 7);
    let (outer, inner) = (locking.await.unwrap().unwrap(), mutex.lock().await.unwrap());
    harness.deliver(Delivery {
        to: acquire.id.session,
        now_us: harness.store.server_us(),
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
        let error = mutex.lock().await.expect_err("its guard still exists");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(error.to_string().contains("drop that guard before you lock again"), "{error}");
        assert_eq!(mutex.try_lock().await.expect_err("it is").kind(), ErrorKind::Lost);
        assert_eq!(mutex.try_lock_for(Duration::ZERO).await.expect_err("it is").kind(), ErrorKind::Lost);
    };
    refused(&mutex).await;
    assert_eq!(outer.release().await.unwrap(), Released::NotHeld, "no round trip, and the real result");
    refused(&mutex).await;
    harness.expect_no_request();
    drop(inner);
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    drop(first(&mut harness, &mutex, 8).await);
}

#[tokio::test]
async fn p16_two_tasks_of_an_owner_share_one_attempt() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new());
    let (mut one, mut two) = (lock(&mutex), lock(&mutex));
    assert!(poll(&mut one).await.is_pending());
    let (request, _) = harness.next_acquire().await;
    assert!(poll(&mut two).await.is_pending());
    // `try_lock` returns at once, and `try_lock_for` returns at its deadline. Neither asks the store.
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(mutex.try_lock_for(Duration::from_millis(20)).await.unwrap().is_none());
    harness.expect_no_request();
    harness.reply(request, queued(1, 60_000), 6);
    assert!(poll(&mut one).await.is_pending() && poll(&mut two).await.is_pending());
    assert!(mutex.try_lock().await.unwrap().is_none(), "its owner still waits for another holder");
    harness.expect_no_request();

    // The first task gives up. The second task asks in its place, and only after the leave of the first.
    drop(one);
    let locking = tokio::spawn(two);
    let mut requests = vec![harness.next().await, harness.next().await];
    requests.sort_by_key(|request| matches!(request.op, Op::Acquire(_)));
    let (acquire, leave) = (requests.pop().unwrap(), requests.pop().unwrap());
    assert!(matches!(leave.op, Op::Leave { .. }), "{:?}", leave.op);
    harness.reply(leave, Outcome::Left { was: Was::Queued }, 6);
    harness.reply(acquire, Outcome::Granted { token: token(7), left_us: LEASE_MS * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();

    // While the request is in flight, other tasks of this owner come and share its result.
    assert_eq!(released(&mut harness, guard).await, Released::Released);
    let tasks: Vec<_> = (0..5).map(|_| tokio::spawn(lock(&mutex))).collect();
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(8), left_us: LEASE_MS * MS, range: 1 }, 8);
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap().unwrap());
    }
    assert!(guards.iter().all(|guard| guard.token() == token(8)));
    harness.expect_no_request();
}

/// An error concerns only the caller that got it. The second caller asks for itself.
#[tokio::test]
async fn a_failed_attempt_is_followed_by_the_next_callers_own() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new());
    let tries = mutex.clone();
    let trying = tokio::spawn(async move { tries.try_lock().await });
    let (request, _) = harness.next_acquire().await;
    let mut waits = lock(&mutex);
    assert!(poll(&mut waits).await.is_pending());
    drop(request.reply.send(Err(gone())));
    assert!(trying.await.unwrap().expect_err("the state is unknown").may_have_acted());
    let waiting = tokio::spawn(waits);
    let request = harness.next_but(|op| matches!(op, Op::Leave { .. })).await;
    assert!(matches!(request.op, Op::Acquire(_)), "{:?}", request.op);
    harness.reply(request, Outcome::Granted { token: token(7), left_us: LEASE_MS * MS, range: 1 }, 7);
    assert_eq!(waiting.await.unwrap().unwrap().token(), token(7));
}

/// The second task waited for the attempt of the first. That attempt was granted, and its guard was lost and dropped
/// before the second task ran: there is nothing to re-enter.
#[tokio::test]
async fn a_grant_that_was_lost_and_dropped_meanwhile_is_acquired_anew() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new()).fixed_lease(Duration::from_millis(100));
    let (mut one, mut two) = (lock(&mutex), lock(&mutex));
    assert!(poll(&mut one).await.is_pending());
    let (request, _) = harness.next_acquire().await;
    assert!(poll(&mut two).await.is_pending());
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 100 * MS, range: 1 }, 7);
    let guard = one.await.unwrap();
    assert!(guard.lost().await.reason().is_expiry());
    drop(guard);
    let waiting = tokio::spawn(two);
    let request = harness.next_but(|op| matches!(op, Op::Release { .. })).await;
    harness.reply(request, Outcome::Granted { token: token(8), left_us: 100 * MS, range: 1 }, 8);
    assert_eq!(waiting.await.unwrap().unwrap().token(), token(8));
}

/// A grant that is being released is not re-entered, although the store has not confirmed the release yet.
#[tokio::test]
async fn a_lock_behind_a_release_in_flight_asks_the_store() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new());
    let guard = first(&mut harness, &mutex, 7).await;
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    let locking = tokio::spawn(lock(&mutex));
    let (request, acquire) = harness.next_acquire().await;
    assert_ne!(release.op, Op::Release { id: acquire.id, token: token(7), used: token(7) }, "another attempt");
    harness.reply(release, Outcome::Released, 7);
    harness.reply(request, Outcome::Granted { token: token(8), left_us: LEASE_MS * MS, range: 1 }, 8);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    assert_eq!(locking.await.unwrap().unwrap().token(), token(8));
}

#[tokio::test]
async fn a_longer_lease_is_asked_for_at_once() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new());
    let outer = first(&mut harness, &mutex, 7).await;
    let longer = |ms| mutex.clone().lease(Duration::from_millis(ms));
    let renewal = async |harness: &mut Harness, lease_ms| {
        let request = harness.next().await;
        let Op::Renew(renew) = request.op.clone() else { panic!("{:?}", request.op) };
        assert_eq!((renew.lease_ms, renew.token), (lease_ms, token(7)));
        request
    };
    drop(longer(1_000).lock().await.unwrap());
    drop(longer(LEASE_MS).lock().await.unwrap());
    harness.expect_no_request();
    let inner = longer(60_000).lock().await.unwrap();
    let request = renewal(&mut harness, 60_000).await;
    // A still longer lease, while that renewal is in flight: the session asks for it after the reply.
    let innermost = longer(90_000).lock().await.unwrap();
    harness.expect_no_request();
    harness.reply(request, Outcome::Renewed { left_us: 60_000 * MS }, 7);
    let request = renewal(&mut harness, 90_000).await;
    harness.reply(request, Outcome::Renewed { left_us: 90_000 * MS }, 7);
    drop((innermost, inner));
    while outer.remaining() < Duration::from_secs(85) {
        tokio::task::yield_now().await;
    }
    harness.expect_no_request();
}

#[tokio::test]
async fn a_fixed_lease_keeps_its_end() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new());
    let fixed = mutex.clone().fixed_lease(Duration::from_millis(400));
    let outer = first(&mut harness, &fixed, 7).await;
    let inner = mutex.lock().await.unwrap();
    let lost = inner.lost();
    tokio::select! {
        biased;
        why = lost => assert!(why.reason().is_expiry(), "{why:?}"),
        request = harness.next() => panic!("nothing is asked for: {:?}", request.op),
    }
    assert!(outer.check().is_err_and(|lost| lost.reason().is_expiry()));
}

/// The first guard sets the maximum hold. A re-entry does not go beyond it.
#[tokio::test]
async fn max_hold_is_not_lengthened() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new());
    let ms = Duration::from_millis;
    let outer = first(&mut harness, &mutex.clone().lease(ms(300)).max_hold(ms(900)), 7).await;
    let begun = std::time::Instant::now();
    let inner = mutex.lock().await.unwrap();
    let (mut lost, mut renewals) = (inner.lost(), 0);
    loop {
        tokio::select! {
            biased;
            _ = &mut lost => break,
            request = harness.next() => {
                let Op::Renew(renew) = request.op.clone() else { panic!("{:?}", request.op) };
                assert!(ms(renew.lease_ms) <= ms(900).saturating_sub(begun.elapsed()) + ms(300), "{renew:?}");
                harness.reply(request, Outcome::Renewed { left_us: renew.lease_ms * MS }, 7);
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
    let mut harness = Harness::new().await;
    let (ours, theirs) = (Owner::new(), Owner::new());
    assert!(ours == ours.clone() && ours != theirs);
    let _held = {
        let mutex = mutex(&harness, &ours);
        first(&mut harness, &mutex, 7).await
    };
    let strangers = [
        mutex(&harness, &theirs).fair(),
        harness.leasehold.mutex("name").fair(),
        harness.leasehold.mutex("other").owner(&ours),
    ];
    for stranger in strangers {
        let waiting = tokio::spawn(lock(&stranger));
        let (request, _) = harness.next_acquire().await;
        harness.reply(request, queued(1, 60_000), 7);
        waiting.abort();
        let (request, _) = harness.next_leave().await;
        harness.reply(request, Outcome::Left { was: Was::Queued }, 7);
    }
}

/// Tasks that wait for another task of their owner get the error, like tasks that wait for the store. A guard that is
/// still out does not change the error.
#[tokio::test]
async fn a_closed_client_refuses_its_owners() {
    let mut harness = Harness::new().await;
    let (holding, waiting) = (mutex(&harness, &Owner::new()), mutex(&harness, &Owner::new()).fair());
    let guard = first(&mut harness, &holding, 7).await;
    let tasks: Vec<_> = (0..3).map(|_| tokio::spawn(lock(&waiting))).collect();
    let patient = waiting.clone();
    let bounded = tokio::spawn(async move { patient.try_lock_for(Duration::from_secs(60)).await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    tokio::task::yield_now().await;
    let closing = tokio::spawn(harness.leasehold.clone().close());
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

/// A forked child has a copy of every owner's gate, and of mutexes that no thread of the child will ever unlock.
#[tokio::test]
async fn a_forked_child_re_enters_nothing() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let mutex = mutex(&harness, &Owner::new());
    let (outer, inner, copy) =
        (first(&mut harness, &mutex, 7).await, mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
    world.process.fetch_add(1, Ordering::SeqCst);
    let unsupported = ErrorKind::Unsupported;
    assert_eq!(mutex.lock().await.expect_err("in the child").kind(), unsupported);
    assert_eq!(mutex.try_lock().await.expect_err("in the child").kind(), unsupported);
    assert_eq!(inner.release().await.expect_err("in the child").kind(), unsupported);
    drop(copy);
    harness.expect_no_request();
    world.process.fetch_sub(1, Ordering::SeqCst);
    assert!(outer.is_valid());
    harness.expect_no_request();
}

/// The first task of an owner waits for the lock, on a runtime that does not poll it any more. The client is closed. The
/// other tasks of the owner, which wait for the first one, get the error too.
#[tokio::test]
async fn p18_a_task_that_waits_for_its_owner_gets_the_error_of_a_closed_client() {
    let mut harness = Harness::new().await;
    let mutex = mutex(&harness, &Owner::new());
    let mut first = lock(&mutex);
    assert!(poll(&mut first).await.is_pending());
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, queued(1, 30_000), 7);
    let second = tokio::spawn(lock(&mutex));
    tokio::task::yield_now().await;
    let mut closing = tokio::spawn(harness.leasehold.clone().close());
    let closed = async {
        loop {
            tokio::select! {
                closed = &mut closing => return closed.unwrap(),
                (left, _) = harness.next_leave() => harness.reply(left, Outcome::Left { was: Was::Absent }, 7),
            }
        }
    };
    assert!(timeout(SOON, closed).await.expect("bounded").unconfirmed().is_empty());
    let result = timeout(SOON, second).await.expect("the client is closed, and its lock() waits on").unwrap();
    assert_eq!(result.expect_err("closed").kind(), ErrorKind::Closed);
    drop(first);
}
