//! P1: a clock that was set back. A time in its future is dated from now.

use leasehold_spec::limits::{CLAIM_MIN_MS, RETENTION_US};
use leasehold_spec::{From, GrantState, Hears, Op, Outcome, SessionId, Token};

use crate::world::{LEASE_MS, World, granted, id, ticket};

const BACK_US: u64 = 20_000_000;

/// Session 1 holds, session 2 waits, a while has passed, and then the clock was set back.
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
fn p1_a_lease_from_the_future_begins_at_the_next_step() {
    let (mut world, _) = set_back();
    let looked = world.acquire(id(2, 1));
    let begun_us = world.now_us;
    assert_eq!(since_us(&world), begun_us);
    let left = |outcome: &Outcome| if let Outcome::Queued { left_us, .. } = outcome { *left_us } else { 0 };
    assert_eq!(left(&looked.outcome), LEASE_MS * 1000, "no more than it is long");
    world.pass(LEASE_MS - 1);
    assert_eq!(left(&world.acquire(id(2, 1)).outcome), 1_000, "dated once");
    world.pass(1);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)), "the dead holder is followed, a lease from then");
}

/// Every step but inspect does.
#[test]
fn p1_whatever_touches_the_name_dates_it() {
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
fn p1_a_look_shows_no_more_than_the_lease_and_changes_nothing() {
    let (mut world, _) = set_back();
    let before = world.resource.clone();
    let Outcome::Inspected(seen) = world.step(&Op::Inspect).outcome else { panic!("a look") };
    assert_eq!(seen.holder.expect("held").left_us, LEASE_MS * 1000);
    assert_eq!(world.resource, before);
}

/// The holder counts from a moment before the grant, or the renewal, and the lease begins anew at a later one.
#[test]
fn p1_a_lease_that_is_dated_anew_ends_no_earlier_than_its_holder_believes() {
    for waited_ms in [0, 500, LEASE_MS - 1_000] {
        let (mut world, _) = set_back();
        world.pass(waited_ms);
        // A second before the clock was set, and what has passed since.
        let believed_us = world.now_us + (LEASE_MS - 1_000 - waited_ms) * 1000;
        world.step(&Op::Settle);
        let grant = world.resource.grants.sole().expect("held");
        assert!(grant.end_us() >= believed_us, "after {waited_ms} ms");
    }
}

#[test]
fn p1_what_is_kept_for_a_lease_that_is_dated_anew_is_enough_and_no_more() {
    let (mut world, token) = set_back();
    world.step(&Op::Settle);
    let (now_us, kept_us) = (world.now_us, world.resource.keep_until_us);
    assert!(kept_us >= now_us + LEASE_MS * 1000 + RETENTION_US);
    assert!(kept_us <= now_us + LEASE_MS * 1000 + RETENTION_US + BACK_US, "and for its token");
    assert!(!world.resource.is_forgotten(token.get() + RETENTION_US - 1, u64::MAX), "the token is kept in any case");
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
fn p1_a_push_is_claimed_behind_a_clock_that_was_set_back() {
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

/// A lapsed claim is noted with its time. With a time in the future its session would be passed over until then, also when
/// it is awake.
#[test]
fn p7_a_lapse_from_the_future_is_dated_from_now() {
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
    // It is awake: it looks.
    ticket(&world.with_place(id(2, 2), |_| ()));
    assert_eq!(world.resource.lapses[0].at_us, world.now_us);
    world.pass(1);
    let held = world.resource.grants.sole().unwrap().clone();
    world.release(held.id, held.token);
    assert_eq!(world.holder(), Some(id(2, 2)), "heard since its claim lapsed");
}

/// An entry that was last seen in the future may have been silent for any time. It is passed over, and its next look brings
/// it back.
#[test]
fn p6_a_poller_that_was_seen_in_the_future_is_gone_until_it_looks() {
    let mut world = World::new();
    world.pass(100_000);
    let token = granted(&world.acquire(id(1, 1)));
    let mine = ticket(&world.with_place(id(2, 1), |place| place.hears = Hears::Polls));
    ticket(&world.acquire(id(3, 1)));
    world.now_us -= BACK_US;
    let mut looks = World { resource: world.resource.clone(), now_us: world.now_us, ..World::new() };
    world.release(id(1, 1), token);
    assert_eq!(world.holder(), Some(id(3, 1)), "a dead one would cost a claim, each time");
    looks.detached.insert(SessionId(2));
    looks.with_place(id(2, 1), |place| (place.hears, place.ticket) = (Hears::Polls, Some(mine)));
    looks.release(id(1, 1), token);
    assert_eq!(looks.holder(), Some(id(2, 1)));
}
