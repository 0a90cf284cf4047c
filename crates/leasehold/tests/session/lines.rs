//! Hand-over inside the session: who is next, how far it goes, and what becomes of those who wait when it ends (P19 to
//! P21).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use leasehold::seam::World;
use leasehold::{ErrorKind, Guard, Lost, Owner, Released};
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Event, GrantId, LostHow, Op, Order, Outcome, Patience, Rest, Token, Was,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::bench::{Altered, Bench, MS, pause, queued, token};
use crate::store::gone;

type Locking = JoinHandle<leasehold::Result<Guard>>;

async fn soon(locking: Locking) -> Guard {
    timeout(Duration::from_secs(10), locking).await.expect("handed on").unwrap().unwrap()
}

async fn give_back(guard: Guard) {
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

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
        assert_eq!(before.await, Lost::Released);
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

/// Who holds nothing any more hears it by whatever it asks.
#[tokio::test]
async fn p19_a_reservation_that_finds_nothing_is_a_loss() {
    let mut bench = Bench::new().await;
    for (how, highest, why) in [
        (LostHow::Revoked, 7, Lost::Revoked),
        (LostHow::NotHeld, 8, Lost::Expired),
        (LostHow::NotHeld, 99, Lost::Superseded),
        (LostHow::NotHeld, 6, Lost::Forgotten),
    ] {
        let (guard, _) = bench.reserved(30_000, 7, 2).await;
        let mut waiting = bench.in_line(30_000, 1).await;
        give_back(guard).await;
        let guard = soon(waiting.remove(0)).await;
        let reserve = bench.next().await;
        bench.say(reserve, Outcome::Lost { how }, highest);
        assert_eq!(timeout(Duration::from_secs(10), guard.lost()).await.expect("told"), why);
        drop(guard);
        if why == Lost::Revoked {
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

async fn pass(guard: Guard, waiting: &mut VecDeque<Locking>) -> Guard {
    give_back(guard).await;
    soon(waiting.pop_front().unwrap()).await
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
    assert_eq!(guard.check(), Err(Lost::Revoked));
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
    assert_eq!(guard.check(), Err(Lost::Closed));
    let release = bench.next().await;
    assert!(matches!(release.op, Op::Release { used, .. } if used == token(8)), "{:?}", release.op);
    bench.say(release, Outcome::Released, 8);
    assert!(closing.await.unwrap().unconfirmed().is_empty());
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

/// A look that was under way took the lease anew when it had lapsed: somebody may have held in between.
#[tokio::test]
async fn p21_a_run_whose_lease_was_granted_anew_is_over_and_who_waits_goes_on() {
    let mut bench = Bench::new().await;
    let (guard, id) = bench.reserved(30_000, 7, 1_024).await;
    let mut waiting: VecDeque<_> = bench.in_line(30_000, 3).await.into();
    let guard = pass(guard, &mut waiting).await;
    bench.push_range(id, 2_000, 1_024);
    assert_eq!(guard.check(), Err(Lost::Superseded));
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
