//! P23: a vote that was given back and cools down.

use leasehold_spec::node::{Ask, Request, Rings, Said};
use leasehold_spec::{GrantId, GrantState, LostHow, SessionId, Token, Was};

use crate::world::{LEASE_MS, World, granted, id, refused, token, wait, was};

const COOL_MS: u64 = 7_000;

fn cool_down(world: &mut World, id: GrantId, for_ms: u64) -> Was {
    was(&world.vote(&Request::CoolDown { id, upto: Token::HIGHEST, for_ms }).said)
}

fn cooling() -> World {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    assert_eq!(cool_down(&mut world, id(1, 1), COOL_MS), Was::Granted);
    world
}

#[test]
fn p23_nobody_gets_a_vote_that_cools_down() {
    let mut world = cooling();
    assert_eq!(world.ask(id(2, 1), token(6)), refused(Some(id(1, 1)), COOL_MS));
    world.pass(COOL_MS - 1);
    assert_eq!(world.ask_waiting(id(2, 1), token(6), 1), refused(Some(id(1, 1)), 1));
    world.pass(1);
    assert_eq!(world.ask(id(2, 1), token(6)), granted(token(6)));
}

#[test]
fn p23_a_repeat_does_not_lengthen_a_cool_down() {
    let mut world = cooling();
    world.pass(COOL_MS - 1);
    assert_eq!(cool_down(&mut world, id(1, 1), COOL_MS), Was::Granted, "the first reply was lost");
    world.pass(1);
    assert_eq!(world.ask(id(2, 1), token(6)), granted(token(6)));
}

#[test]
fn p23_requests_of_the_same_attempt_that_come_late_change_nothing() {
    let mut world = cooling();
    let before = world.record.clone();
    assert_eq!(world.ask(id(1, 1), token(5)), refused(Some(id(1, 1)), COOL_MS));
    assert_eq!(
        world.ask(id(1, 1), token(9)),
        refused(Some(id(1, 1)), COOL_MS),
        "a later round does not get the vote either"
    );
    assert_eq!(world.renew(id(1, 1), token(5)), Said::Lost { how: LostHow::NotHeld });
    assert_eq!(world.give_back(id(1, 1)), Was::Granted, "the request counts as repeated");
    assert_eq!(world.record, before);
    // The grant does not fill the node either when the cool-down is over.
    world.pass(COOL_MS);
    assert_eq!(world.renew(id(1, 1), token(5)), Said::Lost { how: LostHow::NotHeld });
}

#[test]
fn p23_the_vote_of_a_later_round_does_not_cool_down() {
    let mut world = World::new();
    world.ask(id(1, 1), token(7));
    let late = Request::CoolDown { id: id(1, 1), upto: token(5), for_ms: COOL_MS };
    assert_eq!(was(&world.vote(&late).said), Was::Absent);
    assert_eq!(world.renew(id(1, 1), token(7)), Said::Renewed { left_us: LEASE_MS * 1000 });
}

#[test]
fn p23_a_cool_down_of_a_waiter_is_a_leave() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.ask_waiting(id(2, 1), token(6), 1);
    assert_eq!(cool_down(&mut world, id(2, 1), COOL_MS), Was::Queued);
    assert_eq!((world.waiters(), world.holder()), (Vec::new(), Some(id(1, 1))));
}

#[test]
fn p23_the_next_waiters_are_notified_when_a_cool_down_ends() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    for session in 2..5 {
        let ask = Ask { wait: Some(wait(session.try_into().unwrap())), ..world.request(id(session, 1), token(6)) };
        world.vote(&Request::Ask(ask));
    }
    world.bells.clear();
    cool_down(&mut world, id(1, 1), COOL_MS);
    let rings = Rings::Ending { token: token(5), left_us: COOL_MS * 1000 };
    let messages: Vec<(SessionId, Rings)> = world.bells.iter().map(|bell| (bell.to, bell.rings)).collect();
    assert_eq!(messages, [(SessionId(2), rings), (SessionId(3), rings)], "nobody is called");
}

#[test]
fn p23_an_operator_ends_a_cool_down_at_once() {
    let mut world = cooling();
    assert_eq!(world.revoke(id(1, 1), token(5), 5_000), Said::Revoking { left_us: 0 });
    assert_eq!(world.ask(id(2, 1), token(6)), granted(token(6)));
}

#[test]
fn p23_a_revoked_vote_does_not_cool_down() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.revoke(id(1, 1), token(5), 5_000);
    assert_eq!(world.record.grant.as_ref().map(|granted| granted.state), Some(GrantState::Revoked));
    assert_eq!(cool_down(&mut world, id(1, 1), COOL_MS), Was::Granted);
    assert_eq!(world.holder(), None);
}
