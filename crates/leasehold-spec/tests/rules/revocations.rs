//! P10: the waiters that are notified of the end of a lease that was marked for revocation.

use leasehold_spec::limits::{REVOKE_NOTIFIED, SETTLE_STEPS};
use leasehold_spec::{Contention, Delivery, Event, GrantId, Hears, Op, Outcome, SessionId, Token, Was};

use crate::world::{World, granted, id, ticket};

const GRACE_MS: u64 = 2_000;

/// Session 1 holds, and nobody waits.
fn held() -> (World, Token) {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    (world, token)
}

fn revoke(world: &mut World, token: Token, grace_ms: u64) {
    let revoke = Op::Revoke { holder: id(1, 1).public(), token, grace_ms };
    assert_eq!(world.step(&revoke).outcome, Outcome::Revoking { left_us: grace_ms * 1000 });
}

/// Returns the messages to waiters since the last call, in order.
fn endings(world: &mut World) -> Vec<Delivery> {
    std::mem::take(&mut world.pushed).into_iter().filter(|push| push.event == Event::Ending).collect()
}

fn ids(messages: &[Delivery]) -> Vec<GrantId> {
    messages.iter().map(|push| push.id).collect()
}

#[test]
fn p10_the_next_waiter_is_notified_of_the_end() {
    let (mut world, token) = held();
    ticket(&world.acquire(id(2, 1)));
    revoke(&mut world, token, GRACE_MS);
    assert_eq!(world.pushed[0].event, Event::Revoked, "the holder comes first");
    let [push] = &*endings(&mut world) else { panic!("one message") };
    assert_eq!(
        (push.to, push.id, push.token),
        (SessionId(2), id(2, 1), token),
        "the token is that of the grant that ends"
    );
    assert_eq!((push.now_us, push.left_us, push.range), (world.now_us, GRACE_MS * 1000, 1));
    assert_eq!(push.contention, Contention::Others);
    world.pass(GRACE_MS);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)), "the waiter that was notified is served");
}

/// A second session is notified for the case that the first one dies or stalls. More sessions would only re-check at
/// the same moment.
#[test]
fn p10_two_sessions_are_notified_once_each() {
    let (mut world, token) = held();
    for waiter in [id(2, 1), id(2, 2), id(3, 1), id(3, 2), id(4, 1)] {
        ticket(&world.acquire(waiter));
    }
    revoke(&mut world, token, GRACE_MS);
    assert_eq!(ids(&endings(&mut world)), [id(2, 1), id(3, 1)]);
    assert_eq!(REVOKE_NOTIFIED, 2);
}

#[test]
fn p10_a_waiter_that_would_be_passed_over_is_not_notified() {
    let (mut world, token) = held();
    ticket(&world.acquire(id(2, 1)));
    world.with_place(id(3, 1), |place| place.limit_ms = Some(100));
    world.with_place(id(4, 1), |place| place.hears = Hears::Polls);
    ticket(&world.acquire(id(5, 1)));
    world.detached.insert(SessionId(2));
    world.pass(100);
    revoke(&mut world, token, GRACE_MS);
    assert_eq!(ids(&endings(&mut world)), [id(5, 1)], "one is detached, one is overdue, and one has no inbox");
    assert_eq!(world.resource.queue.len(), 4, "they are removed when their turn comes");
}

#[test]
fn p10_at_most_64_waiters_are_checked() {
    let (mut world, token) = held();
    for counter in 0..SETTLE_STEPS as u64 {
        world.acquire(id(2, counter));
    }
    world.acquire(id(3, 1));
    world.detached.insert(SessionId(2));
    revoke(&mut world, token, GRACE_MS);
    assert_eq!(ids(&endings(&mut world)), []);
    world.step(&Op::Leave { id: id(2, 0), used: Token::NONE });
    assert_eq!(ids(&endings(&mut world)), [id(3, 1)]);
}

#[test]
fn p10_without_a_grace_the_next_waiter_holds_at_once() {
    let (mut world, token) = held();
    ticket(&world.acquire(id(2, 1)));
    ticket(&world.acquire(id(3, 1)));
    revoke(&mut world, token, 0);
    assert_eq!(ids(&endings(&mut world)), []);
    assert_eq!(world.holder(), Some(id(2, 1)));
}

#[test]
fn p10_a_second_revocation_notifies_of_the_nearer_end() {
    let (mut world, token) = held();
    ticket(&world.acquire(id(2, 1)));
    revoke(&mut world, token, GRACE_MS);
    endings(&mut world);
    world.pass(100);
    revoke(&mut world, token, 500);
    assert_eq!(endings(&mut world)[0].left_us, 500_000);
    world.pass(100);
    world.step(&Op::Revoke { holder: id(1, 1).public(), token, grace_ms: 5_000 });
    assert_eq!(endings(&mut world)[0].left_us, 400_000, "the time left never grows");
}

/// The notified waiters can leave within the grace, and the waiters behind them do not know the end.
#[test]
fn p10_a_leave_notifies_the_waiters_that_are_next() {
    let (mut world, token) = held();
    for session in 2..6 {
        ticket(&world.acquire(id(session, 1)));
    }
    let leave = |counter| Op::Leave { id: id(counter, 1), used: Token::NONE };
    world.step(&leave(2));
    assert_eq!(ids(&endings(&mut world)), [], "no grant is marked");
    revoke(&mut world, token, GRACE_MS);
    assert_eq!(ids(&endings(&mut world)), [id(3, 1), id(4, 1)]);
    world.pass(300);
    assert_eq!(world.step(&leave(3)).outcome, Outcome::Left { was: Was::Queued });
    let again = endings(&mut world);
    assert_eq!(ids(&again), [id(4, 1), id(5, 1)]);
    assert_eq!(again[1].left_us, (GRACE_MS - 300) * 1000);
    world.step(&leave(7));
    assert_eq!(ids(&endings(&mut world)), [], "the attempt did not wait");
    world.step(&Op::Release { id: id(1, 1), token, used: token });
    assert_eq!(ids(&endings(&mut world)), [], "the lease is over");
    world.step(&leave(4));
    assert_eq!(world.holder(), Some(id(5, 1)), "the attempt was granted the lease, and hands it on");
}

/// A waiter that comes later gets the end with its answer.
#[test]
fn p10_a_newcomer_gets_the_time_left_of_a_marked_lease() {
    let (mut world, token) = held();
    revoke(&mut world, token, GRACE_MS);
    endings(&mut world);
    let queued = world.acquire(id(2, 1));
    assert!(matches!(queued.outcome, Outcome::Queued { left_us, .. } if left_us == GRACE_MS * 1000), "{queued:?}");
    assert_eq!(ids(&endings(&mut world)), []);
}
