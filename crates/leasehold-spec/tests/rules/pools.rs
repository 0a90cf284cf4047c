//! Names with several grants at a time: read-write locks and semaphores (P31 to P34, P39, P40).

use leasehold_spec::limits::{CLAIM_MIN_MS, GRANTS_MAX, NOT_AFTER_MAX_US, RETENTION_US, SETTLE_STEPS};
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Env, Event, From, GrantId, Kind, LostHow, Op, Outcome, Patience, Refusal,
    Resource, Rest, Take, Token, step,
};

use crate::world::{LEASE_MS, START_US, World, granted, id, ticket};

const ONE: Take = Take::permits(1, 2);

fn at(resource: &mut Resource, (lease_us, wall_us): (u64, u64), op: &Op) -> (Answer, Vec<Delivery>) {
    step(resource, &Env { wall_us, lease_us, attached: &|_| true }, op)
}

fn acquire(id: GrantId, now_us: u64, lease_ms: u64, patience: Patience) -> Op {
    let not_after_us = now_us + NOT_AFTER_MAX_US;
    Op::Acquire(Acquire { id, take: ONE, lease_ms, range: 1, not_after_us, patience, label: "".into() })
}

fn busy(answer: &Answer) {
    assert!(matches!(answer.outcome, Outcome::Busy { .. }), "{answer:?}");
}

fn refused(answer: &Answer) -> Refusal {
    let Outcome::Refused(refusal) = answer.outcome else { panic!("not refused: {answer:?}") };
    refusal
}

/// Returns the sessions that were granted by the messages so far, in order.
fn served(world: &mut World) -> Vec<GrantId> {
    let granted = |message: &Delivery| (message.event == Event::Granted).then_some(message.id);
    std::mem::take(&mut world.pushed).iter().filter_map(granted).collect()
}

/// A is granted. Much later B is granted the other unit, and gives it back. The wall clock is then set back, to a time
/// between the two. A's lease ends, and nobody asks for the name until the record may be forgotten. It is forgotten by A's
/// old token, although the highest token is B's and lies ahead of the clock.
#[test]
fn a_record_is_not_forgotten_while_its_highest_token_is_ahead_of_the_clock() {
    let mut resource = Resource::default();
    let hour_us = 3_600_000_000;
    let (a, b, c) = (id(1, 1), id(2, 1), id(3, 1));
    granted(&at(&mut resource, (START_US, START_US), &acquire(a, START_US, 20_000_000, Patience::Try)).0);
    let later = START_US + 5 * hour_us;
    let highest = granted(&at(&mut resource, (later, later), &acquire(b, later, 30_000, Patience::Try)).0);
    at(&mut resource, (later, later), &Op::Release { id: b, token: highest, used: highest });
    // The lease clock goes on, and the wall clock is three hours behind.
    let lease_us = START_US + 20_000_000_000 + 2 * RETENTION_US;
    let wall_us = lease_us - 3 * hour_us;
    assert!(wall_us < highest.get(), "the highest token is ahead");
    let next = granted(&at(&mut resource, (lease_us, wall_us), &acquire(c, lease_us, 30_000, Patience::Try)).0);
    assert!(next > highest, "token {next:?} after {highest:?}");
}

/// A holds for a long time, and B for a short one, with the newer token. The record is kept for A.
#[test]
fn a_record_is_kept_for_the_lease_that_ends_last() {
    let mut resource = Resource::default();
    let (a, b) = (id(1, 1), id(2, 1));
    let long = granted(&at(&mut resource, (START_US, START_US), &acquire(a, START_US, 3_600_000, Patience::Try)).0);
    let later = START_US + 1_000_000;
    granted(&at(&mut resource, (later, later), &acquire(b, later, 1_000, Patience::Try)).0);
    let end = later + 10 * RETENTION_US;
    let answer = at(&mut resource, (end, end), &Op::Release { id: a, token: long, used: long }).0;
    assert_eq!(answer.outcome, Outcome::Released);
}

/// Both holders are revoked, the second one with a shorter grace. The waiter re-checks at the end that the message names,
/// so the message must name the first end.
#[test]
fn a_waiter_hears_of_the_end_that_comes_first() {
    let (mut resource, world) = (Resource::default(), World::new());
    let now_us = START_US;
    let (a, b, c) = (id(1, 1), id(2, 1), id(3, 1));
    let first = granted(&at(&mut resource, (now_us, now_us), &acquire(a, now_us, 30_000, Patience::Try)).0);
    let second = granted(&at(&mut resource, (now_us, now_us), &acquire(b, now_us, 30_000, Patience::Try)).0);
    let Patience::Queue(place) = world.request(c).patience else { panic!() };
    ticket(&at(&mut resource, (now_us, now_us), &acquire(c, now_us, 30_000, Patience::Queue(place))).0);
    let revoke = |id: GrantId, token: Token, grace_ms| Op::Revoke { holder: id.public(), token, grace_ms };
    at(&mut resource, (now_us, now_us), &revoke(a, first, 5_000));
    let (answer, messages) = at(&mut resource, (now_us, now_us), &revoke(b, second, 100));
    assert_eq!(answer.outcome, Outcome::Revoking { left_us: 100_000 });
    let ending = messages.iter().find(|message| message.event == Event::Ending).expect("the waiter is told");
    assert_eq!(ending.left_us, 100_000, "the waiter sleeps until the later end");
}

/// P32: the ranges of two grants would cross, and the next token would be one that another grant has reserved.
#[test]
fn grants_of_a_pool_reserve_no_tokens() {
    let mut resource = Resource::default();
    let now_us = START_US;
    let (a, b) = (id(1, 1), id(2, 1));
    let Op::Acquire(request) = acquire(a, now_us, 30_000, Patience::Try) else { panic!() };
    let ranged = Op::Acquire(Acquire { range: 1_024, ..request });
    let Outcome::Granted { token, range, .. } = at(&mut resource, (now_us, now_us), &ranged).0.outcome else {
        panic!()
    };
    assert_eq!(range, 1);
    let reserve = Op::Reserve { id: a, token, range: 64 };
    assert_eq!(at(&mut resource, (now_us, now_us), &reserve).0.outcome, Outcome::Reserved { range: 1 });
    let second = granted(&at(&mut resource, (now_us, now_us), &acquire(b, now_us, 30_000, Patience::Try)).0);
    assert_eq!(second.get(), token.get() + 1);
}

/// P31: the first request fixes the kind and the limit, as long as there is a record.
#[test]
fn clients_that_disagree_are_refused() {
    let mut world = World::new();
    let token = granted(&world.take(id(1, 1), Take::permits(1, 5)));
    let before = world.resource.clone();
    let other = Refusal::Other { kind: Kind::Semaphore, limit: 5 };
    assert_eq!(refused(&world.take(id(2, 1), Take::permits(1, 50))), other);
    assert_eq!(refused(&world.take(id(2, 2), Take::READ)), other);
    assert_eq!(refused(&world.acquire(id(2, 3))), other);
    assert_eq!(world.resource, before, "nothing was changed");
    // Also while nobody holds: a client that knows another limit may still be there.
    world.release(id(1, 1), token);
    assert_eq!(refused(&world.take(id(2, 4), Take::permits(1, 50))), other);
    world.pass(LEASE_MS + 2 * RETENTION_US / 1000);
    granted(&world.take(id(2, 5), Take::permits(1, 50)));
}

/// P32: the claim of P, with the newest token, ends beside two grants. The reply to P's late re-check must say a larger
/// one.
#[test]
fn a_lease_that_ends_by_time_makes_the_highest_token_larger() {
    let mut world = World::new();
    let take = Take::permits(1, 3);
    let tokens = [1, 2, 3].map(|session| granted(&world.take(id(session, 1), take)));
    ticket(&world.take(id(4, 1), take));
    world.release(id(3, 1), tokens[2]);
    let claim = world.resource.last;
    assert_eq!(served(&mut world), [id(4, 1)]);
    ticket(&world.take(id(5, 1), Take::permits(3, 3)));
    world.pass(CLAIM_MIN_MS + 1);
    let again = world.take(id(4, 1), take);
    ticket(&again);
    assert!(again.highest > claim, "{:?} is not larger than the claim's token {claim:?}", again.highest);
}

/// P33: a writer behind a reader is dead. The readers behind it do not wait for the end of the first one.
#[test]
fn a_dead_head_blocks_nobody() {
    let mut world = World::new();
    granted(&world.take(id(1, 1), Take::READ));
    ticket(&world.take(id(2, 1), Take::WRITE));
    world.detached.insert(id(2, 1).session);
    granted(&world.take(id(3, 1), Take::READ));
}

/// P33: a reader was passed over, and a writer has come since. The reader comes back to its place before the writer, and
/// fits.
#[test]
fn a_waiter_that_comes_back_to_the_head_is_granted_at_once() {
    let mut world = World::new();
    let first = granted(&world.take(id(1, 1), Take::READ));
    let writer = granted_writer(&mut world, first);
    let place = ticket(&world.take(id(2, 1), Take::READ));
    world.detached.insert(id(2, 1).session);
    world.release(id(9, 1), writer);
    world.detached.clear();
    granted(&world.take(id(3, 1), Take::READ));
    world.pass(1);
    ticket(&world.take(id(4, 1), Take::WRITE));
    let Patience::Queue(again) = world.request(id(2, 1)).patience else { panic!() };
    let again = Patience::Queue(leasehold_spec::Place { ticket: Some(place), ..again });
    let request = Acquire { take: Take::READ, patience: again, ..world.request(id(2, 1)) };
    granted(&world.step(&Op::Acquire(request)));
}

/// A copy of the first request of a waiter arrives while its inbox is detached. The step passes the waiter over, and puts
/// it back to its place.
#[test]
fn a_waiter_that_is_passed_over_by_its_own_request_keeps_its_place() {
    let mut world = World::new();
    granted(&world.take(id(1, 1), Take::permits(2, 2)));
    let place = ticket(&world.take(id(2, 1), Take::permits(1, 2)));
    world.pass(1);
    ticket(&world.take(id(3, 1), Take::permits(1, 2)));
    world.detached.insert(id(2, 1).session);
    assert_eq!(ticket(&world.take(id(2, 1), Take::permits(1, 2))), place);
    assert_eq!(world.resource.queue.front().map(|entry| entry.id), Some(id(2, 1)));
}

/// The only reader gives back, and a writer holds.
fn granted_writer(world: &mut World, reader: Token) -> Token {
    world.release(id(1, 1), reader);
    granted(&world.take(id(9, 1), Take::WRITE))
}

/// P33: the same with no unit free.
#[test]
fn a_dead_head_is_removed_although_nothing_is_free() {
    let mut world = World::new();
    granted(&world.take(id(1, 1), Take::permits(2, 2)));
    ticket(&world.take(id(2, 1), Take::permits(2, 2)));
    world.detached.insert(id(2, 1).session);
    let behind = world.take(id(3, 1), Take::permits(1, 2));
    ticket(&behind);
    assert_eq!(world.resource.queue.len(), 1);
}

/// P33: eight of ten permits are taken, and the head needs five. It leaves: both behind it fit.
#[test]
fn a_leave_serves_all_that_fit_behind() {
    let mut world = World::new();
    let permits = |units| Take::permits(units, 10);
    granted(&world.take(id(1, 1), permits(8)));
    ticket(&world.take(id(2, 1), permits(5)));
    ticket(&world.take(id(3, 1), permits(1)));
    ticket(&world.take(id(4, 1), permits(1)));
    ticket(&world.take(id(5, 1), permits(1)));
    world.step(&Op::Leave { id: id(2, 1), used: Token::NONE });
    assert_eq!(served(&mut world), [id(3, 1), id(4, 1)]);
}

/// Strict order: a request that would fit waits behind one that does not.
#[test]
fn nobody_overtakes_a_waiter_that_needs_more() {
    let mut world = World::new();
    granted(&world.take(id(1, 1), Take::READ));
    ticket(&world.take(id(2, 1), Take::WRITE));
    ticket(&world.take(id(3, 1), Take::READ));
    let Op::Acquire(request) = acquire(id(4, 1), world.now_us, LEASE_MS, Patience::Try) else { panic!() };
    busy(&world.step(&Op::Acquire(Acquire { take: Take::READ, ..request })));
}

/// A writer waits for all readers, and readers that came later wait for the writer.
#[test]
fn readers_share_and_writers_do_not() {
    let mut world = World::new();
    let readers = [1, 2].map(|session| granted(&world.take(id(session, 1), Take::READ)));
    assert!(readers[0] < readers[1]);
    ticket(&world.take(id(3, 1), Take::WRITE));
    ticket(&world.take(id(4, 1), Take::READ));
    ticket(&world.take(id(5, 1), Take::READ));
    world.release(id(2, 1), readers[1]);
    assert_eq!(served(&mut world), []);
    world.release(id(1, 1), readers[0]);
    assert_eq!(served(&mut world), [id(3, 1)]);
    let writer = world.resource.last;
    world.release(id(3, 1), writer);
    assert_eq!(served(&mut world), [id(4, 1), id(5, 1)]);
    assert_eq!(world.resource.grants.units(), 2);
}

/// P34: a writer releases to more readers than a step serves. Reply and last message say that there are more.
#[test]
fn a_step_that_stops_says_so_in_its_last_message() {
    let mut world = World::new();
    let token = granted(&world.take(id(1, 1), Take::WRITE));
    let readers = u128::try_from(SETTLE_STEPS).expect("small") + 10;
    for session in 2..2 + readers {
        ticket(&world.take(id(session, 1), Take::READ));
    }
    assert_eq!(world.release(id(1, 1), token).rest, Rest::More);
    let rests: Vec<_> = world.pushed.iter().map(|message| message.rest).collect();
    assert_eq!(rests.len(), SETTLE_STEPS);
    assert!(rests[..SETTLE_STEPS - 1].iter().all(|rest| *rest == Rest::Done));
    assert_eq!(rests[SETTLE_STEPS - 1], Rest::More, "the one that was granted last goes on");
    assert_eq!(world.step(&Op::Settle).rest, Rest::Done);
    assert_eq!(served(&mut world).len(), usize::try_from(readers).expect("small"));
}

/// P39: a writer becomes a reader, in the same step as those that wait behind it.
#[test]
fn a_downgrade_admits_readers() {
    let mut world = World::new();
    let token = granted(&world.take(id(1, 1), Take::WRITE));
    ticket(&world.take(id(2, 1), Take::READ));
    ticket(&world.take(id(3, 1), Take::WRITE));
    let lower = Op::Lower { id: id(1, 1), token, units: 1 };
    assert_eq!(world.step(&lower).outcome, Outcome::Lowered);
    assert_eq!(served(&mut world), [id(2, 1)]);
    assert_eq!(world.step(&lower).outcome, Outcome::Lowered, "a repeat changes nothing");
    assert_eq!(world.resource.grants.units(), 2);
    assert_eq!(world.step(&Op::Lower { id: id(1, 1), token, units: GRANTS_MAX }).outcome, Outcome::Lowered);
    assert_eq!(world.resource.grants.units(), 2, "units never rise");
    assert_eq!(world.renew(id(1, 1), token, From::Now).outcome, Outcome::Renewed { left_us: LEASE_MS * 1000 });
    let stranger = Op::Lower { id: id(9, 1), token, units: 1 };
    assert_eq!(world.step(&stranger).outcome, Outcome::Lost { how: LostHow::NotHeld });
}

/// P40: a request that can never fit would wait for ever, and block those behind it.
#[test]
fn a_request_that_can_never_fit_is_refused() {
    let mut world = World::new();
    granted(&world.take(id(1, 1), Take::permits(1, 10)));
    assert_eq!(refused(&world.take(id(2, 1), Take::permits(11, 10))), Refusal::TooMany { limit: 10 });
    assert_eq!(refused(&world.take(id(2, 2), Take::permits(0, 10))), Refusal::TooMany { limit: 10 });
}

fn resize(world: &mut World, from: u32, to: u32) -> Outcome {
    let not_after_us = world.now_us;
    world.step(&Op::Resize { from, to, not_after_us }).outcome
}

/// P40: the limit falls below what the head needs. It is removed, and its re-check says why.
#[test]
fn a_smaller_limit_removes_waiters_that_fit_no_more() {
    let mut world = World::new();
    let permits = |units| Take::permits(units, 10);
    let token = granted(&world.take(id(1, 1), permits(9)));
    ticket(&world.take(id(2, 1), permits(8)));
    ticket(&world.take(id(3, 1), permits(2)));
    assert_eq!(resize(&mut world, 10, 5), Outcome::Resized);
    assert_eq!(world.resource.grants.units(), 9, "grants beyond the limit live on");
    assert_eq!(served(&mut world), []);
    world.release(id(1, 1), token);
    assert_eq!(served(&mut world), [id(3, 1)]);
    let again = world.take(id(2, 1), permits(8));
    assert_eq!(refused(&again), Refusal::Other { kind: Kind::Semaphore, limit: 5 });
}

/// P40: a resize that is repeated late does not undo a later one.
#[test]
fn a_resize_compares_the_limit_that_it_saw() {
    let mut world = World::new();
    granted(&world.take(id(1, 1), Take::permits(1, 10)));
    assert_eq!(resize(&mut world, 10, 5), Outcome::Resized);
    assert_eq!(resize(&mut world, 10, 5), Outcome::Resized, "a repeat");
    assert_eq!(resize(&mut world, 5, 20), Outcome::Resized);
    let seen = Outcome::Refused(Refusal::Other { kind: Kind::Semaphore, limit: 20 });
    assert_eq!(resize(&mut world, 10, 5), seen);
    let late = Op::Resize { from: 20, to: 5, not_after_us: world.now_us - 1 };
    assert_eq!(world.step(&late).outcome, Outcome::Late);
}

/// A resize of a name without a record: a client that knows the earlier number must not begin the name with it.
#[test]
fn a_resize_makes_a_record() {
    let mut world = World::new();
    assert_eq!(resize(&mut world, 10, 5), Outcome::Resized);
    world.pass(1_000);
    refused(&world.take(id(1, 1), Take::permits(1, 10)));
    granted(&world.take(id(1, 2), Take::permits(1, 5)));
}

/// A renewal in a pool reads its own grant only. The leases of others end when somebody needs their units.
#[test]
fn a_renewal_leaves_waiters_to_other_steps_until_a_lease_ends() {
    let mut world = World::new();
    let first = granted(&world.take(id(1, 1), ONE));
    world.pass(1_000);
    granted(&world.take(id(2, 1), ONE));
    world.pass(LEASE_MS - 2_000);
    assert!(matches!(world.renew(id(1, 1), first, From::Now).outcome, Outcome::Renewed { .. }));
    ticket(&world.take(id(3, 1), ONE));
    world.pass(2_000);
    world.renew(id(1, 1), first, From::Now);
    assert_eq!(served(&mut world), [id(3, 1)], "the renewal noticed the lease that had ended");
}

/// The clock is set back by an hour. The grants of a pool begin now, and end a lease later.
#[test]
fn grants_of_the_future_begin_now() {
    let mut world = World::new();
    granted(&world.take(id(1, 1), ONE));
    granted(&world.take(id(2, 1), ONE));
    world.now_us -= 3_600_000_000;
    ticket(&world.take(id(3, 1), ONE));
    world.pass(LEASE_MS);
    world.step(&Op::Settle);
    assert_eq!(served(&mut world), [id(3, 1)]);
}

/// The first of several grants that is given back frees its units for those that fit, and only for those.
#[test]
fn units_are_counted() {
    let mut world = World::new();
    let permits = |units| Take::permits(units, 4);
    let two = granted(&world.take(id(1, 1), permits(2)));
    let other = granted(&world.take(id(2, 1), permits(2)));
    assert_eq!(world.take(id(3, 1), permits(3)).contention, Contention::Others);
    ticket(&world.take(id(4, 1), permits(1)));
    world.release(id(1, 1), two);
    assert_eq!(served(&mut world), []);
    world.release(id(2, 1), other);
    assert_eq!(served(&mut world), [id(3, 1), id(4, 1)]);
}

/// A held for a day, and B for a short time after A. The name is free, and a minute later it may be another semaphore.
#[test]
fn a_long_lease_that_was_given_back_keeps_no_record() {
    let mut resource = Resource::default();
    let (a, b, c) = (id(1, 1), id(2, 1), id(3, 1));
    let now_us = START_US;
    let day_ms = 24 * 3_600_000;
    let long = granted(&at(&mut resource, (now_us, now_us), &acquire(a, now_us, day_ms, Patience::Try)).0);
    let short = granted(&at(&mut resource, (now_us, now_us), &acquire(b, now_us, 30_000, Patience::Try)).0);
    for (id, token) in [(a, long), (b, short)] {
        at(&mut resource, (now_us, now_us), &Op::Release { id, token, used: token });
    }
    let later = now_us + 3 * RETENTION_US;
    let Op::Acquire(request) = acquire(c, later, 30_000, Patience::Try) else { panic!() };
    let other = Op::Acquire(Acquire { take: Take::permits(1, 5), ..request });
    granted(&at(&mut resource, (later, later), &other).0);
}
