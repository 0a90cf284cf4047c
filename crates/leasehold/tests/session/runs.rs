//! Local runs: which tokens a lease uses when it goes from one local waiter to the next, and how long a run may go on
//! (P19, P20).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::seam::World;
use leasehold::{Guard, LostReason, Owner, Released};
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Event, GrantId, LostHow, Op, Outcome, Patience, Rest, Token, Was,
};
use tokio::time::timeout;

use crate::harness::{Altered, Harness, Locking, MS, guard_of, hand_to_next, pause, queued, release_guard, token};
use crate::store::gone;

/// Expects the release and the acquire that end a local run with a waiter left: in this order, on one connection, and
/// the acquire before the release is answered.
async fn end_of_run(harness: &mut Harness) -> (Token, Acquire) {
    let release = harness.next().await;
    let Op::Release { used, .. } = release.op else { panic!("{:?}", release.op) };
    let (request, acquire) = harness.next_acquire().await;
    assert_eq!(request.link, release.link);
    harness.reply(release, Outcome::Released, used.get());
    harness.reply(request, queued(1, 30_000), used.get());
    (used, acquire)
}

#[tokio::test]
async fn p19_a_local_hand_over_takes_no_unreserved_token() {
    let mut harness = Harness::new().await;
    let (guard, _) = harness.reserved(30_000, 7, 2).await;
    let mut waiting = harness.add_local_waiters(30_000, 2).await.into_iter();
    release_guard(guard).await;
    let guard = guard_of(waiting.next().unwrap()).await;
    assert_eq!(guard.token(), token(8));
    let reserve = harness.next().await;
    assert!(matches!(reserve.op, Op::Reserve { token: of, range: 4, .. } if of == token(7)), "{:?}", reserve.op);
    // The reservation is not answered, so the run ends with the range.
    let releasing = tokio::spawn(guard.release());
    let (used, acquire) = end_of_run(&mut harness).await;
    assert_eq!(used, token(8));
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    harness.push_range(acquire.id, 9, 2);
    assert_eq!(guard_of(waiting.next().unwrap()).await.token(), token(9));
}

/// The grace of a revocation is over, and no request has touched the name since. So the store still has the grant, and
/// the leave of an unanswered acquire ends it. If the server's clock was set back, nothing else reports how much of the
/// range was used.
#[tokio::test]
async fn p19_a_leave_behind_the_grace_reports_the_used_tokens() {
    let mut harness = Harness::new().await;
    let locking = harness.lock(30_000);
    let (lost, Acquire { id, .. }) = harness.next_acquire().await;
    drop(lost.reply.send(Err(gone())));
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let mut waiting = harness.add_local_waiters(30_000, 1).await.into();
    let guard = hand_to_next(guard, &mut waiting).await;
    assert_eq!(guard.token(), token(8));
    let (to, now_us, contention, rest) = (id.session, harness.store.server_us(), Contention::None, Rest::Done);
    let (left_us, range, event) = (50 * MS, 1_024, Event::Revoked);
    harness.deliver(Delivery { to, now_us, contention, rest, id, token: token(7), left_us, range, event });
    assert_eq!(guard.lost().await.reason(), LostReason::Revoked);
    assert_eq!(harness.next().await.op, Op::Leave { id, used: token(8) });
}

/// This session held a grant and gave it up, because no reply came. Then the grant is pushed once more. The store still
/// has it, and the session no longer knows how much of its range was used.
#[tokio::test]
async fn p19_a_ghost_is_left_with_all_of_its_range() {
    let mut harness = Harness::new().await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let mut waiting = harness.add_local_waiters(30_000, 1).await.into();
    let guard = hand_to_next(guard, &mut waiting).await;
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(8) });
    harness.reply(release, Outcome::NotHeld, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
    harness.push_range(id, 7, 1_024);
    assert_eq!(harness.next().await.op, Op::Leave { id, used: Token::HIGHEST });
}

#[tokio::test]
async fn p19_a_range_is_lengthened_when_half_of_it_is_used() {
    let mut harness = Harness::new().await;
    let (mut guard, _) = harness.reserved(30_000, 7, 4).await;
    let waiting = harness.add_local_waiters(30_000, 9).await;
    // The range doubles each time, and once the store reserves fewer tokens than requested.
    let lengthened = [(9, 8, 6), (10, 12, 12), (13, 24, 24)];
    for (number, locking) in (8..).zip(waiting) {
        release_guard(guard).await;
        guard = guard_of(locking).await;
        assert_eq!(guard.token(), token(number));
        if let Some((_, wanted, given)) = lengthened.iter().find(|(at, ..)| *at == number) {
            let request = harness.next().await;
            assert!(matches!(request.op, Op::Reserve { range, .. } if range == *wanted), "{number}: {:?}", request.op);
            harness.reply(request, Outcome::Reserved { range: *given }, 7);
            pause(50).await;
        }
    }
    harness.expect_no_request();
}

/// A range has its maximum length, or is as far ahead of the clock as it may be. Each hand-over would ask for more, and
/// get none.
#[tokio::test]
async fn p19_a_range_that_cannot_be_lengthened_is_not_asked_for_at_each_hand_over() {
    let mut harness = Harness::new().await;
    let begun = Instant::now();
    let (mut guard, _) = harness.reserved(30_000, 7, 64).await;
    let waiting = harness.add_local_waiters(30_000, 60).await;
    let mut reserved = 0;
    for locking in waiting {
        release_guard(guard).await;
        guard = guard_of(locking).await;
        pause(2).await;
        while let Some(request) = harness.try_next() {
            let is_renewal = matches!(request.op, Op::Renew(_));
            reserved += u32::from(!is_renewal);
            let said =
                if is_renewal { Outcome::Renewed { left_us: 30_000 * MS } } else { Outcome::Reserved { range: 64 } };
            harness.reply(request, said, 7);
        }
    }
    let most = 1 + begun.elapsed().as_millis() / 125;
    assert!((1..=most).contains(&reserved.into()), "{reserved} times in {:?}", begun.elapsed());
}

/// A holder that has lost its lease is notified by the reply to any of its requests.
#[tokio::test]
async fn p19_a_reservation_that_finds_nothing_is_a_loss() {
    let mut harness = Harness::new().await;
    for (how, highest, why) in [
        (LostHow::Revoked, 7, LostReason::Revoked),
        (LostHow::NotHeld, 8, LostReason::Expired),
        (LostHow::NotHeld, 99, LostReason::Superseded),
        (LostHow::NotHeld, 6, LostReason::Forgotten),
    ] {
        let (guard, _) = harness.reserved(30_000, 7, 2).await;
        let mut waiting = harness.add_local_waiters(30_000, 1).await;
        release_guard(guard).await;
        let guard = guard_of(waiting.remove(0)).await;
        let reserve = harness.next().await;
        harness.reply(reserve, Outcome::Lost { how }, highest);
        assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("notified").reason(), why);
        drop(guard);
        if why == LostReason::Revoked {
            let release = harness.next().await;
            assert!(matches!(release.op, Op::Release { used, .. } if used == token(8)), "{:?}", release.op);
            harness.reply(release, Outcome::Released, 8);
        }
    }
}

/// Returns a harness with a frozen clock, and a lease of 30 s with many tokens that began at that moment.
async fn frozen(count: usize) -> (Harness, Arc<Altered>, Guard, GrantId, VecDeque<Locking>) {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.freeze();
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let waiting = harness.add_local_waiters(30_000, count).await.into();
    (harness, world, guard, id, waiting)
}

/// Releases the guard, and expects that the lease goes back to the store and not to the next local waiter.
async fn release_ends_run(harness: &mut Harness, guard: Guard) -> (Token, Acquire) {
    let releasing = tokio::spawn(guard.release());
    let end = end_of_run(harness).await;
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    end
}

#[tokio::test]
async fn p20_once_others_wait_a_run_has_64_hand_overs_left() {
    let (mut harness, _, mut guard, id, mut waiting) = frozen(90).await;
    for _ in 0..20 {
        guard = hand_to_next(guard, &mut waiting).await;
    }
    harness.notify_contention(id, 7, Contention::Others);
    assert!(guard.others_wait(), "the holder can see it");
    for _ in 0..64 {
        guard = hand_to_next(guard, &mut waiting).await;
        // The message is repeated: this sets no new bound.
        harness.notify_contention(id, 7, Contention::Others);
    }
    let (used, acquire) = release_ends_run(&mut harness, guard).await;
    assert_eq!(used, token(7 + 84));
    assert!(matches!(acquire.patience, Patience::Queue(place) if place.ticket.is_none()), "to the end of the queue");
}

#[tokio::test]
async fn p20_once_others_wait_a_run_has_10_ms_left() {
    let (mut harness, world, mut guard, id, mut waiting) = frozen(5).await;
    harness.notify_contention(id, 7, Contention::Others);
    world.advance(9_900);
    guard = hand_to_next(guard, &mut waiting).await;
    world.advance(100);
    release_ends_run(&mut harness, guard).await;
}

/// The message that others wait comes by the inbox, and the reply that grants by another connection. Either may be
/// first.
#[tokio::test]
async fn p20_the_message_that_others_wait_may_precede_the_grant() {
    let mut harness = Harness::new().await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 3).await.into();
    let (request, acquire) = harness.next_acquire().await;
    let granted = harness.answer(Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    // This message is about a grant that is over, and says nothing about the new one.
    harness.notify_contention(acquire.id, 6, Contention::Others);
    harness.notify_contention(acquire.id, 7, Contention::Strict);
    request.reply.send(Ok(granted)).unwrap();
    let guard = guard_of(waiting.pop_front().unwrap()).await;
    assert!(guard.others_wait());
    release_ends_run(&mut harness, guard).await;
}

#[tokio::test]
async fn p20_a_strict_waiter_ends_a_run_at_once() {
    let (mut harness, _, mut guard, id, mut waiting) = frozen(5).await;
    guard = hand_to_next(guard, &mut waiting).await;
    harness.notify_contention(id, 7, Contention::Strict);
    release_ends_run(&mut harness, guard).await;
}

/// The last waiter has gone. But a reply from before the message that somebody waits does not prove that, nor does a
/// reply from the same microsecond, because nobody knows which of the two was first.
#[tokio::test]
async fn p20_a_run_goes_on_when_nobody_waits_any_more() {
    let (harness, _, mut guard, id, mut waiting) = frozen(60).await;
    let said_us = harness.store.server_us();
    harness.notify_contention_at(id, 7, Contention::Strict, said_us);
    for no_later_us in [said_us - 1, said_us] {
        harness.notify_contention_at(id, 7, Contention::None, no_later_us);
        assert!(guard.others_wait(), "a reply of {no_later_us}, a message of {said_us}");
    }
    harness.notify_contention_at(id, 7, Contention::None, said_us + 1);
    assert!(!guard.others_wait());
    for _ in 0..50 {
        guard = hand_to_next(guard, &mut waiting).await;
    }
}

/// The message was lost. Without a reply a run ends after a second. A reply says whether others wait.
#[tokio::test]
async fn p20_a_run_ends_without_a_reply_from_the_store() {
    let (mut harness, world, mut guard, _, mut waiting) = frozen(5).await;
    world.advance(500_000);
    guard = hand_to_next(guard, &mut waiting).await;
    // Half of that time is over: the session renews, so that the run may go on.
    let unanswered = harness.next().await;
    assert!(matches!(unanswered.op, Op::Renew(_)), "{:?}", unanswered.op);
    world.advance(490_000);
    guard = hand_to_next(guard, &mut waiting).await;
    world.advance(20_000);
    release_ends_run(&mut harness, guard).await;
}

#[tokio::test]
async fn p20_a_run_goes_on_with_each_answer_until_one_says_that_others_wait() {
    let (mut harness, world, mut guard, _, mut waiting) = frozen(8).await;
    for contention in [Contention::None, Contention::None, Contention::Strict] {
        world.advance(600_000);
        guard = hand_to_next(guard, &mut waiting).await;
        let renewal = harness.next().await;
        assert!(matches!(&renewal.op, Op::Renew(renew) if renew.token == token(7)), "{:?}", renewal.op);
        let answer = Answer { contention, ..harness.answer(Outcome::Renewed { left_us: 30_000 * MS }, 7) };
        renewal.reply.send(Ok(answer)).unwrap();
        pause(20).await;
    }
    release_ends_run(&mut harness, guard).await;
}

/// Half of the granted time is over. This holds for a claim, too.
#[tokio::test]
async fn p20_a_claim_is_passed_on_until_half_of_it_is_over() {
    let world = Altered::world();
    let mut harness = Harness::within(Arc::clone(&world) as Arc<dyn World>).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 3).await.into();
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    harness.push_range(acquire.id, 8, 1_024);
    let mut guard = guard_of(waiting.pop_front().unwrap()).await;
    world.freeze();
    world.advance(400_000);
    guard = hand_to_next(guard, &mut waiting).await;
    let claim = harness.next().await;
    assert!(matches!(claim.op, Op::Renew(_)), "{:?}", claim.op);
    world.advance(100_000);
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    assert!(
        matches!(release.op, Op::Release { used, .. } | Op::Leave { used, .. } if used == token(9)),
        "{:?}",
        release.op
    );
    drop(releasing);
}

#[tokio::test]
async fn p20_a_panic_ends_a_run() {
    let mut harness = Harness::new().await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 2).await.into();
    let section = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("the work panics"));
    });
    assert!(section.await.is_err());
    // The session's thread sends both: first the release, then the acquire of the waiter that is left.
    let release = harness.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(7) });
    let (_asked, acquire) = harness.next_acquire().await;
    harness.push_range(acquire.id, 9, 2);
    assert_eq!(guard_of(waiting.pop_front().unwrap()).await.token(), token(9));
}

#[tokio::test]
async fn p20_a_lease_that_was_lengthened_is_not_passed_on() {
    let mut harness = Harness::new().await;
    let owner = Owner::new();
    let mutex = |lease| harness.leasehold.mutex("name").lease(Duration::from_secs(lease)).owner(&owner);
    let (short, long) = (mutex(30), mutex(40));
    let locking = tokio::spawn(async move { short.lock().await });
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let outer = locking.await.unwrap().unwrap();
    let _waiting = harness.add_local_waiters(30_000, 2).await;
    let inner = long.lock().await.unwrap();
    release_guard(outer).await;
    let renewal = harness.next().await;
    assert!(matches!(&renewal.op, Op::Renew(renew) if renew.lease_ms == 40_000), "{:?}", renewal.op);
    harness.reply(renewal, Outcome::Renewed { left_us: 40_000 * MS }, 7);
    pause(20).await;
    release_ends_run(&mut harness, inner).await;
}

/// An acquire failed, so the guard is returned by a leave instead of a release, possibly by two leaves. Each one
/// reports the used tokens.
#[tokio::test]
async fn p19_each_leave_for_a_release_reports_the_used_tokens() {
    let mut harness = Harness::new().await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 2).await.into();
    let (broken, _) = harness.next_acquire().await;
    assert!(broken.reply.send(Err(gone())).is_ok());
    let (request, _) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let guard = guard_of(waiting.pop_front().unwrap()).await;
    drop(hand_to_next(guard, &mut waiting).await);
    for was in [Was::Granted, Was::Absent] {
        let leave = harness.next_but_renewals().await;
        assert!(matches!(leave.op, Op::Leave { used, .. } if used == token(8)), "{:?}", leave.op);
        harness.reply(leave, Outcome::Left { was }, 8);
    }
}

/// Like any other reply, the reply to a reservation says whether others wait.
#[tokio::test]
async fn p20_the_answer_to_a_reservation_ends_a_run_too() {
    let mut harness = Harness::new().await;
    let (guard, _) = harness.reserved(30_000, 7, 2).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 2).await.into();
    let guard = hand_to_next(guard, &mut waiting).await;
    let reserve = harness.next().await;
    assert!(matches!(reserve.op, Op::Reserve { .. }), "{:?}", reserve.op);
    let answer = harness.answer(Outcome::Reserved { range: 4 }, 7);
    assert!(reserve.reply.send(Ok(Answer { contention: Contention::Strict, ..answer })).is_ok());
    pause(20).await;
    release_ends_run(&mut harness, guard).await;
}

/// If the server's clock jumps ahead, the time of a run in progress gets shorter by the jump as well.
#[tokio::test]
async fn p20_a_jump_of_the_servers_clock_ends_a_run() {
    let (mut harness, world, guard, _, mut waiting) = frozen(2).await;
    world.advance(600_000);
    let guard = hand_to_next(guard, &mut waiting).await;
    let renewal = harness.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "{:?}", renewal.op);
    harness.store.ahead_us.fetch_add(20_000_000, Ordering::SeqCst);
    harness.reply(renewal, Outcome::Late, 7);
    pause(20).await;
    assert!(guard.check().is_ok(), "the jump was shorter than what is left");
    let _releasing = tokio::spawn(guard.release());
    let release = harness.next_but_renewals().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(8)), "{:?}", release.op);
}

/// Each repetition of a release reports the used tokens: on the next connection, and to another run of the server.
#[tokio::test]
async fn p19_a_repeated_release_reports_the_used_tokens() {
    let mut harness = Harness::new().await;
    let (guard, id) = harness.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 2).await.into();
    let guard = hand_to_next(guard, &mut waiting).await;
    drop(hand_to_next(guard, &mut waiting).await);
    let said = Op::Release { id, token: token(7), used: token(9) };
    let unanswered = harness.next().await;
    assert_eq!(unanswered.op, said);
    harness.break_session_link();
    drop(unanswered);
    harness.await_session_link(3).await;
    let again = harness.next().await;
    assert_eq!(again.op, said);
    harness.reply(again, Outcome::Released, 9);
    pause(50).await;
    *harness.store.run.lock().unwrap() = "second".into();
    harness.break_session_link();
    let to_another = harness.next().await;
    assert_eq!(to_another.op, Op::Leave { id, used: token(9) });
}

/// The push says how many tokens there are. The reply to its claim does not.
#[tokio::test]
async fn p19_a_claim_keeps_the_range_of_its_push() {
    let mut harness = Harness::new().await;
    let mut waiting: VecDeque<_> = harness.add_local_waiters(30_000, 3).await.into();
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, queued(1, 60_000), 7);
    pause(20).await;
    harness.deliver(Delivery {
        to: acquire.id.session,
        now_us: harness.store.server_us() - 800 * MS,
        contention: Contention::None,
        rest: Rest::Done,
        id: acquire.id,
        token: token(8),
        left_us: 1_000 * MS,
        event: Event::Granted,
        range: 2,
    });
    let claim = harness.next().await;
    assert!(matches!(claim.op, Op::Renew(_)), "too old to enter on: {:?}", claim.op);
    harness.reply(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
    let guard = hand_to_next(guard_of(waiting.pop_front().unwrap()).await, &mut waiting).await;
    assert_eq!(guard.token(), token(9));
    let reserve = harness.next().await;
    assert!(matches!(reserve.op, Op::Reserve { range: 4, .. }), "{:?}", reserve.op);
    let releasing = tokio::spawn(guard.release());
    let release = harness.next().await;
    assert!(
        matches!(release.op, Op::Release { used, .. } | Op::Leave { used, .. } if used == token(9)),
        "the range is used up: {:?}",
        release.op
    );
    drop(releasing);
}

/// A reply does not know of waiters that come to the store after its request, however late the reply arrives.
#[tokio::test]
async fn p20_an_answer_is_as_old_as_its_request() {
    let (mut harness, world, mut guard, _, mut waiting) = frozen(5).await;
    world.advance(600_000);
    guard = hand_to_next(guard, &mut waiting).await;
    let renewal = harness.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "{:?}", renewal.op);
    world.advance(300_000);
    harness.reply(renewal, Outcome::Renewed { left_us: 30_000 * MS }, 7);
    pause(20).await;
    // 700 ms after the reply, and 1,000 ms after its request.
    world.advance(690_000);
    guard = hand_to_next(guard, &mut waiting).await;
    let unanswered = harness.next().await;
    assert!(matches!(unanswered.op, Op::Renew(_)), "{:?}", unanswered.op);
    world.advance(20_000);
    release_ends_run(&mut harness, guard).await;
}
