//! P1: the clock was set back. A time that is in the future moves to now.

use leasehold_spec::limits::{CLAIM_MIN_MS, RETENTION_US};
use leasehold_spec::{From, GrantState, Hears, Op, Outcome, SessionId, Token};

use crate::world::{LEASE_MS, World, granted, id, ticket};

const BACK_US: u64 = 20_000_000;

/// Session 1 holds and session 2 waits. A second passes, and then the clock is set back.
fn set_back() -> (World, Token) {
    let mut world = World::new();
    world.pass(100_000);
    let token = granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    world.pass(1_000);
    world.now_us -= BACK_US;
    (world, token)
}

fn since_us(world: &World) -> u64 {
    world.resource.grants.sole().expect("held").since_us
}

#[test]
fn p1_a_lease_in_the_future_begins_at_the_next_step() {
    let (mut world, _) = set_back();
    let rechecked = world.acquire(id(2, 1));
    let begun_us = world.now_us;
    assert_eq!(since_us(&world), begun_us);
    let left = |outcome: &Outcome| if let Outcome::Queued { left_us, .. } = outcome { *left_us } else { 0 };
    assert_eq!(left(&rechecked.outcome), LEASE_MS * 1000, "no more than the length of the lease");
    world.pass(LEASE_MS - 1);
    assert_eq!(left(&world.acquire(id(2, 1)).outcome), 1_000, "the time moves once");
    world.pass(1);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)), "the lease of the dead holder ends one lease later");
}

#[test]
fn p1_every_step_but_inspect_moves_future_times_to_now() {
    let (world, token) = set_back();
    let wrong = Token::new(token.get() + 1).unwrap();
    let late = world.request(id(3, 1));
    let ops = [
        Op::Settle,
        Op::Acquire(world.request(id(3, 1))),
        Op::Acquire(leasehold_spec::Acquire { not_after_us: 1, ..late }),
        Op::Leave { id: id(2, 1), used: Token::NONE },
        Op::Leave { id: id(9, 1), used: Token::NONE },
        Op::Release { id: id(9, 1), token, used: token },
        Op::Reserve { id: id(1, 1), token, range: 9 },
        Op::Revoke { holder: id(1, 1).public(), token: wrong, grace_ms: 0 },
        Op::Renew(leasehold_spec::Renew {
            id: id(1, 1),
            token: wrong,
            from: From::Now,
            lease_ms: LEASE_MS,
            not_after_us: u64::MAX,
        }),
    ];
    for op in ops {
        let mut world = World { resource: world.resource.clone(), now_us: world.now_us, ..World::new() };
        world.step(&op);
        assert_eq!(since_us(&world), world.now_us, "{op:?}");
    }
}

#[test]
fn p1_inspect_shows_at_most_the_lease_and_changes_nothing() {
    let (mut world, _) = set_back();
    let before = world.resource.clone();
    let Outcome::Inspected(seen) = world.step(&Op::Inspect).outcome else { panic!("not inspected") };
    assert_eq!(seen.holder().expect("held").left_us, LEASE_MS * 1000);
    assert_eq!(world.resource, before);
}

/// The holder counts from a moment before the grant, or before the renewal. The lease begins again at a later moment.
#[test]
fn p1_a_lease_moved_to_now_ends_no_earlier_than_its_holder_believes() {
    for waited_ms in [0, 500, LEASE_MS - 1_000] {
        let (mut world, _) = set_back();
        world.pass(waited_ms);
        // A second has passed before the clock was set back, and `waited_ms` since.
        let believed_us = world.now_us + (LEASE_MS - 1_000 - waited_ms) * 1000;
        world.step(&Op::Settle);
        let grant = world.resource.grants.sole().expect("held");
        assert!(grant.end_us() >= believed_us, "after {waited_ms} ms");
    }
}

#[test]
fn p1_the_record_of_a_lease_moved_to_now_is_kept_just_long_enough() {
    let (mut world, token) = set_back();
    world.step(&Op::Settle);
    let (now_us, kept_us) = (world.now_us, world.resource.keep_until_us);
    assert!(kept_us >= now_us + LEASE_MS * 1000 + RETENTION_US);
    assert!(
        kept_us <= now_us + LEASE_MS * 1000 + RETENTION_US + BACK_US,
        "the token adds the time by which the clock was set back"
    );
    assert!(
        !world.resource.is_forgotten(token.get() + RETENTION_US - 1, u64::MAX),
        "the record is kept for the token in any case"
    );
}

#[test]
fn p1_a_grace_counts_from_now() {
    let (mut world, token) = set_back();
    let revoke = Op::Revoke { holder: id(1, 1).public(), token, grace_ms: 2_000 };
    assert_eq!(world.step(&revoke).outcome, Outcome::Revoking { left_us: 2_000_000 });
    world.pass(2_000);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)));
}

#[test]
fn p1_a_push_is_claimed_after_the_clock_was_set_back() {
    for from in [From::Now, From::Grant] {
        let mut world = World::new();
        world.pass(100_000);
        let token = granted(&world.acquire(id(1, 1)));
        ticket(&world.acquire(id(2, 1)));
        world.release(id(1, 1), token);
        let push = world.pushed.remove(0);
        world.pass(300);
        world.now_us -= BACK_US;
        let claimed = world.renew(id(2, 1), push.token, from);
        assert_eq!(claimed.outcome, Outcome::Renewed { left_us: LEASE_MS * 1000 }, "{from:?}");
        assert_eq!(since_us(&world), world.now_us);
        assert_eq!(world.resource.grants.sole().unwrap().state, GrantState::Held);
    }
}

/// A lapsed claim is noted with its time. If that time were in the future, the session would be passed over until then,
/// even when it is awake.
#[test]
fn p7_a_lapse_in_the_future_moves_to_now() {
    let mut world = World::new();
    world.pass(100_000);
    let token = granted(&world.acquire(id(1, 1)));
    for counter in 1..4 {
        ticket(&world.acquire(id(2, counter)));
        ticket(&world.acquire(id(2 + u128::from(counter), 1)));
    }
    world.release(id(1, 1), token);
    world.pass(CLAIM_MIN_MS);
    world.step(&Op::Settle);
    assert_eq!((world.holder(), world.resource.lapses.len()), (Some(id(3, 1)), 1));
    world.now_us -= BACK_US;
    // The session is awake, and re-checks.
    ticket(&world.with_place(id(2, 2), |_| ()));
    assert_eq!(world.resource.lapses[0].at_us, world.now_us);
    world.pass(1);
    let held = world.resource.grants.sole().unwrap().clone();
    world.release(held.id, held.token);
    assert_eq!(world.holder(), Some(id(2, 2)), "its session sent a request after the claim lapsed");
}

/// An entry that was last seen in the future may have been silent for any time. It is passed over, and its next poll
/// brings it back.
#[test]
fn p6_a_polling_waiter_seen_in_the_future_is_gone_until_it_polls() {
    let mut world = World::new();
    world.pass(100_000);
    let token = granted(&world.acquire(id(1, 1)));
    let mine = ticket(&world.with_place(id(2, 1), |place| place.hears = Hears::Polls));
    ticket(&world.acquire(id(3, 1)));
    world.now_us -= BACK_US;
    let mut polls = World { resource: world.resource.clone(), now_us: world.now_us, ..World::new() };
    world.release(id(1, 1), token);
    assert_eq!(world.holder(), Some(id(3, 1)), "each grant to a dead waiter would cost a claim");
    polls.detached.insert(SessionId(2));
    polls.with_place(id(2, 1), |place| (place.hears, place.ticket) = (Hears::Polls, Some(mine)));
    polls.release(id(1, 1), token);
    assert_eq!(polls.holder(), Some(id(2, 1)));
}
