//! Local queues of the session: the order of the waiters, and what happens to the others when a local run ends (P21).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::seam::World;
use leasehold::{ErrorKind, LostReason, Owner, Released};
use leasehold_spec::{Acquire, Answer, Contention, Delivery, Event, Op, Order, Outcome, Patience, Rest, Was};
use tokio::time::timeout;

use crate::harness::{Altered, Harness, MS, guard_of, hand_to_next, pause, queued, release_guard, token};

#[tokio::test]
async fn p21_local_waiters_get_the_lease_in_order_and_without_a_request() {
    let mut harness = Harness::new().await;
    let (mut guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let waiting = harness.add_local_waiters(30_000, 5).await;
    for (number, locking) in (8..).zip(waiting) {
        assert!(!locking.is_finished(), "one at a time");
        let before = guard.lost();
        // Releases the guard in one of the two possible ways.
        if number % 2 == 0 {
            release_guard(guard).await;
        } else {
            drop(guard);
        }
        guard = guard_of(locking).await;
        assert_eq!((guard.token(), guard.check()), (token(number), Ok(token(number))));
        assert_eq!(before.await.reason(), LostReason::Released);
    }
    harness.expect_no_request();
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(12) });
    harness.reply(release, Outcome::Released, 12);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    pause(20).await;
    harness.expect_no_request();
}

#[tokio::test]
async fn p21_one_attempt_represents_all_local_waiters() {
    let mut harness = Harness::new().await;
    let waiting = harness.add_local_waiters(30_000, 4).await;
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!(acquire.range, 1_024);
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    harness.expect_no_request();
    harness.push_range(acquire.id, 8, 1_024);
    for (number, locking) in (8..).zip(waiting) {
        assert_eq!(guard_of(locking).await.token(), token(number));
    }
}

/// A lease of another length is another lease. A caller that asks for strict order, for a fixed lease or for a whole
/// lease sends a request of its own.
#[tokio::test]
async fn p21_a_caller_with_other_terms_asks_the_store() {
    let mut harness = Harness::new().await;
    let (_guard, _) = harness.reserved(30_000, 7, 1_024).await;
    let mutex = |lease| harness.leasehold.mutex("name").lease(Duration::from_secs(lease));
    let others = [
        (mutex(20), 1_024, Order::Relaxed),
        (mutex(30).fair(), 1, Order::Strict),
        (mutex(30).full_lease(), 1, Order::Relaxed),
        (mutex(30).max_hold(Duration::from_secs(40)), 1, Order::Relaxed),
        (mutex(30).fixed_lease(Duration::from_secs(30)), 1, Order::Relaxed),
    ];
    let mut waiting = Vec::new();
    for (mutex, range, order) in others {
        waiting.push(tokio::spawn(async move { mutex.lock().await }));
        let (request, acquire) = harness.next_acquire().await;
        assert_eq!(acquire.range, range);
        assert!(matches!(acquire.patience, Patience::Queue(place) if place.order == order));
        harness.reply(request, queued(1, 60_000), 7);
    }
}

/// The store knows no queue. The session asks it again, but not immediately.
#[tokio::test]
async fn a_local_waiter_asks_a_busy_store_again_after_a_while() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (request, first) = harness.next_acquire().await;
    harness.reply(request, Outcome::Busy { left_us: 30_000 * MS }, 7);
    let (begun, mut before) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_millis(600) {
        if let Ok(Some(request)) = timeout(Duration::from_millis(50), harness.requests.recv()).await {
            assert!(matches!(&request.op, Op::Acquire(acquire) if acquire.id == first.id), "{:?}", request.op);
            harness.reply(request, Outcome::Busy { left_us: 30_000 * MS }, 7);
            before += 1;
        }
    }
    assert!((1..=3).contains(&before), "{before} times");
    assert!(!locking.is_finished());
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    let _held = locking.await.unwrap().unwrap();
    // A waiter with a deadline gets the reply "busy" in time.
    let mutex = harness.leasehold.mutex("other");
    let waiting = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(400)).await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Busy { left_us: 30_000 * MS }, 7);
    assert!(timeout(Duration::from_secs(10), waiting).await.expect("in time").unwrap().unwrap().is_none());
}

/// The callers have no runtime, and the store replies on the caller's stack. A request that is not sent together with
/// the release would never be sent. Time is frozen, so no request is repeated because it counts as unanswered.
#[tokio::test]
async fn p21_the_next_waiter_asks_also_behind_a_release_that_is_answered_at_once() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let owner = Owner::new();
    let mutex = |lease| harness.leasehold.mutex("name").lease(Duration::from_secs(lease)).owner(&owner);
    let (short, long) = (mutex(30), mutex(40));
    let locking = tokio::spawn(async move { short.lock().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let outer = locking.await.unwrap().unwrap();
    let _waiting = harness.add_local_waiters(30_000, 1).await;
    // The lease was lengthened, so the local run ends.
    let inner = long.lock().await.unwrap();
    release_guard(outer).await;
    let renewal = harness.next().await;
    harness.reply(renewal, Outcome::Renewed { left_us: 40_000 * MS }, 7);
    pause(20).await;
    let released = harness.answer(Outcome::Released, 7);
    let at_once = move |op: &Op| matches!(op, Op::Release { .. }).then(|| released.clone());
    *harness.store.at_once.lock().unwrap() = Some(Box::new(at_once));
    world.is_without_runtime.store(true, Ordering::SeqCst);
    release_guard(inner).await;
    harness.next_acquire().await;
}

/// The lost guard may stay out for long. Nobody waits for it.
#[tokio::test]
async fn p21_a_waiter_behind_a_lost_lease_asks_at_once() {
    let mut harness = Harness::new().await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 3).await.into();
    let guard = hand_to_next(guard, &mut waiting).await;
    harness.deliver(Delivery {
        to: id.session,
        now_us: harness.store.server_us(),
        contention: Contention::Others,
        rest: Rest::Done,
        id,
        token: token(7),
        left_us: 5_000 * MS,
        event: Event::Revoked,
        range: 1_024,
    });
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Revoked));
    let (request, acquire) = harness.next_acquire().await;
    assert_ne!(acquire.id, id);
    harness.reply(request, queued(1, 5_000), 7);
    drop(guard);
    let release = harness.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(8) });
    harness.reply(release, Outcome::Released, 8);
    harness.push_range(acquire.id, 9, 2);
    assert_eq!(guard_of(waiting.pop_front().unwrap()).await.token(), token(9));
}

#[tokio::test]
async fn p21_the_entry_leaves_the_queue_with_its_last_waiter() {
    let mut harness = Harness::new().await;
    let waiting = harness.add_local_waiters(30_000, 3).await;
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    for (left, locking) in (0..3).rev().zip(waiting) {
        locking.abort();
        pause(20).await;
        if left > 0 {
            harness.expect_no_request();
        }
    }
    let (leave, id) = harness.next_leave().await;
    assert_eq!(id, acquire.id);
    harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
}

/// The waiter that began the attempt leaves before the reply comes. The others still wait, and the session asks again
/// for them.
#[tokio::test]
async fn p21_an_attempt_outlives_the_waiter_that_began_it() {
    // Time is frozen, so no request is repeated because its reply is late.
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 2).await.into();
    let (_unheard, first) = harness.next_acquire().await;
    waiting.pop_front().unwrap().abort();
    let (request, again) = harness.next_acquire().await;
    assert_eq!(again.id, first.id);
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 4 }, 7);
    assert_eq!(guard_of(waiting.pop_front().unwrap()).await.token(), token(7));
}

/// The next waiter is there in the moment of the local hand-over. It leaves before its task has seen the guard.
#[tokio::test]
async fn p21_a_grant_that_is_not_taken_goes_to_the_next_waiter() {
    let mut harness = Harness::new().await;
    let (guard, _) = harness.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 3).await.into();
    release_guard(guard).await;
    // This waiter was notified, and has not run since: this runtime has one thread.
    waiting.pop_front().unwrap().abort();
    let guard = guard_of(waiting.pop_front().unwrap()).await;
    assert_eq!(guard.token(), token(9));
    harness.expect_no_request();
    waiting.pop_front().unwrap().abort();
    tokio::task::yield_now().await;
    drop(guard);
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(9)), "{:?}", release.op);
}

#[tokio::test]
async fn p21_each_waiter_has_its_own_deadline() {
    let mut harness = Harness::new().await;
    let (guard, _) = harness.reserved(30_000, 7, 1_024).await;
    let mutex = harness.leasehold.mutex("name");
    let within = |ms| {
        let mutex = mutex.clone();
        async move { mutex.try_lock_for(Duration::from_millis(ms)).await }
    };
    let (short, long) = (tokio::spawn(within(100)), tokio::spawn(within(60_000)));
    let begun = Instant::now();
    assert!(short.await.unwrap().unwrap().is_none(), "this client holds it: the result is certain");
    assert!((100..5_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert!(within(0).await.unwrap().is_none());
    assert!(mutex.try_lock().await.unwrap().is_none());
    harness.expect_no_request();
    release_guard(guard).await;
    assert_eq!(long.await.unwrap().unwrap().expect("handed on").token(), token(8));
}

/// The first waiter of a local queue sends its request, and leaves before the reply. The thread repeats the request for
/// the other waiters. If a deadline has passed meanwhile, its caller waits for that reply.
#[tokio::test]
async fn p30_a_deadline_in_a_local_queue_waits_for_the_repeated_request() {
    let mut harness = Harness::new().await;
    let first = harness.lock(30_000);
    let (_unanswered, acquire) = harness.next_acquire().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
    let second = tokio::spawn(async move { mutex.try_lock_for(Duration::ZERO).await });
    pause(20).await;
    first.abort();
    let (request, again) = harness.next_acquire().await;
    assert_eq!(again.id, acquire.id);
    assert!(!second.is_finished());
    harness.reply(request, queued(1, 60_000), 7);
    assert!(second.await.unwrap().expect("the store has answered").is_none());
}

/// A guard is dropped and its local run ends. A waiter is left in the queue, and its deadline passes in that moment.
/// The thread has to send the next request, and the caller waits for its reply like for a first one.
#[tokio::test]
async fn p30_a_deadline_waits_for_the_request_that_the_thread_is_about_to_send() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    world.freeze();
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
    let mut waiting = tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(5)).await });
    tokio::task::yield_now().await;
    harness.notify_contention(id, 7, Contention::Strict);
    world.advance(5_000 * MS + 1);
    drop(guard);
    let request = tokio::select! {
        request = harness.next_but(|op| !matches!(op, Op::Acquire(_))) => request,
        early = &mut waiting => panic!("the caller did not wait for a request: {early:?}"),
    };
    harness.reply(request, queued(1, 60_000), 8);
    assert!(waiting.await.unwrap().expect("the store has answered").is_none());
}

/// The request reached the store too late. The session repeats it, and the caller waits for the new reply.
#[tokio::test]
async fn p30_a_deadline_waits_for_the_request_behind_a_late_one() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
    for mutex in [mutex.clone(), mutex.fair()] {
        let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::ZERO).await });
        let (late, acquire) = harness.next_acquire().await;
        // The store answers "late" twice, the second time after the time limit of a first reply.
        pause(300).await;
        harness.reply(late, Outcome::Late, 7);
        let (late, _) = harness.next_acquire().await;
        pause(300).await;
        harness.reply(late, Outcome::Late, 7);
        let (request, again) = harness.next_acquire().await;
        assert_eq!(again.id, acquire.id);
        harness.reply(request, queued(1, 60_000), 7);
        assert!(trying.await.unwrap().expect("the store has answered").is_none());
        let (leave, _) = harness.next_leave().await;
        harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
    }
}

/// A store that always answers "late" is asked again each time. Its caller still gets a result within the documented
/// time.
#[tokio::test]
async fn p30_a_deadline_waits_for_no_more_than_two_seconds_of_late_answers() {
    let harness = Harness::new().await;
    let store = Arc::clone(&harness.store);
    let late = harness.answer(Outcome::Late, 7);
    *harness.store.at_once.lock().unwrap() = Some(Box::new(move |op| {
        matches!(op, Op::Acquire(_)).then(|| Answer { now_us: store.server_us(), ..late.clone() })
    }));
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
    for mutex in [mutex.clone(), mutex.fair()] {
        let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::ZERO).await });
        let result = timeout(Duration::from_secs(3), trying).await.expect("its deadline has passed").unwrap();
        assert_eq!(result.expect_err("the state is unknown").kind(), ErrorKind::Unreachable);
    }
}

/// A round trip takes a second. Four of them are more than the documented time.
#[tokio::test]
async fn p30_a_deadline_waits_for_no_more_than_two_seconds_for_a_claim() {
    for is_fair in [false, true] {
        let mut harness = Harness::far(1_000).await;
        let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
        let mutex = if is_fair { mutex.fair() } else { mutex };
        let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(300)).await });
        let (request, acquire) = harness.next_acquire().await;
        harness.reply(request, queued(1, 60_000), 7);
        // The push cannot be placed in time, so the session claims it. No reply comes.
        harness.push(acquire.id, 8, harness.store.server_us() - 40_000 * MS, 60_000 * MS);
        let begun = Instant::now();
        let result = timeout(Duration::from_secs(20), trying).await.expect("an end").unwrap();
        assert_eq!(result.expect_err("the state is unknown").kind(), ErrorKind::Unreachable);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}

/// "Another client has it" must come from a store. A missing reply does not mean that (P30).
#[tokio::test]
async fn p30_a_local_queue_without_a_reply_is_not_busy() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name");
    let within = |ms| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(ms)).await })
    };
    let (first, second) = (within(100), within(60_000));
    let (unanswered, acquire) = harness.next_acquire().await;
    let begun = Instant::now();
    assert_eq!(first.await.unwrap().expect_err("the state is unknown").kind(), ErrorKind::Unreachable);
    assert!(begun.elapsed() > Duration::from_millis(300), "the caller waits for a reply for half a second");
    drop(unanswered);
    let (request, again) = harness.next_acquire().await;
    assert_eq!(again.id, acquire.id);
    harness.reply(request, queued(1, 60_000), 7);
    let third = within(100);
    assert!(third.await.unwrap().unwrap().is_none(), "another client has it");
    second.abort();
}

/// With a short lease, a connection is suspect after a sixth of the lease without a reply. A caller whose deadline has
/// passed still waits half a second: the store may be there, and slow for a moment.
#[tokio::test]
async fn p30_a_short_lease_waits_for_its_reply_as_long_as_any_other() {
    for is_local in [true, false] {
        let mut harness = Harness::new().await;
        let mut mutex = harness.leasehold.mutex("name").lease(Duration::from_millis(400));
        if !is_local {
            mutex = mutex.fair();
        }
        let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(5)).await });
        let (request, _) = harness.next_acquire().await;
        pause(200).await;
        assert!(!trying.is_finished(), "the reply is not late yet");
        harness.reply(request, queued(1, 60_000), 7);
        assert!(trying.await.unwrap().expect("it was answered in time").is_none());
        // The session has repeated the request meanwhile.
        let leave = harness.next_but(|op| matches!(op, Op::Acquire(_))).await;
        harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
    }
}

#[tokio::test]
async fn p21_the_store_gets_the_longest_deadline() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name");
    let within = |seconds| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(seconds)).await })
    };
    let limit_ms = |acquire: Acquire| match acquire.patience {
        Patience::Queue(place) => place.limit_ms,
        Patience::Try => panic!("the acquire does not queue"),
    };
    let _short = within(10);
    let (request, acquire) = harness.next_acquire().await;
    assert!(matches!(limit_ms(acquire), Some(9_000..=10_000)));
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    let _shorter = within(5);
    pause(20).await;
    harness.expect_no_request();
    let _longer = within(60);
    let (request, acquire) = harness.next_acquire().await;
    assert!(matches!(limit_ms(acquire), Some(59_000..=60_000)), "it re-checks at once, to send the new limit");
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    let _for_ever = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!(limit_ms(acquire), None);
    harness.reply(request, queued(1, 60_000), 7);
}

/// The store drops the entry when the first waiter's time is over. If the lease were free then, nobody would get it
/// before the next re-check.
#[tokio::test]
async fn p21_a_longer_deadline_that_comes_during_a_request_is_sent_too() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name");
    let _short = tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(10)).await });
    let (request, acquire) = harness.next_acquire().await;
    assert!(matches!(acquire.patience, Patience::Queue(place) if place.limit_ms.is_some()));
    let _for_ever = harness.add_local_waiters(30_000, 1).await;
    harness.reply(request, queued(1, 60_000), 7);
    let (request, acquire) =
        timeout(Duration::from_secs(2), harness.next_acquire()).await.expect("before any re-check is due");
    assert!(matches!(acquire.patience, Patience::Queue(place) if place.limit_ms.is_none()));
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    harness.expect_no_request();
}

/// Otherwise nobody would open the callers' connection for as long as an opening may take.
#[tokio::test]
async fn p17_a_caller_that_joins_a_local_queue_without_a_link_opens_a_lane() {
    let mut harness = Harness::new().await;
    harness.store.may_attach.store(false, Ordering::SeqCst);
    harness.store.links().iter().for_each(|link| link.closed.store(true, Ordering::SeqCst));
    harness.break_session_link();
    pause(50).await;
    let _waiting = harness.add_local_waiters(30_000, 1).await;
    pause(50).await;
    harness.store.may_attach.store(true, Ordering::SeqCst);
    let (_asked, _) = harness.next_acquire().await;
    let open = harness.store.links().iter().filter(|link| !link.closed.load(Ordering::SeqCst)).count();
    assert_eq!(open, 2, "the session's connection and the lane");
}

/// Before the inbox is proved, the push of the grant would reach nobody (P11).
#[tokio::test]
async fn p11_a_waiter_behind_a_release_asks_when_the_inbox_is_proved() {
    let mut harness = Harness::new().await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let _waiting = harness.add_local_waiters(30_000, 1).await;
    harness.notify_contention(id, 7, Contention::Strict);
    harness.store.may_attach.store(false, Ordering::SeqCst);
    harness.break_session_link();
    pause(50).await;
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    pause(50).await;
    harness.expect_no_request();
    harness.store.may_attach.store(true, Ordering::SeqCst);
    harness.next_acquire().await;
}

#[tokio::test]
async fn p21_the_entry_leaves_the_queue_at_the_last_deadline() {
    let mut harness = Harness::new().await;
    let mutex = harness.leasehold.mutex("name");
    let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(100)).await });
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    assert!(trying.await.unwrap().unwrap().is_none());
    let (leave, id) = harness.next_leave().await;
    assert_eq!(id, acquire.id);
    harness.reply(leave, Outcome::Left { was: Was::Queued }, 7);
}

/// A caller of `try_lock` holds. A waiter that comes later waits for it in the local queue.
#[tokio::test]
async fn p21_a_lease_that_was_only_tried_for_is_handed_on_too() {
    let mut harness = Harness::new().await;
    let trying = harness.try_lock("name");
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!((acquire.patience, acquire.range), (Patience::Try, 1_024));
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let guard = trying.await.unwrap().unwrap().expect("granted");
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 1).await.into();
    let guard = hand_to_next(guard, &mut waiting).await;
    assert_eq!(guard.token(), token(8));
    harness.expect_no_request();
}

#[tokio::test]
async fn p21_all_local_waiters_get_a_refusal_of_the_store() {
    let mut harness = Harness::new().await;
    let waiting = harness.add_local_waiters(30_000, 3).await;
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Full, 7);
    for locking in waiting {
        assert_eq!(locking.await.unwrap().expect_err("full").kind(), ErrorKind::Full);
    }
    harness.expect_no_request();
}

#[tokio::test]
async fn p18_a_closed_client_fails_its_local_waiters() {
    let mut harness = Harness::new().await;
    let (guard, _) = harness.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 3).await.into();
    let guard = hand_to_next(guard, &mut waiting).await;
    let closing = tokio::spawn(harness.leasehold.clone().close());
    for locking in waiting {
        assert_eq!(locking.await.unwrap().expect_err("closed").kind(), ErrorKind::Closed);
    }
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Closed));
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(8)), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 8);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
}

/// A re-check was in flight. It acquired the lease again after the lease had ended, so another client may have held in
/// between.
#[tokio::test]
async fn p21_a_new_grant_ends_the_local_run_and_its_waiters_go_on() {
    let mut harness = Harness::new().await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 3).await.into();
    let guard = hand_to_next(guard, &mut waiting).await;
    harness.push_range(id, 2_000, 1_024);
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Superseded));
    let (mut given_back, mut asked_anew) = (None, None);
    while given_back.is_none() || asked_anew.is_none() {
        let request = harness.next().await;
        match request.op.clone() {
            Op::Release { id: of, token: newer, used } if of == id => given_back = Some((newer, used)),
            Op::Acquire(acquire) => asked_anew = Some((request, acquire)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(given_back, Some((token(2_000), token(2_000))), "no token of it was used");
    let (request, acquire) = asked_anew.unwrap();
    assert_ne!(acquire.id, id);
    harness.reply(request, Outcome::Granted { token: token(3_100), left_us: 30_000 * MS, range: 4 }, 3_100);
    assert_eq!(guard_of(waiting.pop_front().unwrap()).await.token(), token(3_100));
    // The release of the old run's guard does not end the new run.
    drop(guard);
    pause(20).await;
    harness.expect_no_request();
}
