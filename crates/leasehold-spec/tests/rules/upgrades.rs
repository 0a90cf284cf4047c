//! Upgrades: a reader becomes a writer, and keeps the others out in between (P37, P38).

use leasehold_spec::limits::CLAIM_MIN_MS;
use leasehold_spec::{
    Acquire, Answer, Event, From, GrantId, LostHow, Op, Outcome, Patience, Refusal, Take, Token, Was,
};

use crate::world::{LEASE_MS, World, granted, id, ticket};

const U: GrantId = GrantId { counter: 2, ..UPGRADEABLE };
const UPGRADEABLE: GrantId = GrantId { session: leasehold_spec::SessionId(1), counter: 1, nonce: 7 };

/// One session holds a read lease that it may upgrade, and another one a plain read lease.
fn two_readers() -> (World, Token, Token) {
    let mut world = World::new();
    let upgradeable = granted(&world.take(UPGRADEABLE, Take::UPGRADEABLE_READ));
    let plain = granted(&world.take(id(2, 1), Take::READ));
    (world, upgradeable, plain)
}

fn try_upgrade(world: &mut World, token: Token) -> Answer {
    let request = Acquire { take: Take::upgrade(UPGRADEABLE, token), patience: Patience::Try, ..world.request(U) };
    world.step(&Op::Acquire(request))
}

fn upgrade(world: &mut World, token: Token) -> Answer {
    world.take(U, Take::upgrade(UPGRADEABLE, token))
}

#[test]
fn the_only_reader_is_upgraded_at_once() {
    let mut world = World::new();
    let token = granted(&world.take(UPGRADEABLE, Take::UPGRADEABLE_READ));
    let writer = granted(&upgrade(&mut world, token));
    assert!(writer > token);
    assert_eq!(world.renew(UPGRADEABLE, token, From::Now).outcome, Outcome::Lost { how: LostHow::NotHeld });
    ticket(&world.take(id(2, 1), Take::READ));
    assert_eq!(granted(&upgrade(&mut world, token)), writer, "a repeat");
}

/// P37: the upgrade waits ahead of the queue, and nobody is admitted meanwhile.
#[test]
fn an_upgrade_waits_ahead_of_the_queue() {
    let (mut world, token, plain) = two_readers();
    ticket(&world.take(id(3, 1), Take::WRITE));
    ticket(&upgrade(&mut world, token));
    ticket(&world.take(id(4, 1), Take::READ));
    world.release(id(2, 1), plain);
    assert_eq!(world.pushed.iter().map(|message| message.id).collect::<Vec<_>>(), [U]);
    assert_eq!(world.resource.grants.len(), 1);
}

/// P37: nobody is admitted behind an upgrade, also if nobody waits in the queue.
#[test]
fn a_reader_does_not_pass_a_waiting_upgrade() {
    let (mut world, token, _) = two_readers();
    ticket(&upgrade(&mut world, token));
    ticket(&world.take(id(3, 1), Take::READ));
    assert!(matches!(try_upgrade(&mut world, token).outcome, Outcome::Busy { .. }));
    assert_eq!(world.pushed.last().map(|message| message.id), Some(id(3, 1)), "P38: the reader goes on");
}

/// P37: the message is lost. The lease lasts as long as the one that its holder had.
#[test]
fn an_upgrade_does_not_shorten_what_its_holder_had() {
    let (mut world, token, plain) = two_readers();
    ticket(&upgrade(&mut world, token));
    world.renew(UPGRADEABLE, token, From::Now);
    world.release(id(2, 1), plain);
    world.pass(CLAIM_MIN_MS + 1);
    assert_eq!(granted(&upgrade(&mut world, token)), world.resource.last);
    assert_eq!(world.holder(), Some(U));
}

/// P37: the claim is not shorter than a claim, although the lease was about to end.
#[test]
fn an_upgrade_lasts_for_a_claim() {
    let (mut world, token, plain) = two_readers();
    ticket(&upgrade(&mut world, token));
    world.pass(LEASE_MS - 200);
    // The re-check keeps the upgrade there: its session polls every ten seconds.
    ticket(&upgrade(&mut world, token));
    world.release(id(2, 1), plain);
    let message = world.pushed.last().expect("the upgrade is granted");
    assert_eq!((message.event, message.left_us), (Event::Granted, CLAIM_MIN_MS * 1000));
}

/// At most one reader may be upgradeable: two would wait for each other.
#[test]
fn one_reader_may_be_upgraded() {
    let (mut world, token, _) = two_readers();
    ticket(&world.take(id(3, 1), Take::UPGRADEABLE_READ));
    ticket(&world.take(id(4, 1), Take::READ));
    let lower = Op::Lower { id: UPGRADEABLE, token, units: 1 };
    assert_eq!(world.step(&lower).outcome, Outcome::Lowered);
    assert_eq!(world.pushed.iter().map(|message| message.id).collect::<Vec<_>>(), [id(3, 1), id(4, 1)]);
    assert_eq!(upgrade(&mut world, token).outcome, Outcome::Refused(Refusal::NoGrant), "it has become a plain reader");
}

#[test]
fn a_plain_reader_is_not_upgraded() {
    let mut world = World::new();
    let token = granted(&world.take(UPGRADEABLE, Take::READ));
    assert_eq!(upgrade(&mut world, token).outcome, Outcome::Refused(Refusal::NoGrant));
    assert_eq!(world.holder(), Some(UPGRADEABLE));
}

/// P38: a try ends the wait. There is no moment at which the caller has neither grant.
#[test]
fn a_try_withdraws_a_waiting_upgrade() {
    let (mut world, token, plain) = two_readers();
    ticket(&upgrade(&mut world, token));
    assert!(matches!(try_upgrade(&mut world, token).outcome, Outcome::Busy { .. }));
    assert_eq!(world.resource.upgrade, None);
    world.release(id(2, 1), plain);
    assert_eq!(world.holder(), Some(UPGRADEABLE), "it has what it had");
    assert!(matches!(world.renew(UPGRADEABLE, token, From::Now).outcome, Outcome::Renewed { .. }));
}

/// The future of the upgrade is dropped, and its read guard with it.
#[test]
fn leave_and_release_end_an_upgrade_in_either_order() {
    for leaves_first in [true, false] {
        let (mut world, token, _) = two_readers();
        ticket(&upgrade(&mut world, token));
        ticket(&world.take(id(3, 1), Take::READ));
        let leave = Op::Leave { id: U, used: Token::NONE };
        if leaves_first {
            assert_eq!(world.step(&leave).outcome, Outcome::Left { was: Was::Queued });
        }
        assert_eq!(world.release(UPGRADEABLE, token).outcome, Outcome::Released);
        if !leaves_first {
            assert_eq!(world.step(&leave).outcome, Outcome::Left { was: Was::Absent });
        }
        assert_eq!(world.resource.grants.units(), 2, "both readers hold");
        assert!(world.resource.upgrade.is_none());
    }
}

/// The lease of the upgradeable reader ends while its upgrade waits.
#[test]
fn an_upgrade_ends_with_its_grant() {
    let (mut world, token, plain) = two_readers();
    ticket(&upgrade(&mut world, token));
    world.pass(LEASE_MS - 1_000);
    world.renew(id(2, 1), plain, From::Now);
    ticket(&world.take(id(3, 1), Take::READ));
    world.pass(2_000);
    world.step(&Op::Settle);
    assert_eq!(world.pushed.last().map(|message| message.id), Some(id(3, 1)));
    assert_eq!(upgrade(&mut world, token).outcome, Outcome::Refused(Refusal::NoGrant));
}

/// An operator revokes the reader. Its waiting upgrade must not escape.
#[test]
fn a_revoked_reader_is_not_upgraded() {
    let (mut world, token, plain) = two_readers();
    ticket(&upgrade(&mut world, token));
    world.step(&Op::Revoke { holder: UPGRADEABLE.public(), token, grace_ms: 5_000 });
    world.release(id(2, 1), plain);
    assert_eq!(world.holder(), Some(UPGRADEABLE));
    assert_eq!(upgrade(&mut world, token).outcome, Outcome::Refused(Refusal::NoGrant));
}

/// The session of a waiting upgrade is detached. Its re-check brings the upgrade back.
#[test]
fn a_detached_upgrade_keeps_nobody_out() {
    let (mut world, token, _) = two_readers();
    ticket(&upgrade(&mut world, token));
    world.detached.insert(U.session);
    granted(&world.take(id(3, 1), Take::READ));
    world.detached.clear();
    ticket(&upgrade(&mut world, token));
    ticket(&world.take(id(4, 1), Take::READ));
}
