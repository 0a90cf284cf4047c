//! The behavior of one node of a quorum, request by request. `scripts/mutants` switches off some of its rules and
//! checks that the tests fail.

mod cool_downs;
mod marker;
mod pauses;
mod queue;
mod random;
mod renewals;
mod world;

use leasehold_spec::limits::{
    NOT_AFTER_MAX_MS, QUEUE_MAX, RETENTION_MS, RETENTION_SPARE_US, RETENTION_US, TOKEN_LEAD_US, TOKEN_WINDOW_MS,
};
use leasehold_spec::node::{Ask, Record, Request, Said};
use leasehold_spec::{Token, Was};

use crate::world::{LEASE_MS, START_US, World, granted, id, refused, token, wait};

const WINDOW_US: u64 = TOKEN_WINDOW_MS * 1000;

#[test]
fn a_node_votes_only_above_every_token_that_it_has_voted_for() {
    let mut world = World::new();
    assert_eq!(world.ask(id(1, 1), token(5)), granted(token(5)));
    world.give_back(id(1, 1));
    for low in [4, 5] {
        assert_eq!(world.ask(id(2, 1), token(low)), Said::Below, "{low}");
    }
    assert_eq!((world.holder(), world.record.highest), (None, token(5)));
    assert_eq!(world.ask(id(2, 1), token(6)), granted(token(6)));
}

#[test]
fn the_last_token_of_a_range_counts_as_voted_for() {
    let mut world = World::new();
    let ask = Ask { range: 10, ..world.request(id(1, 1), token(5)) };
    let said = world.vote(&Request::Ask(ask));
    assert_eq!(said.said, Said::Granted { token: token(5), range: 10, left_us: LEASE_MS * 1000 });
    assert_eq!((said.now_us, said.highest), (START_US, token(14)));
    world.give_back(id(1, 1));
    assert_eq!(world.ask(id(2, 1), token(14)), Said::Below);
    assert_eq!(world.ask(id(2, 1), token(15)), granted(token(15)));
}

#[test]
fn a_range_does_not_run_ahead_of_the_clock() {
    let mut world = World::new();
    for (at, asked, got) in [(TOKEN_LEAD_US - 3, 10, 3), (TOKEN_LEAD_US + 3, 10, 1), (TOKEN_LEAD_US + 9, 0, 1)] {
        let ask = Ask { range: asked, ..world.request(id(1, at), token(at)) };
        let Said::Granted { range, .. } = world.vote(&Request::Ask(ask)).said else { panic!("a vote") };
        assert_eq!(range, got);
        assert_eq!(world.record.highest, token(at + got - 1));
        world.give_back(id(1, at));
    }
}

#[test]
fn a_vote_has_one_grant_at_a_time() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.pass(1_000);
    assert_eq!(world.ask(id(2, 1), token(6)), refused(Some(id(1, 1)), LEASE_MS - 1_000));
    assert_eq!(world.ask(id(1, 2), token(7)), refused(Some(id(1, 1)), LEASE_MS - 1_000), "of the same session, too");
    assert_eq!(world.record.highest, token(5), "a refusal votes for nothing");
    world.pass(LEASE_MS - 1_000);
    let later = token(LEASE_MS * 1000);
    assert_eq!(world.ask(id(2, 1), later), granted(later), "the vote ends by time");
}

#[test]
fn a_repeated_request_gets_its_first_vote_and_extends_nothing() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.pass(10_000);
    let left_us = (LEASE_MS - 10_000) * 1000;
    assert_eq!(world.ask(id(1, 1), token(5)), Said::Granted { token: token(5), range: 1, left_us });
    assert_eq!(world.ask(id(1, 1), token(4)), Said::Granted { token: token(5), range: 1, left_us }, "an earlier round");
    world.pass(LEASE_MS - 10_000);
    let later = token(LEASE_MS * 1000);
    assert_eq!(world.ask(id(2, 1), later), granted(later), "the vote was not extended");
}

#[test]
fn a_later_round_takes_the_place_of_its_own_vote() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.pass(10_000);
    let next = token(10_000_000);
    assert_eq!(world.ask(id(1, 1), next), granted(next), "the new vote has a whole lease");
    assert_eq!((world.holder(), world.record.highest), (Some(id(1, 1)), next));
    let Some(only) = &world.record.grant else { panic!("a vote") };
    assert_eq!((only.token, only.since_us), (next, world.now_us));
}

#[test]
fn a_later_round_below_the_highest_or_far_leaves_the_vote() {
    let mut world = World::new();
    let ask = Ask { range: 10, ..world.request(id(1, 1), token(5)) };
    world.vote(&Request::Ask(ask));
    let kept = Said::Granted { token: token(5), range: 10, left_us: LEASE_MS * 1000 };
    assert_eq!(world.ask(id(1, 1), token(9)), kept, "inside its own range");
    assert_eq!(world.ask(id(1, 1), token(WINDOW_US + 1)), kept, "too far from the clock");
    assert_eq!(world.ask(id(1, 1), token(15)), granted(token(15)));
}

#[test]
fn a_token_is_near_the_clock_of_the_node() {
    let at = |us: u64| Token::new(us).unwrap();
    for (far, near) in
        [(START_US - WINDOW_US - 1, START_US - WINDOW_US), (START_US + WINDOW_US + 1, START_US + WINDOW_US)]
    {
        let mut world = World::new();
        assert_eq!(world.ask(id(1, 1), at(far)), Said::Far);
        assert_eq!(world.record, Record::default(), "nothing was done");
        assert_eq!(world.ask(id(1, 1), at(near)), granted(at(near)));
    }
}

#[test]
fn far_takes_precedence_over_below_and_held_over_both() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    let early = Token::new(START_US - WINDOW_US - 1).unwrap();
    assert_eq!(world.ask(id(2, 1), early), refused(Some(id(1, 1)), LEASE_MS));
    world.give_back(id(1, 1));
    assert_eq!(world.ask(id(2, 1), early), Said::Far);
}

#[test]
fn a_late_request_does_nothing() {
    let mut world = World::new();
    let request = Request::Ask(Ask { wait: Some(wait(1)), ..world.request(id(1, 1), token(5)) });
    world.pass(NOT_AFTER_MAX_MS);
    let mut in_time = World { now_us: world.now_us, ..World::new() };
    assert_eq!(in_time.vote(&request).said, granted(token(5)), "up to the last moment");
    world.now_us += 1;
    assert_eq!(world.vote(&request).said, Said::Late);
    assert_eq!(world.record, Record::default());
}

#[test]
fn a_full_queue_refuses_newcomers_and_keeps_its_waiters() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    for ticket in 0..QUEUE_MAX as u64 {
        world.ask_waiting(id(2, ticket), token(6), ticket);
    }
    let last = QUEUE_MAX as u64;
    assert_eq!(world.ask_waiting(id(3, 1), token(6), last), Said::Full);
    assert_eq!(
        world.ask(id(3, 1), token(6)),
        refused(Some(id(1, 1)), LEASE_MS),
        "an attempt that does not wait needs no place"
    );
    assert_eq!(
        world.ask_waiting(id(2, 7), token(6), 7),
        refused(Some(id(1, 1)), LEASE_MS),
        "this attempt is in the queue already"
    );
    assert_eq!(world.wait(id(3, 1), last), Was::Absent);
    assert_eq!(world.record.queue.len(), QUEUE_MAX);
}

/// The record outlives the last vote by more than the largest distance of a token from the clock. So the node votes for
/// no token twice.
#[test]
fn a_record_is_forgotten_after_its_retention() {
    let mut world = World::new();
    world.ask(id(1, 1), token(WINDOW_US));
    world.give_back(id(1, 1));
    world.pass(LEASE_MS + RETENTION_MS);
    world.now_us -= 1;
    assert_eq!(world.settle().highest, token(WINDOW_US));
    world.now_us += 1;
    assert_eq!(world.settle().highest, Token::NONE);
    assert_eq!(world.ask(id(2, 1), token(WINDOW_US)), Said::Far);
}

/// On a busy name, only one vote in a second sets a new TTL.
#[test]
fn a_record_that_is_used_again_is_kept_with_a_spare() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.give_back(id(1, 1));
    world.pass(1);
    world.ask(id(2, 1), token(6));
    let kept_us = world.now_us + LEASE_MS * 1000 + RETENTION_US + RETENTION_SPARE_US;
    assert_eq!(world.record.keep_until_us, kept_us);
    world.give_back(id(2, 1));
    world.now_us += RETENTION_SPARE_US;
    world.ask(id(3, 1), token(7));
    assert_eq!(world.record.keep_until_us, kept_us, "the record is kept for long enough already");
    world.give_back(id(3, 1));
    world.now_us += 1;
    world.ask(id(4, 1), token(8));
    assert_eq!(world.record.keep_until_us, kept_us + 1 + RETENTION_SPARE_US);
    world.give_back(id(4, 1));
    world.now_us = world.record.keep_until_us - 1;
    assert_eq!(world.settle().highest, token(8));
    world.now_us += 1;
    assert_eq!(world.settle().highest, Token::NONE);
}

#[test]
fn the_record_outlives_the_end_of_a_renewed_lease() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.pass(LEASE_MS - 1);
    world.renew(id(1, 1), token(5));
    world.pass(LEASE_MS + RETENTION_MS - 1);
    assert_eq!(world.settle().highest, token(5));
    world.pass(1);
    assert_eq!(world.settle().highest, Token::NONE);
}

#[test]
fn inspect_changes_nothing() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.ask_waiting(id(2, 1), token(6), 1);
    world.pass(LEASE_MS);
    let before = world.record.clone();
    let Said::Inspected(seen) = world.vote(&Request::Inspect).said else { panic!("not inspected") };
    assert_eq!((seen.holder(), seen.waiters), (None, 1), "nobody holds a vote that has ended");
    assert_eq!(world.record, before);
    assert!(world.bells.is_empty());
}
