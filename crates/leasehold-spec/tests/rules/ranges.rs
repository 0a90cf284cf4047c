//! P19: the tokens that a session hands on locally come from a range that the store reserved before the first of them
//! is used.

use leasehold_spec::limits::{RANGE_END, RANGE_MAX, RETENTION_US, TOKEN_LEAD_US};
use leasehold_spec::{Contention, Event, From, GrantId, LostHow, Op, Order, Outcome, Patience, Place, Token, Was};

use crate::world::{LEASE_MS, World, granted, id, ticket};

impl World {
    /// Acquires the lease with a range of this length. Returns its token and the length of the range.
    fn reserve(&mut self, id: GrantId, range: u64) -> (Token, u64) {
        let mut request = self.request(id);
        request.range = range;
        match self.step(&Op::Acquire(request)).outcome {
            Outcome::Granted { token, range, .. } => (token, range),
            other => panic!("not granted: {other:?}"),
        }
    }

    fn give_back(&mut self, id: GrantId, token: Token, used: Token) {
        assert_eq!(self.step(&Op::Release { id, token, used }).outcome, Outcome::Released);
    }

    fn queue(&mut self, id: GrantId, order: Order, range: u64) {
        let mut request = self.request(id);
        request.range = range;
        if let Patience::Queue(place) = &mut request.patience {
            *place = Place { order, ..place.clone() };
        }
        ticket(&self.step(&Op::Acquire(request)));
    }
}

#[test]
fn p19_a_range_is_reserved_with_its_grant() {
    let mut world = World::new();
    let (token, range) = world.reserve(id(1, 1), RANGE_MAX);
    assert_eq!((token.get(), range), (world.now_us, RANGE_MAX));
    assert_eq!(world.resource.reserved(), token.plus(RANGE_MAX - 1));
    // A repeated acquire gets the same answer. A hand-over reserves the range that its waiter asked for.
    assert_eq!(world.reserve(id(1, 1), 7), (token, RANGE_MAX));
    world.queue(id(2, 1), Order::Relaxed, 9);
    world.give_back(id(1, 1), token, token);
    let push = world.pushed.last().unwrap();
    assert_eq!((push.id, push.event, push.range), (id(2, 1), Event::Granted, 9));
    // Nobody gets more than the largest range.
    let mut greedy = World::new();
    assert_eq!(greedy.reserve(id(1, 1), RANGE_MAX + 1).1, RANGE_MAX);
}

#[test]
fn p19_the_next_token_is_above_the_last_one_that_was_used() {
    for used in [0, 5, RANGE_MAX - 1] {
        let mut world = World::new();
        let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
        world.give_back(id(1, 1), token, token.plus(used));
        assert_eq!(world.resource.last, token.plus(used));
        assert_eq!(granted(&world.acquire(id(2, 1))), token.plus(used + 1), "in the same microsecond");
    }
}

#[test]
fn p19_the_reported_use_stays_within_the_range() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), 10);
    world.give_back(id(1, 1), token, Token::HIGHEST);
    assert_eq!(world.resource.last, token.plus(9), "a wrong report of a session does not damage the name");
    let (token, _) = world.reserve(id(2, 1), 10);
    world.give_back(id(2, 1), token, Token::NONE);
    assert_eq!(world.resource.last, token, "no token is granted again");
}

#[test]
fn p19_a_repeated_release_lowers_nothing_of_the_next_grant() {
    let mut world = World::new();
    let (first, _) = world.reserve(id(1, 1), 10);
    world.give_back(id(1, 1), first, first.plus(3));
    let (second, _) = world.reserve(id(2, 1), 10);
    assert_eq!(second, first.plus(4));
    let repeated = world.step(&Op::Release { id: id(1, 1), token: first, used: first });
    assert_eq!(repeated.outcome, Outcome::Released);
    assert_eq!(world.resource.reserved(), second.plus(9));
}

#[test]
fn p19_a_range_that_is_not_reported_back_is_burnt() {
    // The lease ends by time, a claim lapses, or the grace of a revocation ends. Nobody knows what was handed on.
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
    world.pass(LEASE_MS);
    world.step(&Op::Settle);
    assert_eq!(world.resource.last, token.plus(RANGE_MAX - 1));
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
    world.step(&Op::Revoke { holder: id(1, 1).public(), token, grace_ms: 0 });
    assert_eq!(granted(&world.acquire(id(2, 1))), token.plus(RANGE_MAX));
}

#[test]
fn p19_a_leave_reports_the_use_under_any_grant_of_its_id() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), 10);
    let leave = |used| Op::Leave { id: id(1, 1), used };
    assert_eq!(world.step(&leave(token.plus(4))).outcome, Outcome::Left { was: Was::Granted });
    assert_eq!(world.resource.last, token.plus(4));
    // The same ID was granted again, and its session did not get that reply: no token of the new grant was used.
    let mut world = World::new();
    let (old, _) = world.reserve(id(1, 1), 10);
    world.pass(LEASE_MS + 1);
    let (new, _) = world.reserve(id(1, 1), 10);
    assert!(new > old);
    world.step(&leave(old.plus(2)));
    assert_eq!(world.resource.last, new);
}

#[test]
fn p19_only_the_holder_extends_its_range() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), 10);
    let reserve = |id, token, range| Op::Reserve { id, token, range };
    let not_held = Outcome::Lost { how: LostHow::NotHeld };
    assert_eq!(world.step(&reserve(id(2, 1), token, 20)).outcome, not_held);
    assert_eq!(world.step(&reserve(id(1, 1), token.plus(1), 20)).outcome, not_held, "the token names the grant");
    assert_eq!(world.resource.reserved(), token.plus(9));
    assert_eq!(world.step(&reserve(id(1, 1), token, 20)).outcome, Outcome::Reserved { range: 20 });
    let (before, now_us) = (world.resource.clone(), world.now_us);
    assert_eq!(world.step(&reserve(id(1, 1), token, 15)).outcome, Outcome::Reserved { range: 20 }, "never fewer");
    assert_eq!((&world.resource, world.now_us), (&before, now_us), "nothing else changes");
    world.give_back(id(1, 1), token, token.plus(19));
    assert_eq!(world.step(&reserve(id(1, 1), token, 30)).outcome, not_held);
    let (token, _) = world.reserve(id(3, 1), 10);
    world.step(&Op::Revoke { holder: id(3, 1).public(), token, grace_ms: 1_000 });
    assert_eq!(world.step(&reserve(id(3, 1), token, 30)).outcome, Outcome::Lost { how: LostHow::Revoked });
}

#[test]
fn p19_tokens_stay_near_the_clock() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
    let asked = world.step(&Op::Reserve { id: id(1, 1), token, range: 10 * TOKEN_LEAD_US });
    assert_eq!(asked.outcome, Outcome::Reserved { range: TOKEN_LEAD_US });
    world.give_back(id(1, 1), token, token.plus(TOKEN_LEAD_US - 1));
    // From now on, grants get one token each, until the clock is near enough.
    let (token, range) = world.reserve(id(2, 1), RANGE_MAX);
    assert_eq!((token.get(), range), (world.now_us + TOKEN_LEAD_US, 1));
    world.give_back(id(2, 1), token, token);
    world.pass(1);
    assert_eq!(world.reserve(id(3, 1), RANGE_MAX).1, 999);
    // The record is kept until the clock has passed the reserved tokens.
    let last = world.resource.reserved().get();
    assert!(!world.resource.is_forgotten(last + RETENTION_US - 1, u64::MAX));
    assert!(world.resource.is_forgotten(last + RETENTION_US, u64::MAX));
}

#[test]
fn p19_a_range_has_a_limit() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
    for _ in 0..5 {
        world.pass(LEASE_MS - 1);
        let renew = world.renew(id(1, 1), token, From::Now);
        assert!(matches!(renew.outcome, Outcome::Renewed { .. }), "{renew:?}");
    }
    let asked = world.step(&Op::Reserve { id: id(1, 1), token, range: u64::MAX });
    assert_eq!(asked.outcome, Outcome::Reserved { range: RANGE_END }, "the digits that a record has for it");
}

/// Otherwise a clock that steps back makes tokens below those that the holder uses.
#[test]
fn p19_a_record_is_kept_until_its_range_has_passed() {
    let mut world = World::new();
    let mut request = world.request(id(1, 1));
    request.lease_ms = 100;
    let token = granted(&world.step(&Op::Acquire(request)));
    let short_us = world.resource.keep_until_us;
    world.step(&Op::Reserve { id: id(1, 1), token, range: TOKEN_LEAD_US });
    let kept_us = world.resource.keep_until_us;
    assert_eq!(
        (short_us, kept_us),
        (token.get() + 100_000 + RETENTION_US, token.get() + TOKEN_LEAD_US - 1 + RETENTION_US)
    );
    // A release, with used tokens or without, does not shorten that time. So a store need not compute it.
    world.give_back(id(1, 1), token, token);
    assert_eq!(world.resource.keep_until_us, kept_us);
}

/// A pushed grant lasts only a claim, but the hand-over has set the end of the record for the whole lease.
#[test]
fn a_waiter_does_not_shorten_the_retention_of_a_record() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), 1);
    world.queue(id(2, 1), Order::Relaxed, 1);
    world.give_back(id(1, 1), token, token);
    let kept_us = world.resource.keep_until_us;
    world.queue(id(1, 2), Order::Relaxed, 1);
    assert_eq!(world.resource.keep_until_us, kept_us);
    // A revocation shortens it: the lease ends sooner.
    let token = world.resource.last;
    world.step(&Op::Revoke { holder: id(2, 1).public(), token, grace_ms: 10 });
    assert_eq!(world.resource.keep_until_us, world.now_us + 10_000 + RETENTION_US);
}

#[test]
fn p9_the_holder_of_a_range_is_notified_that_others_wait() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
    world.queue(id(2, 1), Order::Relaxed, 1);
    let message = world.pushed.pop().unwrap();
    assert_eq!((message.to, message.id, message.token), (id(1, 1).session, id(1, 1), token));
    assert_eq!((message.event, message.contention), (Event::Wanted, Contention::Others));
    // The contention is a level: the holder is notified once for each rise.
    world.queue(id(3, 1), Order::Relaxed, 1);
    world.queue(id(2, 1), Order::Relaxed, 1);
    assert!(world.pushed.is_empty());
    world.queue(id(4, 1), Order::Strict, 1);
    assert_eq!(world.pushed.pop().unwrap().contention, Contention::Strict);
    // A holder of one token hands nothing on, and needs no message.
    world.give_back(id(1, 1), token, token);
    world.pushed.clear();
    world.step(&Op::Leave { id: id(3, 1), used: Token::NONE });
    world.step(&Op::Leave { id: id(4, 1), used: Token::NONE });
    world.queue(id(5, 1), Order::Strict, 1);
    assert!(world.pushed.is_empty());
}
