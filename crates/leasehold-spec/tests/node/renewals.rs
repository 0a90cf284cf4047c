//! Renewals, fills, requests that give a vote back, and revocations.

use leasehold_spec::limits::{CALL_MS, NOT_AFTER_MAX_MS};
use leasehold_spec::node::{Ask, Bell, Renewal, Request, Rings, Said};
use leasehold_spec::{From, GrantState, LostHow, SessionId, Token, Was};

use crate::world::{LEASE_MS, World, granted, id, token, wait};

const RENEWED: Said = Said::Renewed { left_us: LEASE_MS * 1000 };
const FILLED: Said = Said::Filled { left_us: LEASE_MS * 1000 };
const LOST: Said = Said::Lost { how: LostHow::NotHeld };

#[test]
fn a_renewal_counts_from_now() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.pass(10_000);
    assert_eq!(world.renew(id(1, 1), token(5)), RENEWED);
    world.pass(LEASE_MS - 1);
    world.settle();
    assert_eq!(world.holder(), Some(id(1, 1)));
    world.pass(1);
    world.settle();
    assert_eq!(world.holder(), None);
}

#[test]
fn only_this_grant_with_this_token_is_renewed() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.pass(10_000);
    for (who, with) in [(id(1, 2), token(5)), (id(2, 1), token(5)), (id(1, 1), token(4)), (id(1, 1), token(6))] {
        assert_eq!(world.renew(who, with), LOST, "{who:?}");
    }
    world.pass(LEASE_MS - 10_000);
    world.settle();
    assert_eq!(world.holder(), None, "nothing was extended");
}

#[test]
fn a_renewal_from_the_grants_moment_confirms_and_does_not_lengthen() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.pass(10_000);
    let confirm = Renewal { from: From::Grant, ..world.renewal(id(1, 1), token(5)) };
    let left_us = (LEASE_MS - 10_000) * 1000;
    assert_eq!(world.vote(&Request::Renew(confirm)).said, Said::Renewed { left_us });
    let elsewhere = Renewal { from: From::Grant, ..world.renewal(id(1, 1), token(5)) };
    assert_eq!(World::new().vote(&Request::Renew(elsewhere)).said, LOST, "it does not fill the node");
}

#[test]
fn a_late_renewal_does_nothing() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    let renewal = Request::Renew(world.renewal(id(1, 1), token(5)));
    world.pass(NOT_AFTER_MAX_MS);
    world.now_us += 1;
    assert_eq!(world.vote(&renewal).said, Said::Late);
    world.pass(LEASE_MS);
    assert_eq!(world.vote(&renewal).said, Said::Late);
    world.settle();
    assert_eq!(world.holder(), None, "a late renewal does not fill a free node");
}

#[test]
fn a_fill_does_not_count_before_the_next_renewal() {
    let mut world = World::new();
    assert_eq!(world.renew(id(1, 1), token(5)), FILLED);
    assert_eq!(world.holder(), Some(id(1, 1)));
    assert_eq!(world.renew(id(1, 1), token(5)), RENEWED);
    assert_eq!(
        world.ask(id(2, 1), token(9)),
        Said::Refused { holder: Some(id(1, 1).public()), left_us: LEASE_MS * 1000 }
    );
}

/// The larger token may have made another client the holder, which may have released since. The node does not know
/// whether that client held or lost its round.
#[test]
fn a_node_is_not_filled_behind_a_token_that_it_has_voted_for() {
    let mut world = World::new();
    world.ask(id(2, 1), token(9));
    assert_eq!(world.renew(id(1, 1), token(5)), LOST, "the node is not free");
    world.give_back(id(2, 1));
    assert_eq!(world.renew(id(1, 1), token(5)), LOST, "another client may have held since");
    assert_eq!((world.holder(), world.record.highest), (None, token(9)));
    assert_eq!(world.renew(id(1, 1), token(9)), FILLED, "the grant with that token fills it");
}

#[test]
fn a_node_is_filled_to_the_end_of_its_range() {
    let mut world = World::new();
    world.ask(id(2, 1), token(9));
    world.give_back(id(2, 1));
    let ranged = Renewal { range: 10, ..world.renewal(id(1, 2), token(5)) };
    assert_eq!(world.vote(&Request::Renew(ranged.clone())).said, FILLED);
    assert_eq!(world.record.highest, token(14));
    world.pass(LEASE_MS);
    let ranged = Renewal { not_after_us: world.now_us + 1, ..ranged };
    assert_eq!(world.vote(&Request::Renew(ranged)).said, FILLED, "the end of its own range is not behind itself");
}

#[test]
fn a_renewal_without_a_label_does_not_fill() {
    let mut world = World::new();
    let plain = Renewal { fill: None, ..world.renewal(id(1, 1), token(5)) };
    assert_eq!(world.vote(&Request::Renew(plain)).said, LOST);
    assert_eq!((world.holder(), world.record.highest), (None, Token::NONE));
}

#[test]
fn a_grant_that_was_given_back_does_not_fill() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    assert_eq!(world.give_back(id(1, 1)), Was::Granted);
    assert_eq!(world.renew(id(1, 1), token(5)), LOST);
    assert_eq!(world.holder(), None);
    assert_eq!(world.give_back(id(1, 1)), Was::Granted, "the reply to the first request was lost");
}

#[test]
fn a_lost_round_that_was_given_back_can_fill() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    assert_eq!(world.wait(id(1, 1), 1), Was::Granted);
    assert_eq!(world.renew(id(1, 1), token(9)), FILLED, "its next round was won at other nodes");
}

/// Otherwise the call would lapse although the waiter could not get the vote, and the waiter would lose its place.
#[test]
fn a_fill_ends_the_call_and_its_waiter_keeps_its_place() {
    let mut world = World::new();
    world.ask(id(2, 1), token(5));
    world.ask_waiting(id(3, 1), token(6), 1);
    world.give_back(id(2, 1));
    assert_eq!(world.called(), Some(id(3, 1)));
    assert_eq!(world.renew(id(1, 1), token(9)), FILLED);
    assert_eq!(world.called(), None);
    world.pass(CALL_MS);
    world.give_back(id(1, 1));
    assert_eq!((world.called(), world.waiters()), (Some(id(3, 1)), vec![id(3, 1)]));
}

#[test]
fn a_grant_that_fills_waits_no_longer() {
    let mut world = World::new();
    world.ask(id(2, 1), token(5));
    world.ask_waiting(id(1, 1), token(6), 1);
    world.give_back(id(2, 1));
    assert_eq!(world.renew(id(1, 1), token(6)), FILLED, "the round was won at other nodes");
    assert_eq!(world.waiters(), vec![]);
}

#[test]
fn giving_back_reports_granted_queued_or_absent() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.ask_waiting(id(2, 1), token(6), 1);
    assert_eq!(world.give_back(id(3, 1)), Was::Absent);
    assert_eq!(world.give_back(id(2, 1)), Was::Queued);
    assert_eq!(world.give_back(id(2, 1)), Was::Absent);
    assert_eq!((world.holder(), world.waiters()), (Some(id(1, 1)), vec![]));
    world.pass(LEASE_MS);
    assert_eq!(world.give_back(id(1, 1)), Was::Absent, "the vote had ended");
}

#[test]
fn a_revoked_holder_is_notified_and_has_its_grace() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    assert_eq!(world.revoke(id(2, 1), token(5), 5_000), Said::NotHeld);
    assert_eq!(world.revoke(id(1, 1), token(4), 5_000), Said::NotHeld);
    assert_eq!(world.revoke(id(1, 1), token(5), 5_000), Said::Revoking { left_us: 5_000_000 });
    assert_eq!(world.record.grant.as_ref().unwrap().state, GrantState::Revoked);
    let [bell] = world.bells.as_slice() else { panic!("one message: {:?}", world.bells) };
    assert_eq!((bell.to, bell.id), (id(1, 1).session, id(1, 1)));
    assert_eq!(bell.rings, Rings::Revoked { token: token(5), left_us: 5_000_000 });
    assert_eq!(world.renew(id(1, 1), token(5)), Said::Lost { how: LostHow::Revoked });
    world.pass(4_999);
    world.settle();
    assert_eq!(world.holder(), Some(id(1, 1)));
    world.pass(1);
    world.settle();
    assert_eq!(world.holder(), None);
}

/// Returns the attempts that were notified of the end of the vote, in order.
fn notified(world: &mut World) -> Vec<leasehold_spec::GrantId> {
    let ends = |bell: &Bell| matches!(bell.rings, Rings::Ending { .. });
    std::mem::take(&mut world.bells).iter().filter(|bell| ends(bell)).map(|bell| bell.id).collect()
}

#[test]
fn p10_the_next_waiters_are_notified_of_the_end() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    for (ticket, waiter) in [(1, id(2, 1)), (2, id(3, 1)), (3, id(3, 2)), (4, id(4, 1)), (5, id(5, 1))] {
        world.ask_waiting(waiter, token(6), ticket);
    }
    world.detached.insert(SessionId(2));
    world.revoke(id(1, 1), token(5), 5_000);
    let [_, first, _] = world.bells.as_slice() else { panic!("the holder, and two: {:?}", world.bells) };
    assert_eq!((first.to, first.id), (SessionId(3), id(3, 1)));
    assert_eq!(first.rings, Rings::Ending { token: token(5), left_us: 5_000_000 });
    assert_eq!(notified(&mut world), [id(3, 1), id(4, 1)], "one of each session, and none that is detached");
    // An attempt that gives a lost round back goes on waiting.
    world.wait(id(3, 1), 2);
    assert_eq!(notified(&mut world), []);
    assert_eq!(world.give_back(id(3, 1)), Was::Queued);
    assert_eq!(notified(&mut world), [id(3, 2), id(4, 1)]);
    world.revoke(id(1, 1), token(5), 0);
    assert_eq!(notified(&mut world), [], "the vote has ended, and the next waiter is called");
    assert_eq!(world.called(), Some(id(3, 2)));
}

/// A time is in the future because the clock was set back. The vote begins now.
#[test]
fn p1_a_vote_in_the_future_begins_at_the_next_request() {
    const BACK_US: u64 = 5_000_000;
    let asks = |world: &mut World| world.ask_waiting(id(2, 1), token(6), 1);
    let leaves = |world: &mut World| world.vote(&Request::GiveBack { id: id(9, 1), upto: token(9), wait: None }).said;
    let requests: [fn(&mut World) -> Said; 3] = [asks, leaves, |world| world.settle().said];
    for request in requests {
        let mut world = World::new();
        world.ask(id(1, 1), token(5));
        world.now_us -= BACK_US;
        let inspected = world.vote(&Request::Inspect);
        let Said::Inspected(seen) = inspected.said else { panic!("not inspected: {inspected:?}") };
        assert_eq!(seen.holder().expect("held").left_us, LEASE_MS * 1000, "no more than the length of the vote");
        request(&mut world);
        assert_eq!(world.record.grant.as_ref().unwrap().since_us, world.now_us);
        world.pass(LEASE_MS);
        world.settle();
        assert_eq!(world.holder(), None);
    }
}

#[test]
fn a_grace_is_no_longer_than_the_lease() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.pass(LEASE_MS - 2);
    assert_eq!(world.revoke(id(1, 1), token(5), 5_000), Said::Revoking { left_us: 2_000 });
    assert_eq!(world.revoke(id(1, 1), token(5), 0), Said::Revoking { left_us: 0 });
    assert_eq!(world.holder(), None);
}

/// The stored length is in whole milliseconds, and the end is exact. If the length were rounded up at each revocation,
/// a vote that is revoked again and again would never end.
#[test]
fn a_grant_that_is_revoked_again_ends_no_later() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    assert_eq!(world.revoke(id(1, 1), token(5), 5_000), Said::Revoking { left_us: 5_000_000 });
    for again in 1..=1_000 {
        world.now_us += 300;
        let left_us = 5_000_000 - 300 * again;
        assert_eq!(world.revoke(id(1, 1), token(5), 5_000), Said::Revoking { left_us }, "again {again}");
        assert_eq!(
            world.record.grant.as_ref().unwrap().left_us(world.now_us),
            left_us,
            "the record agrees with the reply"
        );
    }
}

/// The message to the holder can be lost. Then the holder renews, and without this rule it would get the vote back.
#[test]
fn a_revoked_grant_does_not_fill() {
    for grace_ms in [0, 5_000] {
        let mut world = World::new();
        world.ask(id(1, 1), token(5));
        world.revoke(id(1, 1), token(5), grace_ms);
        world.pass(grace_ms);
        assert_eq!(world.renew(id(1, 1), token(5)), Said::Lost { how: LostHow::NotHeld }, "grace {grace_ms}");
        assert_eq!(world.holder(), None);
    }
}

#[test]
fn the_holder_of_a_range_is_notified_that_others_wait() {
    let mut world = World::new();
    let ranged = Ask { range: 10, ..world.request(id(1, 1), token(5)) };
    world.vote(&Request::Ask(ranged));
    world.ask_waiting(id(2, 1), token(20), 1);
    world.ask_waiting(id(2, 2), token(20), 2);
    let [bell] = world.bells.as_slice() else { panic!("once: {:?}", world.bells) };
    assert_eq!((bell.id, bell.rings), (id(1, 1), Rings::Wanted { token: token(5) }));
    let mut single = World::new();
    assert_eq!(single.ask(id(1, 1), token(5)), granted(token(5)));
    single.ask_waiting(id(2, 1), token(6), 1);
    assert_eq!(single.bells, [], "a holder of one token hands nothing on");
}

/// All rounds of an attempt have the same ID. The request that gives a lost round back can arrive after the next round
/// was won.
#[test]
fn a_lost_round_does_not_give_back_a_later_vote() {
    let mut world = World::new();
    world.ask(id(1, 1), token(5));
    world.ask(id(1, 1), token(7));
    let late = Request::GiveBack { id: id(1, 1), upto: token(5), wait: Some(wait(3)) };
    assert_eq!(world.vote(&late).said, Said::GivenBack { was: Was::Absent });
    assert_eq!(world.holder(), Some(id(1, 1)));
    assert!(world.record.queue.is_empty(), "a holder does not wait");
    let its_own = Request::GiveBack { id: id(1, 1), upto: token(7), wait: None };
    assert_eq!(world.vote(&its_own).said, Said::GivenBack { was: Was::Granted });
}
