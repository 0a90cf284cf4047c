//! Condition variables (P41 to P43): notifications are leased, and pass on unless they are spent.

use leasehold_spec::limits::{CLAIM_MIN_MS, RECHECK_MAX_MS, RETENTION_MS, SETTLE_STEPS};
use leasehold_spec::{
    Acquire, Answer, Delivery, Event, GrantId, Joined, Kind, Op, Outcome, Patience, Refusal, Rest, Take, Token, Was,
};

use crate::world::{LEASE_MS, World, granted, id, ticket};

fn wait(world: &mut World, waiter: GrantId) -> u64 {
    ticket(&world.take(waiter, Take::NOTIFICATION))
}

/// Returns whether a re-check says that the waiter entered the queue again, with its ticket.
fn recheck(world: &mut World, waiter: GrantId, ticket: u64) -> Answer {
    let mut request = Acquire { take: Take::NOTIFICATION, ..world.request(waiter) };
    if let Patience::Queue(place) = &mut request.patience {
        place.ticket = Some(ticket);
    }
    world.step(&Op::Acquire(request))
}

fn notify(world: &mut World, count: u32) -> u32 {
    match world.step(&Op::Notify { count }).outcome {
        Outcome::Notified { count } => count,
        other => panic!("not notified: {other:?}"),
    }
}

/// Returns the waiters that were notified by the messages so far, in order, with their tokens.
fn notified(world: &mut World) -> Vec<(GrantId, Token)> {
    let granted = |message: &Delivery| (message.event == Event::Granted).then_some((message.id, message.token));
    std::mem::take(&mut world.pushed).iter().filter_map(granted).collect()
}

fn ids(notified: &[(GrantId, Token)]) -> Vec<GrantId> {
    notified.iter().map(|(id, _)| *id).collect()
}

/// A notification that nobody waits for is nothing: the next waiter waits.
#[test]
fn p42_a_notification_without_a_waiter_is_nothing() {
    let mut world = World::new();
    assert_eq!(notify(&mut world, 1), 0);
    assert_eq!(world.resource, leasehold_spec::Resource::default(), "no record is made for it");
    wait(&mut world, id(1, 1));
    assert_eq!(notify(&mut world, 5), 1, "as many as wait");
    let (waiter, token) = notified(&mut world)[0];
    // It is given back, and nobody waits.
    assert_eq!(world.release(waiter, token).outcome, Outcome::Released);
    wait(&mut world, id(2, 1));
    assert_eq!(notify(&mut world, 1), 1);
    assert_eq!(notify(&mut world, 1), 0, "the only waiter is notified");
}

/// Waiters are notified in the order in which they came.
#[test]
fn waiters_are_notified_in_order() {
    let mut world = World::new();
    for waiter in 1..=4 {
        wait(&mut world, id(waiter, 1));
    }
    assert_eq!(notify(&mut world, 1), 1);
    assert_eq!(ids(&notified(&mut world)), [id(1, 1)]);
    assert_eq!(notify(&mut world, 2), 2);
    assert_eq!(ids(&notified(&mut world)), [id(2, 1), id(3, 1)]);
    assert_eq!(notify(&mut world, u32::MAX), 1);
    assert_eq!(ids(&notified(&mut world)), [id(4, 1)]);
}

/// A notification that is spent is over. A repeat says so, and passes nothing on.
#[test]
fn p42_a_spent_notification_is_not_passed_on() {
    let mut world = World::new();
    wait(&mut world, id(1, 1));
    wait(&mut world, id(2, 1));
    notify(&mut world, 1);
    let (waiter, token) = notified(&mut world)[0];
    let spend = Op::Spend { id: waiter, token };
    for _ in 0..2 {
        assert_eq!(world.step(&spend).outcome, Outcome::Spent);
        assert!(notified(&mut world).is_empty());
    }
    assert_eq!(world.step(&Op::Spend { id: id(9, 1), token }).outcome, Outcome::NotHeld);
    assert_eq!(world.resource.queue.len(), 1);
}

/// The receiver of a notification releases it, leaves, dies while it is awake, or never wakes up. In each case the next
/// waiter is notified.
#[test]
fn p42_a_notification_that_is_not_spent_passes_on() {
    for how in 0..4 {
        let mut world = World::new();
        wait(&mut world, id(1, 1));
        wait(&mut world, id(2, 1));
        notify(&mut world, 1);
        let (waiter, token) = notified(&mut world)[0];
        match how {
            0 => assert_eq!(world.release(waiter, token).outcome, Outcome::Released),
            1 => {
                let left = world.step(&Op::Leave { id: waiter, used: Token::NONE });
                assert_eq!(left.outcome, Outcome::Left { was: Was::Granted });
            }
            2 => {
                world.renew(waiter, token, leasehold_spec::From::Now);
                world.pass(LEASE_MS);
                world.step(&Op::Settle);
            }
            _ => {
                world.pass(CLAIM_MIN_MS);
                world.step(&Op::Settle);
            }
        }
        assert_eq!(ids(&notified(&mut world)), [id(2, 1)], "way {how}");
    }
}

/// A dead waiter is passed over, and the notification is for the one behind it.
#[test]
fn p42_a_dead_waiter_is_passed_over() {
    let mut world = World::new();
    wait(&mut world, id(1, 1));
    wait(&mut world, id(2, 1));
    world.detached.insert(id(1, 1).session);
    assert_eq!(notify(&mut world, 1), 1);
    assert_eq!(ids(&notified(&mut world)), [id(2, 1)]);
}

/// The notified waiter times out at that moment: its leave passes the notification on.
#[test]
fn p42_a_waiter_that_times_out_passes_its_notification_on() {
    let mut world = World::new();
    wait(&mut world, id(1, 1));
    wait(&mut world, id(2, 1));
    notify(&mut world, 1);
    world.pushed.clear();
    let left = world.step(&Op::Leave { id: id(1, 1), used: Token::NONE });
    assert_eq!(left.outcome, Outcome::Left { was: Was::Granted });
    assert_eq!(ids(&notified(&mut world)), [id(2, 1)]);
}

/// The push is lost, and nobody else waits when the claim ends. The unit is gone, and the waiter finds that it has entered
/// the queue again.
#[test]
fn p43_a_waiter_that_was_dropped_learns_of_it() {
    let mut world = World::new();
    let first = wait(&mut world, id(1, 1));
    assert_eq!(notify(&mut world, 1), 1);
    world.pushed.clear();
    world.pass(CLAIM_MIN_MS);
    let answer = recheck(&mut world, id(1, 1), first);
    assert!(matches!(answer.outcome, Outcome::Queued { joined: Joined::Now, .. }), "{answer:?}");
    assert!(ticket(&answer) > first, "the reply may be lost: the next one shows it as well");
    let other = recheck(&mut world, id(1, 1), first);
    assert_eq!(ticket(&other), ticket(&answer), "a repeat at the same moment changes nothing");
    // The reply is lost. The next re-check names the first ticket, too.
    world.pass(1);
    let again = recheck(&mut world, id(1, 1), first);
    assert!(matches!(again.outcome, Outcome::Queued { joined: Joined::Before, .. }), "{again:?}");
    assert_eq!(ticket(&again), ticket(&answer));
}

/// A detached waiter is dropped from the queue by a request of its own, which puts it there again: it may have missed a
/// notification between the two.
#[test]
fn p43_a_waiter_that_its_own_request_finds_detached_learns_of_it() {
    let mut world = World::new();
    let first = wait(&mut world, id(1, 1));
    world.detached.insert(id(1, 1).session);
    let answer = recheck(&mut world, id(1, 1), first);
    assert!(ticket(&answer) > first, "{answer:?}");
    // Also with a copy of the first request, which has no ticket, and all at one moment.
    assert!(ticket(&world.take(id(1, 1), Take::NOTIFICATION)) > ticket(&answer));
}

/// A thousand waiters are notified, and some of the first ones are dead. Each step stops at its bound.
#[test]
fn all_waiters_are_notified_in_steps() {
    let mut world = World::new();
    let all = 4 * SETTLE_STEPS as u128;
    for waiter in 1..=all {
        wait(&mut world, id(waiter, 1));
    }
    world.detached.extend([1, 2, 3].map(|dead| id(dead, 1).session));
    let answer = world.step(&Op::Notify { count: u32::MAX });
    assert_eq!((answer.outcome, answer.rest), (Outcome::Notified { count: all as u32 - 3 }, Rest::More));
    let mut steps = 1;
    while world.step(&Op::Settle).rest == Rest::More {
        steps += 1;
        assert!(steps < 10);
    }
    assert_eq!(notified(&mut world).len(), all as usize - 3);
    // The notifications of the dead are not kept.
    wait(&mut world, id(all + 1, 1));
    assert!(notified(&mut world).is_empty());
}

/// A second notification behind one that stopped at its bound counts those that are on their way.
#[test]
fn notifications_are_never_more_than_waiters() {
    let mut world = World::new();
    let all = 2 * SETTLE_STEPS as u128;
    for waiter in 1..=all {
        wait(&mut world, id(waiter, 1));
    }
    assert_eq!(world.step(&Op::Notify { count: u32::MAX }).rest, Rest::More);
    // This settles first: the rest is notified.
    assert_eq!(notify(&mut world, u32::MAX), 0);
    assert_eq!(notified(&mut world).len(), all as usize);
}

/// Nobody notifies for a long time. The re-checks of the waiter keep the record.
#[test]
fn a_record_lives_as_long_as_a_waiter_asks() {
    let mut world = World::new();
    let first = wait(&mut world, id(1, 1));
    for _ in 0..100 {
        world.pass(RECHECK_MAX_MS * 6 / 5);
        let answer = recheck(&mut world, id(1, 1), first);
        assert!(matches!(answer.outcome, Outcome::Queued { joined: Joined::Before, .. }), "{answer:?}");
        assert_eq!(ticket(&answer), first);
    }
    // Without them it is forgotten.
    world.pass(3 * RETENTION_MS);
    assert_eq!(notify(&mut world, 1), 0);
    assert!(world.resource.queue.is_empty());
}

/// P31: a condition variable that has waiters and no grant is no free name.
#[test]
fn p31_a_condition_is_no_other_kind() {
    let mut world = World::new();
    wait(&mut world, id(1, 1));
    let other = Outcome::Refused(Refusal::Other { kind: Kind::Condition, limit: 0 });
    assert_eq!(world.acquire(id(2, 1)).outcome, other);
    assert_eq!(world.take(id(2, 2), Take::READ).outcome, other);
    let mut mutex = World::new();
    let token = granted(&mutex.acquire(id(1, 1)));
    let other = Outcome::Refused(Refusal::Other { kind: Kind::Mutex, limit: 1 });
    assert_eq!(mutex.take(id(2, 1), Take::NOTIFICATION).outcome, other);
    assert_eq!(mutex.step(&Op::Notify { count: 1 }).outcome, other);
    assert_eq!(mutex.step(&Op::Spend { id: id(1, 1), token }).outcome, Outcome::NotHeld, "a lock is not spent");
    assert!(mutex.holder().is_some());
}
