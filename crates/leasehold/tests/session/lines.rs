//! Who waits in line inside the session: who is next, and what becomes of the others when a run ends (P21).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::seam::World;
use leasehold::{ErrorKind, LostReason, Owner, Released};
use leasehold_spec::{Acquire, Answer, Contention, Delivery, Event, Op, Order, Outcome, Patience, Rest, Was};
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, give_back, pass, pause, queued, soon, token};

#[tokio::test]
async fn p21_who_waits_here_is_handed_the_lease_in_order_and_without_a_request() {
    let mut bench = Bench::new().await;
    let (mut guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let waiting = bench.in_line(30_000, 5).await;
    for (number, locking) in (8..).zip(waiting) {
        assert!(!locking.is_finished(), "one at a time");
        let before = guard.lost();
        // By either way that a guard has to go.
        if number % 2 == 0 {
            give_back(guard).await;
        } else {
            drop(guard);
        }
        guard = soon(locking).await;
        assert_eq!((guard.token(), guard.check()), (token(number), Ok(token(number))));
        assert_eq!(before.await.reason(), LostReason::Released);
    }
    bench.nothing();
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(12) });
    bench.say(release, Outcome::Released, 12);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    pause(20).await;
    bench.nothing();
}

#[tokio::test]
async fn p21_one_attempt_stands_for_all_who_wait() {
    let mut bench = Bench::new().await;
    let waiting = bench.in_line(30_000, 4).await;
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!(acquire.range, 1_024);
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    bench.nothing();
    bench.push_range(acquire.id, 8, 1_024);
    for (number, locking) in (8..).zip(waiting) {
        assert_eq!(soon(locking).await.token(), token(number));
    }
}

/// A lease of another length is another lease, and who asks for strict order, a fixed lease or a whole one asks for itself.
#[tokio::test]
async fn p21_who_asks_for_something_else_asks_the_store() {
    let mut bench = Bench::new().await;
    let (_guard, _) = bench.reserved(30_000, 7, 1_024).await;
    let mutex = |lease| bench.leasehold.mutex("name").lease(Duration::from_secs(lease));
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
        let (asked, acquire) = bench.next_acquire().await;
        assert_eq!(acquire.range, range);
        assert!(matches!(acquire.patience, Patience::Queue(place) if place.order == order));
        bench.say(asked, queued(1, 60_000), 7);
    }
}

/// A store that knows no queue. It is asked again, and not in the same breath.
#[tokio::test]
async fn who_waits_in_line_and_is_told_that_somebody_holds_asks_again_after_a_while() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (asked, first) = bench.next_acquire().await;
    bench.say(asked, Outcome::Busy { left_us: 30_000 * MS }, 7);
    let (begun, mut before) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_millis(600) {
        if let Ok(Some(asked)) = timeout(Duration::from_millis(50), bench.requests.recv()).await {
            assert!(matches!(&asked.op, Op::Acquire(acquire) if acquire.id == first.id), "{:?}", asked.op);
            bench.say(asked, Outcome::Busy { left_us: 30_000 * MS }, 7);
            before += 1;
        }
    }
    assert!((1..=3).contains(&before), "{before} times");
    assert!(!locking.is_finished());
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(8), left_us: 30_000 * MS, range: 1 }, 8);
    let _held = locking.await.unwrap().unwrap();
    // Who waits for a while hears in time that somebody holds.
    let mutex = bench.leasehold.mutex("other");
    let waiting = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(400)).await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Busy { left_us: 30_000 * MS }, 7);
    assert!(timeout(Duration::from_secs(10), waiting).await.expect("in time").unwrap().unwrap().is_none());
}

/// Without a runtime, and by a store that answers on the caller's stack: what is not sent with the release never is. Time
/// stands still, so that nobody is helped by a request that counts as unanswered.
#[tokio::test]
async fn p21_the_next_one_asks_also_behind_a_release_that_is_answered_at_once() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let owner = Owner::new();
    let mutex = |lease| bench.leasehold.mutex("name").lease(Duration::from_secs(lease)).owner(&owner);
    let (short, long) = (mutex(30), mutex(40));
    let locking = tokio::spawn(async move { short.lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let outer = locking.await.unwrap().unwrap();
    let _waiting = bench.in_line(30_000, 1).await;
    // What makes the run end: a lease that was lengthened.
    let inner = long.lock().await.unwrap();
    give_back(outer).await;
    let renewal = bench.next().await;
    bench.say(renewal, Outcome::Renewed { left_us: 40_000 * MS }, 7);
    pause(20).await;
    let released = bench.answer(Outcome::Released, 7);
    let at_once = move |op: &Op| matches!(op, Op::Release { .. }).then(|| released.clone());
    *bench.store.at_once.lock().unwrap() = Some(Box::new(at_once));
    world.is_without_runtime.store(true, Ordering::SeqCst);
    give_back(inner).await;
    bench.next_acquire().await;
}

/// Its guard may stay out for long: nobody waits for that.
#[tokio::test]
async fn p21_who_waits_behind_a_lease_that_is_lost_asks_at_once() {
    let mut bench = Bench::new().await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 3).await.into();
    let guard = pass(guard, &mut waiting).await;
    bench.deliver(Delivery {
        to: id.session,
        now_us: bench.store.server_us(),
        contention: Contention::Others,
        rest: Rest::Done,
        id,
        token: token(7),
        left_us: 5_000 * MS,
        event: Event::Revoked,
        range: 1_024,
    });
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Revoked));
    let (asked, acquire) = bench.next_acquire().await;
    assert_ne!(acquire.id, id);
    bench.say(asked, queued(1, 5_000), 7);
    drop(guard);
    let release = bench.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(8) });
    bench.say(release, Outcome::Released, 8);
    bench.push_range(acquire.id, 9, 2);
    assert_eq!(soon(waiting.pop_front().unwrap()).await.token(), token(9));
}

#[tokio::test]
async fn p21_the_entry_leaves_with_the_last_of_those_who_wait() {
    let mut bench = Bench::new().await;
    let waiting = bench.in_line(30_000, 3).await;
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    for (left, locking) in (0..3).rev().zip(waiting) {
        locking.abort();
        pause(20).await;
        if left > 0 {
            bench.nothing();
        }
    }
    let (leave, id) = bench.next_leave().await;
    assert_eq!(id, acquire.id);
    bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
}

/// Whoever began the attempt goes before its answer: the others are still there, and the session asks again for them.
#[tokio::test]
async fn p21_an_attempt_outlives_the_one_who_began_it() {
    // Time stands still: the request is not repeated for being late.
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 2).await.into();
    let (_unheard, first) = bench.next_acquire().await;
    waiting.pop_front().unwrap().abort();
    let (asked, again) = bench.next_acquire().await;
    assert_eq!(again.id, first.id);
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 4 }, 7);
    assert_eq!(soon(waiting.pop_front().unwrap()).await.token(), token(7));
}

/// In the moment of the pass the next in line is there; and it goes before it has looked.
#[tokio::test]
async fn p21_a_grant_that_nobody_takes_goes_to_the_next() {
    let mut bench = Bench::new().await;
    let (guard, _) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 3).await.into();
    give_back(guard).await;
    // Told, and not run since: this runtime has one thread.
    waiting.pop_front().unwrap().abort();
    let guard = soon(waiting.pop_front().unwrap()).await;
    assert_eq!(guard.token(), token(9));
    bench.nothing();
    waiting.pop_front().unwrap().abort();
    tokio::task::yield_now().await;
    drop(guard);
    let release = bench.next().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(9)), "{:?}", release.op);
}

#[tokio::test]
async fn p21_each_waiter_has_its_own_patience() {
    let mut bench = Bench::new().await;
    let (guard, _) = bench.reserved(30_000, 7, 1_024).await;
    let mutex = bench.leasehold.mutex("name");
    let within = |ms| {
        let mutex = mutex.clone();
        async move { mutex.try_lock_for(Duration::from_millis(ms)).await }
    };
    let (short, long) = (tokio::spawn(within(100)), tokio::spawn(within(60_000)));
    let begun = Instant::now();
    assert!(short.await.unwrap().unwrap().is_none(), "we hold it ourselves: that is no guess");
    assert!((100..5_000).contains(&begun.elapsed().as_millis()), "{:?}", begun.elapsed());
    assert!(within(0).await.unwrap().is_none());
    assert!(mutex.try_lock().await.unwrap().is_none());
    bench.nothing();
    give_back(guard).await;
    assert_eq!(long.await.unwrap().unwrap().expect("handed on").token(), token(8));
}

/// The first of a line sends its request, and goes before the answer: the thread repeats the request for those who are
/// left. A deadline that has passed meanwhile waits for that answer.
#[tokio::test]
async fn p30_a_deadline_in_a_line_waits_for_the_repeated_request() {
    let mut bench = Bench::new().await;
    let first = bench.lock(30_000);
    let (_unanswered, acquire) = bench.next_acquire().await;
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30));
    let second = tokio::spawn(async move { mutex.try_lock_for(Duration::ZERO).await });
    pause(20).await;
    first.abort();
    let (asked, again) = bench.next_acquire().await;
    assert_eq!(again.id, acquire.id);
    assert!(!second.is_finished());
    bench.say(asked, queued(1, 60_000), 7);
    assert!(second.await.unwrap().expect("the store has answered").is_none());
}

/// A guard is dropped and its run ends, with somebody left in line whose deadline passes in that moment: the next request
/// is the thread's to send, and its answer is awaited like any first one.
#[tokio::test]
async fn p30_a_deadline_waits_for_the_request_that_the_thread_is_about_to_send() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    world.stand_still();
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30));
    let mut waiting = tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(5)).await });
    tokio::task::yield_now().await;
    bench.want(id, 7, Contention::Strict);
    world.set_on(5_000 * MS + 1);
    drop(guard);
    let asked = tokio::select! {
        asked = bench.next_but(|op| !matches!(op, Op::Acquire(_))) => asked,
        early = &mut waiting => panic!("nothing was asked: {early:?}"),
    };
    bench.say(asked, queued(1, 60_000), 8);
    assert!(waiting.await.unwrap().expect("the store is there").is_none());
}

/// The request came too late: it is asked again, and that answer awaited.
#[tokio::test]
async fn p30_a_deadline_waits_for_the_request_behind_a_late_one() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30));
    for mutex in [mutex.clone(), mutex.fair()] {
        let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::ZERO).await });
        let (late, acquire) = bench.next_acquire().await;
        // Twice, and behind the time that the first answer has.
        pause(300).await;
        bench.say(late, Outcome::Late, 7);
        let (late, _) = bench.next_acquire().await;
        pause(300).await;
        bench.say(late, Outcome::Late, 7);
        let (asked, again) = bench.next_acquire().await;
        assert_eq!(again.id, acquire.id);
        bench.say(asked, queued(1, 60_000), 7);
        assert!(trying.await.unwrap().expect("the store has answered").is_none());
        let (leave, _) = bench.next_leave().await;
        bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
    }
}

/// A store that says so each time is asked again each time, and its caller is told in the documented time all the same.
#[tokio::test]
async fn p30_a_deadline_waits_for_no_more_than_two_seconds_of_late_answers() {
    let bench = Bench::new().await;
    let store = Arc::clone(&bench.store);
    let late = bench.answer(Outcome::Late, 7);
    *bench.store.at_once.lock().unwrap() = Some(Box::new(move |op| {
        matches!(op, Op::Acquire(_)).then(|| Answer { now_us: store.server_us(), ..late.clone() })
    }));
    let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30));
    for mutex in [mutex.clone(), mutex.fair()] {
        let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::ZERO).await });
        let told = timeout(Duration::from_secs(3), trying).await.expect("its time is over").unwrap();
        assert_eq!(told.expect_err("nobody knows").kind(), ErrorKind::Unreachable);
    }
}

/// The way to the store takes a second, and four of them are more than the documented time.
#[tokio::test]
async fn p30_a_deadline_waits_for_no_more_than_two_seconds_for_a_claim() {
    for is_fair in [false, true] {
        let mut bench = Bench::far(1_000).await;
        let mutex = bench.leasehold.mutex("name").lease(Duration::from_secs(30));
        let mutex = if is_fair { mutex.fair() } else { mutex };
        let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(300)).await });
        let (asked, acquire) = bench.next_acquire().await;
        bench.say(asked, queued(1, 60_000), 7);
        // It cannot be placed in time, so it is claimed; and no answer comes.
        bench.push(acquire.id, 8, bench.store.server_us() - 40_000 * MS, 60_000 * MS);
        let begun = Instant::now();
        let told = timeout(Duration::from_secs(20), trying).await.expect("an end").unwrap();
        assert_eq!(told.expect_err("nobody knows").kind(), ErrorKind::Unreachable);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}

/// "Somebody else has it" is what a store said, and not what nobody knows (P30).
#[tokio::test]
async fn p30_a_line_of_which_nothing_was_heard_is_not_busy() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name");
    let within = |ms| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(ms)).await })
    };
    let (first, second) = (within(100), within(60_000));
    let (unanswered, acquire) = bench.next_acquire().await;
    let begun = Instant::now();
    assert_eq!(first.await.unwrap().expect_err("nobody knows").kind(), ErrorKind::Unreachable);
    assert!(begun.elapsed() > Duration::from_millis(300), "an answer is awaited for half a second");
    drop(unanswered);
    let (asked, again) = bench.next_acquire().await;
    assert_eq!(again.id, acquire.id);
    bench.say(asked, queued(1, 60_000), 7);
    let third = within(100);
    assert!(third.await.unwrap().unwrap().is_none(), "somebody else has it");
    second.abort();
}

/// A short lease doubts its connection after a sixth of the lease. A caller whose wait has ended awaits half a second all
/// the same: the store may be there, and slow for a moment.
#[tokio::test]
async fn p30_a_short_lease_awaits_its_answer_for_as_long_as_any_other() {
    for is_in_line in [true, false] {
        let mut bench = Bench::new().await;
        let mut mutex = bench.leasehold.mutex("name").lease(Duration::from_millis(400));
        if !is_in_line {
            mutex = mutex.fair();
        }
        let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(5)).await });
        let (asked, _) = bench.next_acquire().await;
        pause(200).await;
        assert!(!trying.is_finished(), "the answer is not late yet");
        bench.say(asked, queued(1, 60_000), 7);
        assert!(trying.await.unwrap().expect("it was answered in time").is_none());
        // It was asked again meanwhile.
        let leave = bench.next_but(|op| matches!(op, Op::Acquire(_))).await;
        bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
    }
}

#[tokio::test]
async fn p21_the_store_is_told_of_the_longest_patience() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name");
    let within = |seconds| {
        let mutex = mutex.clone();
        tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(seconds)).await })
    };
    let limit_ms = |acquire: Acquire| match acquire.patience {
        Patience::Queue(place) => place.limit_ms,
        Patience::Try => panic!("it does not queue"),
    };
    let _short = within(10);
    let (asked, acquire) = bench.next_acquire().await;
    assert!(matches!(limit_ms(acquire), Some(9_000..=10_000)));
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    let _shorter = within(5);
    pause(20).await;
    bench.nothing();
    let _longer = within(60);
    let (asked, acquire) = bench.next_acquire().await;
    assert!(matches!(limit_ms(acquire), Some(59_000..=60_000)), "it looks at once, to say so");
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    let _for_ever = bench.lock(30_000);
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!(limit_ms(acquire), None);
    bench.say(asked, queued(1, 60_000), 7);
}

/// The store drops the entry when the first one's time is over, and the lease, free then, would be nobody's for a look.
#[tokio::test]
async fn p21_who_comes_while_the_store_is_asked_and_waits_for_longer_is_told_too() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name");
    let _short = tokio::spawn(async move { mutex.try_lock_for(Duration::from_secs(10)).await });
    let (asked, acquire) = bench.next_acquire().await;
    assert!(matches!(acquire.patience, Patience::Queue(place) if place.limit_ms.is_some()));
    let _for_ever = bench.in_line(30_000, 1).await;
    bench.say(asked, queued(1, 60_000), 7);
    let (asked, acquire) = timeout(Duration::from_secs(2), bench.next_acquire()).await.expect("before any look is due");
    assert!(matches!(acquire.patience, Patience::Queue(place) if place.limit_ms.is_none()));
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    bench.nothing();
}

/// Nobody else would open the callers' link for as long as an opening may take.
#[tokio::test]
async fn p17_who_comes_to_a_line_without_a_link_opens_the_lane_anew() {
    let mut bench = Bench::new().await;
    bench.store.may_attach.store(false, Ordering::SeqCst);
    bench.store.links().iter().for_each(|line| line.closed.store(true, Ordering::SeqCst));
    bench.cut_home();
    pause(50).await;
    let _waiting = bench.in_line(30_000, 1).await;
    pause(50).await;
    bench.store.may_attach.store(true, Ordering::SeqCst);
    let (_asked, _) = bench.next_acquire().await;
    let open = bench.store.links().iter().filter(|line| !line.closed.load(Ordering::SeqCst)).count();
    assert_eq!(open, 2, "the session's link and the lane");
}

/// Before the inbox is proved the grant would be pushed to nobody (P11).
#[tokio::test]
async fn p11_who_is_left_behind_a_release_asks_when_the_inbox_is_proved() {
    let mut bench = Bench::new().await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let _waiting = bench.in_line(30_000, 1).await;
    bench.want(id, 7, Contention::Strict);
    bench.store.may_attach.store(false, Ordering::SeqCst);
    bench.cut_home();
    pause(50).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    assert!(matches!(release.op, Op::Release { .. }), "{:?}", release.op);
    bench.say(release, Outcome::Released, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    pause(50).await;
    bench.nothing();
    bench.store.may_attach.store(true, Ordering::SeqCst);
    bench.next_acquire().await;
}

#[tokio::test]
async fn p21_the_entry_leaves_when_the_last_has_run_out_of_patience() {
    let mut bench = Bench::new().await;
    let mutex = bench.leasehold.mutex("name");
    let trying = tokio::spawn(async move { mutex.try_lock_for(Duration::from_millis(100)).await });
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    assert!(trying.await.unwrap().unwrap().is_none());
    let (leave, id) = bench.next_leave().await;
    assert_eq!(id, acquire.id);
    bench.say(leave, Outcome::Left { was: Was::Queued }, 7);
}

/// One who only tries holds, and whoever comes then waits for it here.
#[tokio::test]
async fn p21_a_lease_that_was_only_tried_for_is_handed_on_too() {
    let mut bench = Bench::new().await;
    let trying = bench.try_lock("name");
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!((acquire.patience, acquire.range), (Patience::Try, 1_024));
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let guard = trying.await.unwrap().unwrap().expect("granted");
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 1).await.into();
    let guard = pass(guard, &mut waiting).await;
    assert_eq!(guard.token(), token(8));
    bench.nothing();
}

#[tokio::test]
async fn p21_a_store_that_refuses_is_heard_by_all_who_wait() {
    let mut bench = Bench::new().await;
    let waiting = bench.in_line(30_000, 3).await;
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Full, 7);
    for locking in waiting {
        assert_eq!(locking.await.unwrap().expect_err("full").kind(), ErrorKind::Full);
    }
    bench.nothing();
}

#[tokio::test]
async fn p18_a_closed_client_tells_its_lines() {
    let mut bench = Bench::new().await;
    let (guard, _) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 3).await.into();
    let guard = pass(guard, &mut waiting).await;
    let closing = tokio::spawn(bench.leasehold.clone().close());
    for locking in waiting {
        assert_eq!(locking.await.unwrap().expect_err("closed").kind(), ErrorKind::Closed);
    }
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Closed));
    let release = bench.next().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(8)), "{:?}", release.op);
    bench.say(release, Outcome::Released, 8);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
}

/// A look that was under way took the lease anew when it had lapsed: somebody may have held in between.
#[tokio::test]
async fn p21_a_run_whose_lease_was_granted_anew_is_over_and_who_waits_goes_on() {
    let mut bench = Bench::new().await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 3).await.into();
    let guard = pass(guard, &mut waiting).await;
    bench.push_range(id, 2_000, 1_024);
    assert_eq!(guard.check().map_err(|lost| lost.reason()), Err(LostReason::Superseded));
    let (mut given_back, mut asked_anew) = (None, None);
    while given_back.is_none() || asked_anew.is_none() {
        let asked = bench.next().await;
        match asked.op.clone() {
            Op::Release { id: of, token: newer, used } if of == id => given_back = Some((newer, used)),
            Op::Acquire(acquire) => asked_anew = Some((asked, acquire)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(given_back, Some((token(2_000), token(2_000))), "nothing of it was used");
    let (asked, acquire) = asked_anew.unwrap();
    assert_ne!(acquire.id, id);
    bench.say(asked, Outcome::Granted { token: token(3_100), left_us: 30_000 * MS, range: 4 }, 3_100);
    assert_eq!(soon(waiting.pop_front().unwrap()).await.token(), token(3_100));
    // The guard of the old run ends nothing of the new one.
    drop(guard);
    pause(20).await;
    bench.nothing();
}
