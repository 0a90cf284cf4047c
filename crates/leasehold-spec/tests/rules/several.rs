//! Names with several grants at a time. There is no such kind yet: these tests are about the fields that `step` has for it.

use leasehold_spec::limits::{NOT_AFTER_MAX_US, RETENTION_US};
use leasehold_spec::{
    Acquire, Answer, Delivery, Env, Event, GrantId, Op, Outcome, Patience, Resource, Take, Token, step,
};

use crate::world::{START_US, World, granted, id, ticket};

const TWO: Take = Take { limit: 2, ..Take::MUTEX };

fn at(resource: &mut Resource, (lease_us, wall_us): (u64, u64), op: &Op) -> (Answer, Vec<Delivery>) {
    step(resource, &Env { wall_us, lease_us, attached: &|_| true }, op)
}

fn acquire(id: GrantId, now_us: u64, lease_ms: u64, patience: Patience) -> Op {
    let not_after_us = now_us + NOT_AFTER_MAX_US;
    Op::Acquire(Acquire { id, take: TWO, lease_ms, range: 1, not_after_us, patience, label: String::new() })
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

/// A holder has reserved tokens beyond its own. Another grant of the name must not get one of them.
#[test]
fn a_second_grant_gets_no_token_of_a_range() {
    let mut resource = Resource::default();
    let now_us = START_US;
    let (a, b) = (id(1, 1), id(2, 1));
    let Op::Acquire(request) = acquire(a, now_us, 30_000, Patience::Try) else { panic!() };
    let ranged = Op::Acquire(Acquire { range: 1_024, ..request });
    let Outcome::Granted { token, range, .. } = at(&mut resource, (now_us, now_us), &ranged).0.outcome else {
        panic!()
    };
    let second = granted(&at(&mut resource, (now_us, now_us), &acquire(b, now_us, 30_000, Patience::Try)).0);
    assert!(second.get() >= token.get() + range, "{second:?} is one of the {range} tokens from {token:?}");
}
