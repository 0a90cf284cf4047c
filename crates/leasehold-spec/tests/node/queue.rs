//! The queue of a node, and its calls.

use leasehold_spec::limits::{CALL_MS, SETTLE_STEPS};
use leasehold_spec::node::{Ask, Request, Rings, Said, Wait};
use leasehold_spec::{Contention, Order, SessionId, Was};

use crate::world::{LEASE_MS, World, granted, id, refused, token};

/// Sessions 2, 3 and 4 wait with the tickets 20, 30 and 40, and the vote was given back.
fn called() -> World {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    for session in [4, 2, 3] {
        world.ask_waiting(id(session, 1), token(2), session as u64 * 10);
    }
    world.give_back(id(1, 1));
    world
}

#[test]
fn tickets_decide_the_next_waiter_and_not_the_order_of_arrival() {
    let world = called();
    assert_eq!(world.waiters(), [id(2, 1), id(3, 1), id(4, 1)]);
    assert_eq!(world.called(), Some(id(2, 1)));
    let [bell] = world.bells.as_slice() else { panic!("one message: {:?}", world.bells) };
    assert_eq!((bell.to, bell.id, bell.rings), (SessionId(2), id(2, 1), Rings::Call));
    assert_eq!((bell.highest, bell.contention), (token(1), Contention::Others));
}

#[test]
fn a_called_waiter_has_no_vote_before_it_asks() {
    let mut world = called();
    assert_eq!(world.holder(), None);
    assert_eq!(world.ask_waiting(id(2, 1), token(5), 20), granted(token(5)));
    assert_eq!((world.called(), world.waiters()), (None, vec![id(3, 1), id(4, 1)]));
}

#[test]
fn a_newcomer_is_refused_while_a_waiter_is_called() {
    let mut world = called();
    world.pass(400);
    assert_eq!(world.ask(id(5, 1), token(9)), refused(None, CALL_MS - 400));
    assert_eq!(world.ask_waiting(id(5, 1), token(9), 50), refused(None, CALL_MS - 400));
    assert_eq!(
        world.ask_waiting(id(3, 1), token(9), 30),
        refused(None, CALL_MS - 400),
        "a later waiter is refused, too"
    );
    assert_eq!(world.waiters(), [id(2, 1), id(3, 1), id(4, 1), id(5, 1)]);
}

#[test]
fn an_earlier_attempt_need_not_wait_for_the_called_waiter() {
    let mut world = called();
    assert_eq!(world.ask_waiting(id(5, 1), token(9), 10), granted(token(9)));
    world.give_back(id(5, 1));
    assert_eq!(world.called(), Some(id(2, 1)), "the first waiter is called again");
}

#[test]
fn an_earlier_attempt_that_begins_to_wait_is_called_instead() {
    let mut world = called();
    world.wait(id(5, 1), 10);
    assert_eq!(world.called(), Some(id(5, 1)));
    assert_eq!(world.waiters()[..2], [id(5, 1), id(2, 1)], "the other waiter keeps its place");
}

#[test]
fn a_call_is_for_all_attempts_of_its_session() {
    let mut world = called();
    assert_eq!(world.ask_waiting(id(2, 7), token(9), 70), granted(token(9)));
}

/// Otherwise a call would keep all other waiters waiting for as long as the clock was set back.
#[test]
fn p1_a_call_lasts_no_longer_after_the_clock_was_set_back() {
    let mut world = called();
    world.now_us -= 20_000_000;
    assert_eq!(world.ask_waiting(id(3, 1), token(9), 30), refused(None, CALL_MS));
    world.pass(CALL_MS);
    assert!(world.settle().has_called);
    assert_eq!(world.called(), Some(id(3, 1)));
}

#[test]
fn a_call_lapses_and_the_next_is_called() {
    let mut world = called();
    world.pass(CALL_MS - 1);
    assert!(!world.settle().has_called);
    assert_eq!(world.called(), Some(id(2, 1)));
    world.pass(1);
    assert!(world.settle().has_called);
    assert_eq!((world.called(), world.waiters()), (Some(id(3, 1)), vec![id(3, 1), id(4, 1)]));
    // The next re-check of the waiter that let the call lapse brings it back to its place.
    world.ask_waiting(id(2, 1), token(9), 20);
    assert_eq!(world.called(), None, "this waiter came earlier, and nobody had the vote");
    assert_eq!(world.holder(), Some(id(2, 1)));
}

#[test]
fn a_lapsed_call_keeps_nobody_out() {
    let mut world = called();
    world.pass(CALL_MS);
    assert_eq!(world.ask(id(5, 1), token(9)), granted(token(9)), "nobody settled the queue meanwhile");
}

/// Otherwise the nodes would call a stalled waiter again and again, one node after the other. Each call would cost the
/// other waiters a round.
#[test]
fn a_lapsed_call_stays_over_when_another_attempt_gives_the_vote_back() {
    let mut world = called();
    world.pass(CALL_MS);
    assert_eq!(world.ask_waiting(id(3, 1), token(9), 30), granted(token(9)));
    assert_eq!(world.wait(id(3, 1), 30), Was::Granted, "its round is lost");
    assert_eq!((world.called(), world.waiters()), (Some(id(3, 1)), vec![id(3, 1), id(4, 1)]));
    // A call that has not lapsed does not cost its waiter the place.
    assert_eq!(world.ask(id(3, 2), token(10)), granted(token(10)), "the call is for its session");
    world.give_back(id(3, 2));
    assert_eq!(world.called(), Some(id(3, 1)));
}

#[test]
fn nobody_waits_for_a_called_waiter_that_left() {
    let mut world = called();
    assert_eq!(world.give_back(id(2, 1)), Was::Queued);
    assert_eq!(world.called(), Some(id(3, 1)));
}

#[test]
fn a_called_waiter_that_loses_the_round_is_called_again() {
    let mut world = called();
    world.ask_waiting(id(2, 1), token(5), 20);
    assert_eq!(world.wait(id(2, 1), 20), Was::Granted);
    assert_eq!(world.called(), Some(id(2, 1)));
}

#[test]
fn detached_waiters_are_passed_over() {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    for session in [2, 3, 4] {
        world.ask_waiting(id(session, 1), token(2), session as u64);
    }
    world.detached = [SessionId(2), SessionId(3)].into();
    world.give_back(id(1, 1));
    assert_eq!((world.called(), world.waiters()), (Some(id(4, 1)), vec![id(4, 1)]));
}

#[test]
fn a_step_checks_at_most_64_waiters() {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    let dead = SETTLE_STEPS as u64;
    for ticket in 0..dead {
        world.ask_waiting(id(2, ticket), token(2), ticket);
    }
    world.ask_waiting(id(3, 1), token(2), dead);
    world.detached.insert(SessionId(2));
    world.give_back(id(1, 1));
    assert_eq!((world.called(), world.waiters()), (None, vec![id(3, 1)]));
    world.settle();
    assert_eq!(world.called(), Some(id(3, 1)));
}

/// The node does not report MORE (P1): it makes no grants by itself, and the vote is free for the first client that
/// asks.
#[test]
fn the_vote_stays_free_behind_more_dead_waiters_than_a_step_checks() {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    let dead = 2 * SETTLE_STEPS as u64;
    for ticket in 0..dead {
        world.ask_waiting(id(2, ticket), token(2), ticket);
    }
    world.ask_waiting(id(3, 1), token(2), dead);
    world.detached.insert(SessionId(2));
    world.give_back(id(1, 1));
    assert_eq!((world.called(), world.waiters().len()), (None, SETTLE_STEPS + 1));
    assert_eq!(world.ask_waiting(id(3, 1), token(3), dead), granted(token(3)), "its re-check");
    assert_eq!(world.holder(), Some(id(3, 1)));
}

#[test]
fn an_attempt_that_changes_its_ticket_has_one_place() {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    world.ask_waiting(id(2, 1), token(2), 20);
    world.ask_waiting(id(2, 1), token(2), 10);
    assert_eq!(world.record.queue.keys().copied().collect::<Vec<_>>(), [(10, id(2, 1))]);
    world.wait(id(2, 1), 30);
    assert_eq!(world.record.queue.keys().copied().collect::<Vec<_>>(), [(30, id(2, 1))]);
}

#[test]
fn nobody_is_called_while_the_vote_is_given() {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    world.ask_waiting(id(2, 1), token(2), 1);
    assert!(!world.settle().has_called);
    world.pass(LEASE_MS);
    assert!(world.settle().has_called, "the vote has ended");
    assert_eq!(world.called(), Some(id(2, 1)));
}

#[test]
fn a_revocation_without_grace_calls_the_next_waiter() {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    world.ask_waiting(id(2, 1), token(2), 1);
    world.revoke(id(1, 1), token(1), 0);
    assert_eq!(world.called(), Some(id(2, 1)));
}

#[test]
fn every_answer_reports_whether_others_wait() {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    assert_eq!(world.settle().contention, Contention::None);
    world.ask_waiting(id(2, 1), token(2), 2);
    assert_eq!(world.settle().contention, Contention::Others);
    let strict = Some(Wait { ticket: 1, order: Order::Strict });
    let ask = Ask { wait: strict, ..world.request(id(3, 1), token(2)) };
    assert_eq!(world.vote(&Request::Ask(ask)).contention, Contention::Strict);
    let inspected = world.vote(&Request::Inspect);
    assert_eq!(inspected.contention, Contention::Strict);
    assert!(matches!(inspected.said, Said::Inspected(seen) if seen.waiters == 2));
}
