//! Runs inside the session: with which tokens the lease goes from one to the next, and how far (P19, P20).

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

use crate::bench::{Altered, Bench, Locking, MS, give_back, pass, pause, queued, soon, token};
use crate::store::gone;

/// The release and the acquire that leave when a run ends with somebody left in line: in this order, by one link, and the
/// second before the first is answered.
async fn end_of_run(bench: &mut Bench) -> (Token, Acquire) {
    let release = bench.next().await;
    let Op::Release { used, .. } = release.op else { panic!("{:?}", release.op) };
    let (asked, acquire) = bench.next_acquire().await;
    assert_eq!(asked.link, release.link);
    bench.say(release, Outcome::Released, used.get());
    bench.say(asked, queued(1, 30_000), used.get());
    (used, acquire)
}

#[tokio::test]
async fn p19_a_pass_takes_no_token_that_is_not_reserved() {
    let mut bench = Bench::new().await;
    let (guard, _) = bench.reserved(30_000, 7, 2).await;
    let mut waiting = bench.in_line(30_000, 2).await.into_iter();
    give_back(guard).await;
    let guard = soon(waiting.next().unwrap()).await;
    assert_eq!(guard.token(), token(8));
    let reserve = bench.next().await;
    assert!(matches!(reserve.op, Op::Reserve { token: of, range: 4, .. } if of == token(7)), "{:?}", reserve.op);
    // Not answered: the run ends where the range does.
    let releasing = tokio::spawn(guard.release());
    let (used, acquire) = end_of_run(&mut bench).await;
    assert_eq!(used, token(8));
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    bench.push_range(acquire.id, 9, 2);
    assert_eq!(soon(waiting.next().unwrap()).await.token(), token(9));
}

/// The grace of a revocation is over, and nobody has touched the name since: the store still has the grant, and the leave
/// that an unanswered acquire asks for ends it. Behind a clock that was set back that is all that is known of the range.
#[tokio::test]
async fn p19_a_leave_behind_the_grace_says_what_was_used() {
    let mut bench = Bench::new().await;
    let locking = bench.lock(30_000);
    let (lost, Acquire { id, .. }) = bench.next_acquire().await;
    drop(lost.reply.send(Err(gone())));
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let mut waiting = bench.in_line(30_000, 1).await.into();
    let guard = pass(guard, &mut waiting).await;
    assert_eq!(guard.token(), token(8));
    let (to, now_us, contention, rest) = (id.session, bench.store.server_us(), Contention::None, Rest::Done);
    let (left_us, range, event) = (50 * MS, 1_024, Event::Revoked);
    bench.deliver(Delivery { to, now_us, contention, rest, id, token: token(7), left_us, range, event });
    assert_eq!(guard.lost().await.reason(), LostReason::Revoked);
    assert_eq!(bench.next().await.op, Op::Leave { id, used: token(8) });
}

/// A grant that was held here, and given up for want of an answer, is told once more. The store has it still, and of how
/// much of its range was used nobody knows any more.
#[tokio::test]
async fn p19_a_ghost_is_left_with_all_of_its_range() {
    let mut bench = Bench::new().await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting = bench.in_line(30_000, 1).await.into();
    let guard = pass(guard, &mut waiting).await;
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(8) });
    bench.say(release, Outcome::NotHeld, 7);
    assert_eq!(releasing.await.unwrap().unwrap(), Released::NotHeld);
    bench.push_range(id, 7, 1_024);
    assert_eq!(bench.next().await.op, Op::Leave { id, used: Token::HIGHEST });
}

#[tokio::test]
async fn p19_a_range_is_lengthened_when_half_of_it_is_used() {
    let mut bench = Bench::new().await;
    let (mut guard, _) = bench.reserved(30_000, 7, 4).await;
    let waiting = bench.in_line(30_000, 9).await;
    // Twice as many each time, and once it gets fewer than it asked for.
    let lengthened = [(9, 8, 6), (10, 12, 12), (13, 24, 24)];
    for (number, locking) in (8..).zip(waiting) {
        give_back(guard).await;
        guard = soon(locking).await;
        assert_eq!(guard.token(), token(number));
        if let Some((_, wanted, given)) = lengthened.iter().find(|(at, ..)| *at == number) {
            let asked = bench.next().await;
            assert!(matches!(asked.op, Op::Reserve { range, .. } if range == *wanted), "{number}: {:?}", asked.op);
            bench.say(asked, Outcome::Reserved { range: *given }, 7);
            pause(50).await;
        }
    }
    bench.nothing();
}

/// One at its longest, or as far ahead of the clock as it may be: each pass would ask for more, and get none.
#[tokio::test]
async fn p19_a_range_that_cannot_be_lengthened_is_not_asked_for_at_each_pass() {
    let mut bench = Bench::new().await;
    let begun = Instant::now();
    let (mut guard, _) = bench.reserved(30_000, 7, 64).await;
    let waiting = bench.in_line(30_000, 60).await;
    let mut reserved = 0;
    for locking in waiting {
        give_back(guard).await;
        guard = soon(locking).await;
        pause(2).await;
        while let Some(asked) = bench.waiting() {
            let is_renewal = matches!(asked.op, Op::Renew(_));
            reserved += u32::from(!is_renewal);
            let said =
                if is_renewal { Outcome::Renewed { left_us: 30_000 * MS } } else { Outcome::Reserved { range: 64 } };
            bench.say(asked, said, 7);
        }
    }
    let most = 1 + begun.elapsed().as_millis() / 125;
    assert!((1..=most).contains(&reserved.into()), "{reserved} times in {:?}", begun.elapsed());
}

/// Who holds nothing any more hears it by whatever it asks.
#[tokio::test]
async fn p19_a_reservation_that_finds_nothing_is_a_loss() {
    let mut bench = Bench::new().await;
    for (how, highest, why) in [
        (LostHow::Revoked, 7, LostReason::Revoked),
        (LostHow::NotHeld, 8, LostReason::Expired),
        (LostHow::NotHeld, 99, LostReason::Superseded),
        (LostHow::NotHeld, 6, LostReason::Forgotten),
    ] {
        let (guard, _) = bench.reserved(30_000, 7, 2).await;
        let mut waiting = bench.in_line(30_000, 1).await;
        give_back(guard).await;
        let guard = soon(waiting.remove(0)).await;
        let reserve = bench.next().await;
        bench.say(reserve, Outcome::Lost { how }, highest);
        assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told").reason(), why);
        drop(guard);
        if why == LostReason::Revoked {
            let release = bench.next().await;
            assert!(matches!(release.op, Op::Release { used, .. } if used == token(8)), "{:?}", release.op);
            bench.say(release, Outcome::Released, 8);
        }
    }
}

/// A bench whose clock stands still until it is set on, and a lease of 30 s with many tokens, entered at that moment.
async fn standing(count: usize) -> (Bench, Arc<Altered>, Guard, GrantId, VecDeque<Locking>) {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    world.stand_still();
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let waiting = bench.in_line(30_000, count).await.into();
    (bench, world, guard, id, waiting)
}

/// The guard goes back to the store, and not to the next in line.
async fn passes_no_more(bench: &mut Bench, guard: Guard) -> (Token, Acquire) {
    let releasing = tokio::spawn(guard.release());
    let end = end_of_run(bench).await;
    assert_eq!(releasing.await.unwrap().unwrap(), Released::Released);
    end
}

#[tokio::test]
async fn p20_once_others_wait_a_run_has_sixty_four_passes_more() {
    let (mut bench, _, mut guard, id, mut waiting) = standing(90).await;
    for _ in 0..20 {
        guard = pass(guard, &mut waiting).await;
    }
    bench.want(id, 7, Contention::Others);
    assert!(guard.others_wait(), "and who holds can see it");
    for _ in 0..64 {
        guard = pass(guard, &mut waiting).await;
        // Said again: the bound is no new one for that.
        bench.want(id, 7, Contention::Others);
    }
    let (used, acquire) = passes_no_more(&mut bench, guard).await;
    assert_eq!(used, token(7 + 84));
    assert!(matches!(acquire.patience, Patience::Queue(place) if place.ticket.is_none()), "to the end of the queue");
}

#[tokio::test]
async fn p20_once_others_wait_a_run_has_ten_milliseconds_more() {
    let (mut bench, world, mut guard, id, mut waiting) = standing(5).await;
    bench.want(id, 7, Contention::Others);
    world.set_on(9_900);
    guard = pass(guard, &mut waiting).await;
    world.set_on(100);
    passes_no_more(&mut bench, guard).await;
}

/// The word that others wait goes by the inbox, and the answer that grants by another link: either may be first.
#[tokio::test]
async fn p20_the_word_that_others_wait_may_be_there_before_the_grant() {
    let mut bench = Bench::new().await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 3).await.into();
    let (asked, acquire) = bench.next_acquire().await;
    let granted = bench.answer(Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    // Of a grant that is over: it says nothing of this one.
    bench.want(acquire.id, 6, Contention::Others);
    bench.want(acquire.id, 7, Contention::Strict);
    asked.reply.send(Ok(granted)).unwrap();
    let guard = soon(waiting.pop_front().unwrap()).await;
    assert!(guard.others_wait());
    passes_no_more(&mut bench, guard).await;
}

#[tokio::test]
async fn p20_a_strict_waiter_ends_a_run_at_once() {
    let (mut bench, _, mut guard, id, mut waiting) = standing(5).await;
    guard = pass(guard, &mut waiting).await;
    bench.want(id, 7, Contention::Strict);
    passes_no_more(&mut bench, guard).await;
}

/// Who waited has gone; but an answer from before the word that somebody waits does not say that, nor one from the same
/// microsecond, in which nobody knows which was first.
#[tokio::test]
async fn p20_a_run_goes_on_when_nobody_waits_any_more() {
    let (bench, _, mut guard, id, mut waiting) = standing(60).await;
    let said_us = bench.store.server_us();
    bench.want_at(id, 7, Contention::Strict, said_us);
    for no_later_us in [said_us - 1, said_us] {
        bench.want_at(id, 7, Contention::None, no_later_us);
        assert!(guard.others_wait(), "said at {no_later_us}, known from {said_us}");
    }
    bench.want_at(id, 7, Contention::None, said_us + 1);
    assert!(!guard.others_wait());
    for _ in 0..50 {
        guard = pass(guard, &mut waiting).await;
    }
}

/// The message was lost: without an answer a run ends after a second, and an answer says that others wait.
#[tokio::test]
async fn p20_a_run_ends_without_a_word_from_the_store() {
    let (mut bench, world, mut guard, _, mut waiting) = standing(5).await;
    world.set_on(500_000);
    guard = pass(guard, &mut waiting).await;
    // Half of that time is over: it asks, so that the run may go on.
    let unanswered = bench.next().await;
    assert!(matches!(unanswered.op, Op::Renew(_)), "{:?}", unanswered.op);
    world.set_on(490_000);
    guard = pass(guard, &mut waiting).await;
    world.set_on(20_000);
    passes_no_more(&mut bench, guard).await;
}

#[tokio::test]
async fn p20_a_run_goes_on_with_each_answer_until_one_says_that_others_wait() {
    let (mut bench, world, mut guard, _, mut waiting) = standing(8).await;
    for contention in [Contention::None, Contention::None, Contention::Strict] {
        world.set_on(600_000);
        guard = pass(guard, &mut waiting).await;
        let renewal = bench.next().await;
        assert!(matches!(&renewal.op, Op::Renew(renew) if renew.token == token(7)), "{:?}", renewal.op);
        let answer = Answer { contention, ..bench.answer(Outcome::Renewed { left_us: 30_000 * MS }, 7) };
        renewal.reply.send(Ok(answer)).unwrap();
        pause(20).await;
    }
    passes_no_more(&mut bench, guard).await;
}

/// Half of what was granted is over, be it a claim.
#[tokio::test]
async fn p20_a_claim_is_passed_on_until_half_of_it_is_over() {
    let world = Altered::world();
    let mut bench = Bench::within(Arc::clone(&world) as Arc<dyn World>).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 3).await.into();
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    bench.push_range(acquire.id, 8, 1_024);
    let mut guard = soon(waiting.pop_front().unwrap()).await;
    world.stand_still();
    world.set_on(400_000);
    guard = pass(guard, &mut waiting).await;
    let claim = bench.next().await;
    assert!(matches!(claim.op, Op::Renew(_)), "{:?}", claim.op);
    world.set_on(100_000);
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    assert!(
        matches!(release.op, Op::Release { used, .. } | Op::Leave { used, .. } if used == token(9)),
        "{:?}",
        release.op
    );
    drop(releasing);
}

#[tokio::test]
async fn p20_a_panic_ends_a_run() {
    let mut bench = Bench::new().await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 2).await.into();
    let section = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("the work gives up"));
    });
    assert!(section.await.is_err());
    // By the session's thread: the release first, and whoever waits asks the store again.
    let release = bench.next().await;
    assert_eq!(release.op, Op::Release { id, token: token(7), used: token(7) });
    let (_asked, acquire) = bench.next_acquire().await;
    bench.push_range(acquire.id, 9, 2);
    assert_eq!(soon(waiting.pop_front().unwrap()).await.token(), token(9));
}

#[tokio::test]
async fn p20_a_lease_that_was_lengthened_is_not_passed_on() {
    let mut bench = Bench::new().await;
    let owner = Owner::new();
    let mutex = |lease| bench.leasehold.mutex("name").lease(Duration::from_secs(lease)).owner(&owner);
    let (short, long) = (mutex(30), mutex(40));
    let locking = tokio::spawn(async move { short.lock().await });
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let outer = locking.await.unwrap().unwrap();
    let _waiting = bench.in_line(30_000, 2).await;
    let inner = long.lock().await.unwrap();
    give_back(outer).await;
    let renewal = bench.next().await;
    assert!(matches!(&renewal.op, Op::Renew(renew) if renew.lease_ms == 40_000), "{:?}", renewal.op);
    bench.say(renewal, Outcome::Renewed { left_us: 40_000 * MS }, 7);
    pause(20).await;
    passes_no_more(&mut bench, inner).await;
}

/// An acquire that broke off makes a leave of the release, and may make it two: each says what was used.
#[tokio::test]
async fn p19_a_leave_for_a_release_says_what_was_used_each_time() {
    let mut bench = Bench::new().await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 2).await.into();
    let (broken, _) = bench.next_acquire().await;
    assert!(broken.reply.send(Err(gone())).is_ok());
    let (asked, _) = bench.next_acquire().await;
    bench.say(asked, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1_024 }, 7);
    let guard = soon(waiting.pop_front().unwrap()).await;
    drop(pass(guard, &mut waiting).await);
    for was in [Was::Granted, Was::Absent] {
        let leave = bench.next_but_renewals().await;
        assert!(matches!(leave.op, Op::Leave { used, .. } if used == token(8)), "{:?}", leave.op);
        bench.say(leave, Outcome::Left { was }, 8);
    }
}

/// The answer to a reservation says whether others wait, like any other.
#[tokio::test]
async fn p20_the_answer_to_a_reservation_ends_a_run_too() {
    let mut bench = Bench::new().await;
    let (guard, _) = bench.reserved(30_000, 7, 2).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 2).await.into();
    let guard = pass(guard, &mut waiting).await;
    let reserve = bench.next().await;
    assert!(matches!(reserve.op, Op::Reserve { .. }), "{:?}", reserve.op);
    let answer = bench.answer(Outcome::Reserved { range: 4 }, 7);
    assert!(reserve.reply.send(Ok(Answer { contention: Contention::Strict, ..answer })).is_ok());
    pause(20).await;
    passes_no_more(&mut bench, guard).await;
}

/// What the server's clock jumps ahead is taken off the run as well, while it goes on.
#[tokio::test]
async fn p20_a_jump_of_the_servers_clock_ends_a_run() {
    let (mut bench, world, guard, _, mut waiting) = standing(2).await;
    world.set_on(600_000);
    let guard = pass(guard, &mut waiting).await;
    let renewal = bench.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "{:?}", renewal.op);
    bench.store.ahead_us.fetch_add(20_000_000, Ordering::SeqCst);
    bench.say(renewal, Outcome::Late, 7);
    pause(20).await;
    assert!(guard.check().is_ok(), "the jump was shorter than what is left");
    let _releasing = tokio::spawn(guard.release());
    let release = bench.next_but_renewals().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(8)), "{:?}", release.op);
}

/// What was used is said as often as the release is: on the next link, and to another run.
#[tokio::test]
async fn p19_a_repeated_release_says_what_was_used() {
    let mut bench = Bench::new().await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 2).await.into();
    let guard = pass(guard, &mut waiting).await;
    drop(pass(guard, &mut waiting).await);
    let said = Op::Release { id, token: token(7), used: token(9) };
    let unanswered = bench.next().await;
    assert_eq!(unanswered.op, said);
    bench.cut_home();
    drop(unanswered);
    bench.home_again(3).await;
    let again = bench.next().await;
    assert_eq!(again.op, said);
    bench.say(again, Outcome::Released, 9);
    pause(50).await;
    *bench.store.run.lock().unwrap() = "second".into();
    bench.cut_home();
    let to_another = bench.next().await;
    assert_eq!(to_another.op, said);
}

/// The push says how many tokens there are, and the answer to its claim does not.
#[tokio::test]
async fn p19_a_claim_keeps_the_range_of_its_push() {
    let mut bench = Bench::new().await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 3).await.into();
    let (asked, acquire) = bench.next_acquire().await;
    bench.say(asked, queued(1, 60_000), 7);
    pause(20).await;
    bench.deliver(Delivery {
        to: acquire.id.session,
        now_us: bench.store.server_us() - 800 * MS,
        contention: Contention::None,
        rest: Rest::Done,
        id: acquire.id,
        token: token(8),
        left_us: 1_000 * MS,
        event: Event::Granted,
        range: 2,
    });
    let claim = bench.next().await;
    assert!(matches!(claim.op, Op::Renew(_)), "too old to enter on: {:?}", claim.op);
    bench.say(claim, Outcome::Renewed { left_us: 30_000 * MS }, 8);
    let guard = pass(soon(waiting.pop_front().unwrap()).await, &mut waiting).await;
    assert_eq!(guard.token(), token(9));
    let reserve = bench.next().await;
    assert!(matches!(reserve.op, Op::Reserve { range: 4, .. }), "{:?}", reserve.op);
    let releasing = tokio::spawn(guard.release());
    let release = bench.next().await;
    assert!(
        matches!(release.op, Op::Release { used, .. } | Op::Leave { used, .. } if used == token(9)),
        "the range is used up: {:?}",
        release.op
    );
    drop(releasing);
}

/// Whoever comes to the store behind the request is not in its answer, however late that is heard.
#[tokio::test]
async fn p20_an_answer_is_as_old_as_its_request() {
    let (mut bench, world, mut guard, _, mut waiting) = standing(5).await;
    world.set_on(600_000);
    guard = pass(guard, &mut waiting).await;
    let renewal = bench.next().await;
    assert!(matches!(renewal.op, Op::Renew(_)), "{:?}", renewal.op);
    world.set_on(300_000);
    bench.say(renewal, Outcome::Renewed { left_us: 30_000 * MS }, 7);
    pause(20).await;
    // 700 ms behind the answer, and 1,000 behind what it answers.
    world.set_on(690_000);
    guard = pass(guard, &mut waiting).await;
    let unanswered = bench.next().await;
    assert!(matches!(unanswered.op, Op::Renew(_)), "{:?}", unanswered.op);
    world.set_on(20_000);
    passes_no_more(&mut bench, guard).await;
}
