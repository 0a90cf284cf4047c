//! Latches (P44): each count-down counts once, and for the latch that it saw.

use leasehold_spec::limits::{CLAIM_MIN_MS, COUNTS_MAX, NOT_AFTER_MAX_US, RECHECK_MAX_MS, RETENTION_MS};
use leasehold_spec::{Event, GrantId, Joined, Kind, Op, Outcome, Refusal, Rest, Take, Token};

use crate::world::{World, granted, id, ticket};

const KEEP_MS: u64 = 600_000;

fn create(world: &mut World, limit: u32) -> Outcome {
    let not_after_us = world.now_us + NOT_AFTER_MAX_US;
    world.step(&Op::CreateLatch { limit, keep_ms: KEEP_MS, not_after_us }).outcome
}

fn born(outcome: &Outcome) -> Token {
    match outcome {
        Outcome::Counted { born, .. } => *born,
        other => panic!("no latch: {other:?}"),
    }
}

/// Counts down. Returns how many are missing.
fn count(world: &mut World, counts: GrantId, born: Token) -> u32 {
    match world.step(&Op::CountDown { id: counts, born }).outcome {
        Outcome::Counted { left, .. } => left,
        other => panic!("not counted: {other:?}"),
    }
}

const ABSENT: Outcome = Outcome::Refused(Refusal::Absent);

/// A latch opens at the last count-down. The waiters are granted in that step, and later ones at once.
#[test]
fn p44_a_latch_opens_once() {
    let mut world = World::new();
    let latch = born(&create(&mut world, 3));
    ticket(&world.take(id(1, 1), Take::OPEN_LATCH));
    ticket(&world.take(id(2, 1), Take::OPEN_LATCH));
    for (nth, left) in [(1, 2), (2, 1)] {
        assert_eq!(count(&mut world, id(9, nth), latch), left);
        assert!(world.pushed.is_empty());
    }
    assert_eq!(count(&mut world, id(8, 1), latch), 0);
    let opened: Vec<_> = world.pushed.drain(..).map(|message| (message.id, message.token)).collect();
    assert_eq!(opened.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(1, 1), id(2, 1)]);
    for (id, token) in opened {
        assert_eq!(world.release(id, token).outcome, Outcome::Released);
    }
    assert_eq!(count(&mut world, id(9, 3), latch), 0, "it stays open");
    granted(&world.take(id(3, 1), Take::OPEN_LATCH));
    granted(&world.take(id(4, 1), Take::OPEN_LATCH));
}

/// The reply to a count-down is lost, and it is repeated.
#[test]
fn p44_a_repeated_count_down_counts_once() {
    let mut world = World::new();
    let latch = born(&create(&mut world, 2));
    for _ in 0..3 {
        assert_eq!(count(&mut world, id(1, 1), latch), 1);
    }
    assert!(matches!(world.take(id(2, 1), Take::OPEN_LATCH).outcome, Outcome::Queued { .. }));
}

/// A count-down comes late, when its latch was deleted and the name has another one.
#[test]
fn p44_a_late_count_down_does_not_count_for_a_later_latch() {
    let mut world = World::new();
    let first = born(&create(&mut world, 1));
    assert_eq!(world.step(&Op::DeleteLatch { born: first }).outcome, Outcome::Deleted);
    assert_eq!(world.step(&Op::CountDown { id: id(1, 1), born: first }).outcome, ABSENT);
    let second = born(&create(&mut world, 1));
    assert!(second > first, "the tokens tell them apart");
    assert_eq!(world.step(&Op::CountDown { id: id(1, 1), born: first }).outcome, ABSENT);
    assert_eq!(world.step(&Op::DeleteLatch { born: first }).outcome, Outcome::Deleted, "a repeat");
    assert!(matches!(world.take(id(2, 1), Take::OPEN_LATCH).outcome, Outcome::Queued { .. }), "it is closed");
    assert_eq!(count(&mut world, id(1, 1), second), 0);
}

/// Creating it again changes nothing. Another number, another kind and a late request are refused.
#[test]
fn p31_a_latch_has_one_number() {
    let mut world = World::new();
    assert_eq!(create(&mut world, 0), ABSENT, "this only asks");
    assert_eq!(create(&mut world, COUNTS_MAX + 1), Outcome::Refused(Refusal::TooMany { limit: COUNTS_MAX }));
    let latch = create(&mut world, 2);
    count(&mut world, id(1, 1), born(&latch));
    for limit in [2, 0] {
        assert_eq!(create(&mut world, limit), Outcome::Counted { left: 1, born: born(&latch) });
    }
    let other = Outcome::Refused(Refusal::Other { kind: Kind::Latch, limit: 2 });
    assert_eq!(create(&mut world, 3), other);
    assert_eq!(world.acquire(id(2, 1)).outcome, other);
    let mut mutex = World::new();
    granted(&mutex.acquire(id(1, 1)));
    let other = Outcome::Refused(Refusal::Other { kind: Kind::Mutex, limit: 1 });
    assert_eq!(create(&mut mutex, 2), other);
    assert_eq!(mutex.take(id(2, 1), Take::OPEN_LATCH).outcome, other);
    let late = Op::CreateLatch { limit: 1, keep_ms: 1, not_after_us: world.now_us - 1 };
    assert_eq!(World::new().step(&late).outcome, Outcome::Late);
}

/// A waiter creates no latch: it would wait for count-downs that came before.
#[test]
fn p44_a_waiter_of_no_latch_is_refused() {
    let mut world = World::new();
    assert_eq!(world.take(id(1, 1), Take::OPEN_LATCH).outcome, ABSENT);
    let latch = born(&create(&mut world, 1));
    let place = ticket(&world.take(id(1, 1), Take::OPEN_LATCH));
    let again = world.take(id(1, 1), Take::OPEN_LATCH);
    assert!(matches!(again.outcome, Outcome::Queued { ticket, joined: Joined::Before, .. } if ticket == place));
    // Its latch is deleted while it waits: it is notified to ask again.
    assert_eq!(world.step(&Op::DeleteLatch { born: latch }).outcome, Outcome::Deleted);
    assert_eq!((world.pushed[0].event, world.pushed[0].id), (Event::Ending, id(1, 1)));
    assert_eq!(world.take(id(1, 1), Take::OPEN_LATCH).outcome, ABSENT);
}

/// A latch is kept for its time after the last count-down, and as long as somebody waits.
#[test]
fn a_latch_is_kept() {
    let mut world = World::new();
    let latch = born(&create(&mut world, 2));
    world.pass(KEEP_MS);
    assert_eq!(count(&mut world, id(1, 1), latch), 1);
    world.pass(KEEP_MS);
    assert_eq!(count(&mut world, id(1, 2), latch), 0);
    // A waiter of the open latch comes and goes. The record is kept as before.
    let token = granted(&world.take(id(2, 1), Take::OPEN_LATCH));
    world.release(id(2, 1), token);
    world.pass(KEEP_MS);
    assert_eq!(create(&mut world, 0), Outcome::Counted { left: 0, born: latch });
    world.pass(2 * RETENTION_MS);
    assert_eq!(create(&mut world, 0), ABSENT);
    let latch = born(&create(&mut world, 1));
    ticket(&world.take(id(3, 1), Take::OPEN_LATCH));
    for _ in 0..(3 * KEEP_MS / RECHECK_MAX_MS) {
        world.pass(RECHECK_MAX_MS);
        ticket(&world.take(id(3, 1), Take::OPEN_LATCH));
    }
    assert_eq!(count(&mut world, id(1, 1), latch), 0);
}

/// The message to a waiter is lost: its claim ends, and its re-check is granted.
#[test]
fn an_open_latch_grants_a_waiter_whose_message_was_lost() {
    let mut world = World::new();
    let latch = born(&create(&mut world, 1));
    ticket(&world.take(id(1, 1), Take::OPEN_LATCH));
    assert_eq!(count(&mut world, id(9, 1), latch), 0);
    world.pass(CLAIM_MIN_MS);
    assert_eq!(world.step(&Op::Settle).rest, Rest::Done);
    granted(&world.take(id(1, 1), Take::OPEN_LATCH));
}
