//! P19: tokens that a session hands on by itself come from a range that the store reserved before the first of them is
//! used.

use leasehold_spec::limits::{RANGE_END, RANGE_MAX, RETENTION_US, TOKEN_LEAD_US};
use leasehold_spec::{Contention, Event, From, GrantId, LostHow, Op, Order, Outcome, Patience, Place, Token, Was};

use crate::world::{LEASE_MS, World, granted, id, ticket};

impl World {
    /// Takes the lease with a range of this length. Answers its token and how long the range is.
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
    // A look at what is held says the same again, and what is handed over reserves what its waiter asked for.
    assert_eq!(world.reserve(id(1, 1), 7), (token, RANGE_MAX));
    world.queue(id(2, 1), Order::Relaxed, 9);
    world.give_back(id(1, 1), token, token);
    let push = world.pushed.last().unwrap();
    assert_eq!((push.id, push.event, push.range), (id(2, 1), Event::Granted, 9));
    // Nobody gets more than there is to have.
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
fn p19_what_is_said_to_be_used_stays_within_the_range() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), 10);
    world.give_back(id(1, 1), token, Token::HIGHEST);
    assert_eq!(world.resource.last, token.plus(9), "a session that talks nonsense poisons no name");
    let (token, _) = world.reserve(id(2, 1), 10);
    world.give_back(id(2, 1), token, Token::NONE);
    assert_eq!(world.resource.last, token, "and none is given out again");
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
fn p19_a_range_that_nobody_reports_back_is_burnt() {
    // A lease that runs out, a claim that lapses, a revocation whose grace is over: who knows what was handed on.
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
fn p19_a_leave_says_what_was_used_under_any_grant_of_its_id() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), 10);
    let leave = |used| Op::Leave { id: id(1, 1), used };
    assert_eq!(world.step(&leave(token.plus(4))).outcome, Outcome::Left { was: Was::Granted });
    assert_eq!(world.resource.last, token.plus(4));
    // The same id was granted anew, and its session has not heard of that: nothing of it was used.
    let mut world = World::new();
    let (old, _) = world.reserve(id(1, 1), 10);
    world.pass(LEASE_MS + 1);
    let (new, _) = world.reserve(id(1, 1), 10);
    assert!(new > old);
    world.step(&leave(old.plus(2)));
    assert_eq!(world.resource.last, new);
}

#[test]
fn p19_a_range_grows_for_its_holder_alone() {
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
    assert_eq!((&world.resource, world.now_us), (&before, now_us), "and nothing else changes");
    world.give_back(id(1, 1), token, token.plus(19));
    assert_eq!(world.step(&reserve(id(1, 1), token, 30)).outcome, not_held);
    let (token, _) = world.reserve(id(3, 1), 10);
    world.step(&Op::Revoke { holder: id(3, 1).public(), token, grace_ms: 1_000 });
    assert_eq!(world.step(&reserve(id(3, 1), token, 30)).outcome, Outcome::Lost { how: LostHow::Revoked });
}

#[test]
fn p19_tokens_do_not_run_away_from_the_clock() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
    let asked = world.step(&Op::Reserve { id: id(1, 1), token, range: 10 * TOKEN_LEAD_US });
    assert_eq!(asked.outcome, Outcome::Reserved { range: TOKEN_LEAD_US });
    world.give_back(id(1, 1), token, token.plus(TOKEN_LEAD_US - 1));
    // One at a time from now on, until the clock is back in sight.
    let (token, range) = world.reserve(id(2, 1), RANGE_MAX);
    assert_eq!((token.get(), range), (world.now_us + TOKEN_LEAD_US, 1));
    world.give_back(id(2, 1), token, token);
    world.pass(1);
    assert_eq!(world.reserve(id(3, 1), RANGE_MAX).1, 999);
    // And the record is kept until the clock has passed what is reserved.
    let last = world.resource.reserved().get();
    assert!(!world.resource.is_forgotten(last + RETENTION_US - 1, u64::MAX));
    assert!(world.resource.is_forgotten(last + RETENTION_US, u64::MAX));
}

#[test]
fn p19_a_range_has_an_end() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
    for _ in 0..5 {
        world.pass(LEASE_MS - 1);
        let renew = world.renew(id(1, 1), token, From::Now);
        assert!(matches!(renew.outcome, Outcome::Renewed { .. }), "{renew:?}");
    }
    let asked = world.step(&Op::Reserve { id: id(1, 1), token, range: u64::MAX });
    assert_eq!(asked.outcome, Outcome::Reserved { range: RANGE_END }, "what a record has room for");
}

/// Otherwise a clock that steps back makes tokens below those that its holder gives out.
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
    // Whoever gives it back, used or not, makes it no shorter: a store need not look.
    world.give_back(id(1, 1), token, token);
    assert_eq!(world.resource.keep_until_us, kept_us);
}

/// Who waits for a push that lasts a claim changes nothing: the hand-over has seen to the record's end already.
#[test]
fn a_record_that_is_kept_for_long_is_not_kept_for_less_by_a_waiter() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), 1);
    world.queue(id(2, 1), Order::Relaxed, 1);
    world.give_back(id(1, 1), token, token);
    let kept_us = world.resource.keep_until_us;
    world.queue(id(1, 2), Order::Relaxed, 1);
    assert_eq!(world.resource.keep_until_us, kept_us);
    // A revocation does: the lease is over sooner.
    let token = world.resource.last;
    world.step(&Op::Revoke { holder: id(2, 1).public(), token, grace_ms: 10 });
    assert_eq!(world.resource.keep_until_us, world.now_us + 10_000 + RETENTION_US);
}

#[test]
fn p9_the_holder_of_a_range_is_told_that_somebody_waits() {
    let mut world = World::new();
    let (token, _) = world.reserve(id(1, 1), RANGE_MAX);
    world.queue(id(2, 1), Order::Relaxed, 1);
    let told = world.pushed.pop().unwrap();
    assert_eq!((told.to, told.id, told.token), (id(1, 1).session, id(1, 1), token));
    assert_eq!((told.event, told.contention), (Event::Wanted, Contention::Others));
    // A level: once for each that it rises to.
    world.queue(id(3, 1), Order::Relaxed, 1);
    world.queue(id(2, 1), Order::Relaxed, 1);
    assert!(world.pushed.is_empty());
    world.queue(id(4, 1), Order::Strict, 1);
    assert_eq!(world.pushed.pop().unwrap().contention, Contention::Strict);
    // Who has no range hands nothing on, and needs no message.
    world.give_back(id(1, 1), token, token);
    world.pushed.clear();
    world.step(&Op::Leave { id: id(3, 1), used: Token::NONE });
    world.step(&Op::Leave { id: id(4, 1), used: Token::NONE });
    world.queue(id(5, 1), Order::Strict, 1);
    assert!(world.pushed.is_empty());
}
