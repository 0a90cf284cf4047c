//! P23: a lease that was given back and cools down.

use leasehold_spec::limits::RETENTION_US;
use leasehold_spec::{Delivery, Event, From, GrantId, GrantState, LostHow, Op, Outcome, Token, Was};

use crate::world::{LEASE_MS, World, granted, id, ticket};

const COOL_MS: u64 = 7_000;

fn left(was: Was) -> Outcome {
    Outcome::Left { was }
}

fn cool_down(world: &mut World, id: GrantId, used: Token) -> Outcome {
    world.step(&Op::CoolDown { id, used, for_ms: COOL_MS }).outcome
}

/// Session 1 has given the lease back, and the lease cools down.
fn cooling() -> (World, Token) {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    assert_eq!(cool_down(&mut world, id(1, 1), token), left(Was::Granted));
    (world, token)
}

fn endings(world: &mut World) -> Vec<Delivery> {
    std::mem::take(&mut world.pushed).into_iter().filter(|push| push.event == Event::Ending).collect()
}

#[test]
fn p23_nobody_is_granted_a_lease_that_cools_down() {
    let (mut world, token) = cooling();
    ticket(&world.acquire(id(2, 1)));
    world.pass(COOL_MS - 1);
    ticket(&world.acquire(id(3, 1)));
    assert_eq!(world.holder(), Some(id(1, 1)));
    world.pass(1);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)), "the first waiter is served when it is over");
    assert!(world.resource.last > token);
}

#[test]
fn p23_a_cool_down_may_be_longer_than_the_lease() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    world.step(&Op::CoolDown { id: id(1, 1), used: token, for_ms: 3 * LEASE_MS });
    world.pass(3 * LEASE_MS - 1);
    ticket(&world.acquire(id(2, 1)));
    let kept_until_us = world.now_us + 1_000 + RETENTION_US;
    assert_eq!(world.resource.keep_until_us, kept_until_us, "the record outlives the cool-down by R");
}

/// The reply to the first request was lost, and the session repeats it 5 s later.
#[test]
fn p23_a_repeat_does_not_lengthen_a_cool_down() {
    let (mut world, token) = cooling();
    ticket(&world.acquire(id(2, 1)));
    world.pass(5_000);
    assert_eq!(cool_down(&mut world, id(1, 1), token), left(Was::Granted));
    world.pass(COOL_MS - 5_000);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)));
}

#[test]
fn p23_requests_of_the_same_attempt_that_come_late_change_nothing() {
    let (mut world, token) = cooling();
    let before = world.resource.clone();
    let lost = Outcome::Lost { how: LostHow::NotHeld };
    assert_eq!(world.acquire(id(1, 1)).outcome, Outcome::Gone);
    assert_eq!(world.renew(id(1, 1), token, From::Now).outcome, lost);
    assert_eq!(world.renew(id(1, 1), token, From::Grant).outcome, lost);
    assert_eq!(world.step(&Op::Reserve { id: id(1, 1), token, range: 9 }).outcome, lost);
    assert_eq!(world.step(&Op::Leave { id: id(1, 1), used: token }).outcome, left(Was::Absent));
    assert_eq!(world.release(id(1, 1), token).outcome, Outcome::Released, "the release counts as repeated");
    assert_eq!(world.resource, before);
}

#[test]
fn p23_a_grant_that_has_cooled_down_counts_as_given_back() {
    let (mut world, token) = cooling();
    world.pass(COOL_MS);
    assert_eq!(world.acquire(id(1, 1)).outcome, Outcome::Gone);
    assert_eq!(world.release(id(1, 1), token).outcome, Outcome::Released);
    assert!(granted(&world.acquire(id(2, 1))) > token);
}

/// The waiters know the end of the lease, which is later or earlier than the end of the cool-down.
#[test]
fn p23_the_next_waiters_are_notified_when_a_cool_down_ends() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    for session in 2..5 {
        ticket(&world.acquire(id(session, 1)));
    }
    cool_down(&mut world, id(1, 1), token);
    let messages = endings(&mut world);
    let ids: Vec<GrantId> = messages.iter().map(|push| push.id).collect();
    assert_eq!(ids, [id(2, 1), id(3, 1)], "the first two waiters");
    let is_right = |push: &Delivery| (push.token, push.left_us) == (token, COOL_MS * 1000);
    assert!(messages.iter().all(is_right), "{messages:?}");
    // The first one leaves: the next one is notified in its place.
    world.step(&Op::Leave { id: id(2, 1), used: Token::NONE });
    let ids: Vec<GrantId> = endings(&mut world).iter().map(|push| push.id).collect();
    assert_eq!(ids, [id(3, 1), id(4, 1)]);
}

#[test]
fn p23_an_operator_ends_a_cool_down_at_once() {
    let (mut world, token) = cooling();
    ticket(&world.acquire(id(2, 1)));
    let revoke = Op::Revoke { holder: id(1, 1).public(), token, grace_ms: 5_000 };
    assert_eq!(world.step(&revoke).outcome, Outcome::Revoking { left_us: 0 });
    assert_eq!(world.holder(), Some(id(2, 1)), "nobody works under it, so nobody needs the grace");
}

#[test]
fn p23_a_revoked_lease_does_not_cool_down() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    world.step(&Op::Revoke { holder: id(1, 1).public(), token, grace_ms: 5_000 });
    assert_eq!(cool_down(&mut world, id(1, 1), token), left(Was::Granted));
    assert_eq!(world.holder(), Some(id(2, 1)));
}

#[test]
fn p23_a_cool_down_of_a_waiter_is_a_leave() {
    let mut world = World::new();
    granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    assert_eq!(cool_down(&mut world, id(2, 1), Token::NONE), left(Was::Queued));
    assert_eq!(cool_down(&mut world, id(2, 1), Token::NONE), left(Was::Absent));
    assert_eq!(world.holder(), Some(id(1, 1)));
}

/// The range is given back with the lease. No token of it is burnt when the cool-down ends.
#[test]
fn p23_the_next_token_follows_the_last_used_one() {
    let mut world = World::new();
    let mut request = world.request(id(1, 1));
    request.range = 100;
    let token = granted(&world.step(&Op::Acquire(request)));
    cool_down(&mut world, id(1, 1), token.plus(5));
    assert_eq!(world.resource.last, token.plus(5));
    let grant = world.resource.grants.sole().cloned().expect("it cools down");
    assert_eq!((grant.token, grant.range, grant.state), (token.plus(5), 1, GrantState::CoolingDown));
    // The clock is set back, so the next token is the last one plus one.
    world.now_us -= 10_000_000;
    world.step(&Op::Settle);
    world.pass(COOL_MS);
    assert_eq!(granted(&world.acquire(id(2, 1))), token.plus(6));
}

/// The clock was set back by 20 s. The cool-down begins now, and is as long as before.
#[test]
fn p23_a_clock_that_was_set_back_does_not_lengthen_a_cool_down() {
    let (mut world, _) = cooling();
    world.now_us -= 20_000_000;
    ticket(&world.acquire(id(2, 1)));
    world.pass(COOL_MS);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)));
}

/// The server was stalled, and carries out the request when the lease has ended. No other request touched the name
/// meanwhile.
#[test]
fn p23_a_lease_that_has_ended_does_not_cool_down() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    world.pass(LEASE_MS);
    assert_eq!(cool_down(&mut world, id(1, 1), token), left(Was::Granted));
    assert_eq!(world.holder(), Some(id(2, 1)), "the request only gives the lease back");
}
