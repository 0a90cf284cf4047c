//! Pauses: the vote is given back in a run, and the node calls nobody.

use leasehold_spec::limits::REVOKE_NOTIFIED;
use leasehold_spec::node::{Ask, Bell, Request, Rings, Vote};
use leasehold_spec::{GrantId, Order, SessionId, Token, Was};

use crate::world::{World, granted, id, refused, token, wait, was};

const NOTICE_MS: u64 = 50;

/// Session 1 has the vote, and sessions 2, 3 and 4 wait with the tickets 20, 30 and 40.
fn waited_for() -> World {
    let mut world = World::new();
    world.ask(id(1, 1), token(1));
    for session in [4, 2, 3] {
        world.ask_waiting(id(session, 1), token(2), session as u64 * 10);
    }
    world
}

fn pause(world: &mut World, id: GrantId, notice_ms: u64) -> Vote {
    world.vote(&Request::Pause { id, upto: Token::HIGHEST, notice_ms })
}

#[test]
fn a_pause_frees_the_vote_and_calls_nobody() {
    let mut world = waited_for();
    let said = pause(&mut world, id(1, 1), 0);
    assert_eq!((was(&said.said), said.has_called, world.bells.as_slice()), (Was::Granted, false, [].as_slice()));
    assert_eq!((world.holder(), world.called(), world.record.released), (None, None, Some(id(1, 1))));
    assert_eq!(world.waiters(), [id(2, 1), id(3, 1), id(4, 1)]);
    assert_eq!(world.ask_waiting(id(1, 2), token(5), 50), granted(token(5)), "the client comes back");
}

#[test]
fn the_first_pause_of_a_run_notifies_the_next_waiters() {
    let mut world = waited_for();
    world.detached.insert(SessionId(2));
    pause(&mut world, id(1, 1), NOTICE_MS);
    let rings = Rings::Ending { token: token(1), left_us: NOTICE_MS * 1000 };
    let notified: Vec<_> = world.bells.iter().map(|Bell { to, id, rings, .. }| (*to, *id, *rings)).collect();
    assert_eq!(notified, [(SessionId(3), id(3, 1), rings), (SessionId(4), id(4, 1), rings)]);
    assert_eq!(notified.len(), REVOKE_NOTIFIED);
}

#[test]
fn a_waiter_may_ask_in_a_pause() {
    let mut world = waited_for();
    pause(&mut world, id(1, 1), NOTICE_MS);
    assert_eq!(world.ask_waiting(id(2, 1), token(5), 20), granted(token(5)));
    assert_eq!(world.waiters(), [id(3, 1), id(4, 1)]);
}

#[test]
fn the_release_at_the_end_of_a_run_calls_the_first_waiter() {
    let mut world = waited_for();
    pause(&mut world, id(1, 1), 0);
    world.ask_waiting(id(1, 2), token(5), 50);
    assert_eq!(world.give_back(id(1, 2)), Was::Granted);
    assert_eq!(world.called(), Some(id(2, 1)));
}

/// The client has not come back, and gives back once more.
#[test]
fn a_second_release_ends_the_pause() {
    let mut world = waited_for();
    pause(&mut world, id(1, 1), NOTICE_MS);
    assert_eq!(world.give_back(id(1, 1)), Was::Granted);
    assert_eq!(world.called(), Some(id(2, 1)));
    let called = world.record.clone();
    assert_eq!(was(&pause(&mut world, id(1, 1), NOTICE_MS).said), Was::Granted, "the pause arrives late");
    assert_eq!(world.record, called, "the call stays");
}

#[test]
fn every_request_but_an_inspection_and_a_pause_ends_the_pause() {
    let (client, other) = (id(1, 1), id(5, 1));
    let world = World::new();
    let requests = [
        ("inspect", false, Request::Inspect),
        ("a repeated pause", false, Request::Pause { id: client, upto: Token::HIGHEST, notice_ms: 0 }),
        ("give back", true, Request::GiveBack { id: other, upto: Token::HIGHEST, wait: None }),
        ("wait", true, Request::GiveBack { id: other, upto: Token::HIGHEST, wait: Some(wait(50)) }),
        ("cool down", true, Request::CoolDown { id: other, upto: Token::HIGHEST, for_ms: 100 }),
        ("settle", true, Request::Settle),
        ("renew", true, Request::Renew(world.renewal(client, token(1)))),
        ("revoke", true, Request::Revoke { holder: client.public(), token: token(1), grace_ms: 0 }),
        ("a refused ask", true, Request::Ask(world.request(other, token(1)))),
    ];
    for (what, ends, request) in requests {
        let mut world = waited_for();
        pause(&mut world, client, 0);
        assert_eq!(world.vote(&request).has_called, ends, "{what}");
        assert_eq!((world.holder(), world.called()), (None, ends.then_some(id(2, 1))), "{what}");
        if ends {
            assert_eq!(world.ask_waiting(id(1, 2), token(5), 60), refused(None, 1_000), "{what}");
        } else {
            assert_eq!(world.ask_waiting(id(1, 2), token(5), 60), granted(token(5)), "{what}");
        }
    }
}

#[test]
fn a_strict_waiter_is_called_at_once() {
    let mut world = waited_for();
    let strict = Some(leasehold_spec::node::Wait { order: Order::Strict, ..wait(10) });
    world.vote(&Request::Ask(Ask { wait: strict, ..world.request(id(5, 1), token(2)) }));
    assert!(pause(&mut world, id(1, 1), NOTICE_MS).has_called);
    assert_eq!(world.called(), Some(id(5, 1)));
}

#[test]
fn a_pause_of_another_attempt_changes_nothing_for_the_holder() {
    let mut world = waited_for();
    let before = world.record.clone();
    assert_eq!(was(&pause(&mut world, id(6, 1), NOTICE_MS).said), Was::Absent);
    assert_eq!(world.vote(&Request::Pause { id: id(1, 1), upto: token(0), notice_ms: NOTICE_MS }).said, {
        leasehold_spec::node::Said::GivenBack { was: Was::Absent }
    });
    assert_eq!((&world.record, world.bells.len()), (&before, 0));
}
