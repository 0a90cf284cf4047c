//! One test for each rule of the protocol that `step` keeps. `scripts/mutants` switches off each rule and checks that
//! its test fails.

mod all;
mod barriers;
mod clocks;
mod conditions;
mod cool_downs;
mod inspections;
mod latches;
mod pools;
mod ranges;
mod revocations;
mod upgrades;
mod world;

use leasehold_spec::limits::{CLAIM_MIN_MS, RETENTION_US, SETTLE_STEPS};
use leasehold_spec::{
    Acquire, Contention, Event, From, GrantId, GrantState, Hears, LostHow, Op, Order, Outcome, Renew, Resource, Rest,
    SessionId, Token, Was,
};

use crate::world::{LEASE_MS, World, granted, id, ticket};

#[test]
fn p1_a_free_lease_goes_to_the_queue_and_not_to_a_newcomer() {
    let mut world = World::new();
    granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    world.pass(LEASE_MS);
    // The holder died. A newcomer finds the lease free, and a waiter in the queue.
    ticket(&world.acquire(id(3, 1)));
    assert_eq!(world.holder(), Some(id(2, 1)));
}

#[test]
fn p1_a_step_checks_at_most_64_waiters_and_reports_more() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    let dead = SETTLE_STEPS as u64 + 36;
    for counter in 0..dead {
        world.acquire(id(2, counter));
    }
    world.acquire(id(3, 1));
    world.detached.insert(SessionId(2));
    let released = world.release(id(1, 1), token);
    assert_eq!((released.outcome, released.rest), (Outcome::Released, Rest::More));
    assert_eq!(world.holder(), None);
    // Between the two steps nobody passes the queue.
    ticket(&world.acquire(id(4, 1)));
    assert_eq!(world.step(&Op::Settle).rest, Rest::Done);
    assert_eq!(world.holder(), Some(id(3, 1)));
}

#[test]
fn p2_a_repeated_acquire_gets_the_time_left_and_extends_nothing() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    world.pass(10_000);
    let again = world.acquire(id(1, 1));
    assert_eq!(again.outcome, Outcome::Granted { token, left_us: (LEASE_MS - 10_000) * 1000, range: 1 });
    world.pass(LEASE_MS - 10_000);
    assert!(granted(&world.acquire(id(2, 1))) > token, "the lease was not extended");
}

#[test]
fn p3_a_repeated_release_gets_released_and_a_late_acquire_gets_gone() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    assert_eq!(world.release(id(1, 1), token).outcome, Outcome::Released);
    assert_eq!(world.release(id(1, 1), token).outcome, Outcome::Released);
    assert_eq!(world.acquire(id(1, 1)).outcome, Outcome::Gone);
    granted(&world.acquire(id(2, 1)));
    assert_eq!(world.release(id(1, 1), token).outcome, Outcome::Released, "also under the next holder");
    assert_eq!(world.holder(), Some(id(2, 1)));
}

/// P48: the value is the label of a grant. A late change by a former leader does not rename its successor.
#[test]
fn p48_a_value_belongs_to_its_grant() {
    let mut world = World::new();
    let first = granted(&world.acquire(id(1, 1)));
    let put = |id, token, label: &str| Op::Put { id, token, label: label.into() };
    for _ in 0..2 {
        assert_eq!(world.step(&put(id(1, 1), first, "renamed")).outcome, Outcome::Put);
    }
    assert_eq!(world.resource.grants.sole().unwrap().label, "renamed");
    world.release(id(1, 1), first);
    let second = granted(&world.acquire(id(2, 1)));
    for late in [put(id(1, 1), first, "late"), put(id(2, 1), first, "late"), put(id(1, 1), second, "late")] {
        assert_eq!(world.step(&late).outcome, Outcome::Lost { how: LostHow::NotHeld });
    }
    assert_eq!(world.resource.grants.sole().unwrap().label, "test");
}

/// P51: the first live waiter with the named label holds next. Without one the holder holds on.
#[test]
fn p51_a_hand_over_names_its_receiver_or_changes_nothing() {
    let mut world = World::new();
    let first = granted(&world.acquire(id(1, 1)));
    let wait = |world: &mut World, id, label: &str| {
        let request = Acquire { label: label.into(), ..world.request(id) };
        ticket(&world.step(&Op::Acquire(request)));
    };
    let to = |id, token, label: &str| Op::HandTo { id, token, label: label.into() };
    wait(&mut world, id(2, 1), "first");
    assert_eq!(world.step(&to(id(1, 1), first, "named")).outcome, Outcome::NoWaiter);
    wait(&mut world, id(3, 1), "named");
    wait(&mut world, id(4, 1), "named");
    world.detached.extend([id(3, 1).session, id(4, 1).session]);
    assert_eq!(world.step(&to(id(1, 1), first, "named")).outcome, Outcome::NoWaiter, "they are dead");
    assert_eq!(world.holder(), Some(id(1, 1)));
    world.detached.remove(&id(4, 1).session);
    for late in [to(id(2, 1), first, "named"), to(id(1, 2), first, "named")] {
        assert_eq!(world.step(&late).outcome, Outcome::Lost { how: LostHow::NotHeld });
    }
    let handed = world.step(&to(id(1, 1), first, "named"));
    assert_eq!((handed.outcome, handed.handed_claim_ms), (Outcome::Released, Some(CLAIM_MIN_MS)));
    assert_eq!(world.holder(), Some(id(4, 1)));
    assert_eq!(world.pushed.last().map(|pushed| pushed.id), Some(id(4, 1)));
    let second = world.resource.grants.sole().unwrap().token;
    assert!(second > first);
    // A copy of the request, and the release that the session sends behind it.
    assert_eq!(world.step(&to(id(1, 1), first, "first")).outcome, Outcome::Lost { how: LostHow::NotHeld });
    assert_eq!(world.release(id(1, 1), first).outcome, Outcome::Released);
    // The new leader dies before it claims: the first of the others is next.
    assert_eq!(world.holder(), Some(id(4, 1)));
    world.pass(CLAIM_MIN_MS);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)));
}

#[test]
fn p3_only_this_grant_is_renewed_and_released() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    let other = Token::new(token.get() + 1).unwrap();
    for (who, with) in [(id(1, 2), token), (id(2, 1), token), (id(1, 1), other)] {
        assert_eq!(world.renew(who, with, From::Now).outcome, Outcome::Lost { how: LostHow::NotHeld }, "{who:?}");
        assert_eq!(world.release(who, with).outcome, Outcome::NotHeld, "{who:?}");
    }
    assert_eq!(world.holder(), Some(id(1, 1)));
}

/// Most renewals leave the time until which the record is kept as it is. That time is always R beyond the end of the
/// lease, or more, even if the clock is set back.
#[test]
fn p8_one_renewal_in_a_lease_extends_the_retention_of_the_record() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    let (mut kept_until_us, mut writes) = (world.resource.keep_until_us, 0);
    for turn in 1..=300 {
        world.pass(LEASE_MS / 3);
        if turn % 50 == 0 {
            world.now_us -= 45_000_000;
        }
        let renewed = Outcome::Renewed { left_us: LEASE_MS * 1000 };
        assert_eq!(world.renew(id(1, 1), token, From::Now).outcome, renewed);
        let (end_us, keep_us) = (world.now_us + LEASE_MS * 1000, world.resource.keep_until_us);
        let enough = end_us + RETENTION_US..=end_us + LEASE_MS * 1000 + RETENTION_US;
        assert!(enough.contains(&keep_us), "turn {turn}: {} ms beyond its end", keep_us.saturating_sub(end_us) / 1000);
        writes += u32::from(keep_us != kept_until_us);
        kept_until_us = keep_us;
    }
    assert!((100..=110).contains(&writes), "{writes} writes in 100 leases");
}

#[test]
fn p3_a_renewal_makes_no_grant() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    world.release(id(1, 1), token);
    let lost = Outcome::Lost { how: LostHow::NotHeld };
    assert_eq!(world.renew(id(1, 1), token, From::Now).outcome, lost, "it was given back");
    world.resource = Resource::default();
    assert_eq!(world.renew(id(1, 1), token, From::Now).outcome, lost, "it was forgotten");
    assert_eq!(world.holder(), None);
}

#[test]
fn p3_tokens_grow_over_a_record_that_was_lost() {
    let mut world = World::new();
    let mut last = Token::NONE;
    for counter in 1..5 {
        let token = granted(&world.acquire(id(1, counter)));
        assert!(token > last, "no token is granted twice");
        last = token;
        // The store is flushed, or a replica that never got the record takes over.
        world.resource = Resource::default();
        world.pass(1);
    }
}

#[test]
fn p4_a_late_request_does_nothing() {
    let mut world = World::new();
    let request = world.request(id(1, 1));
    world.pass(2_001);
    assert_eq!(world.step(&Op::Acquire(request)).outcome, Outcome::Late);
    assert_eq!((world.holder(), world.resource.queue.len()), (None, 0));
    let token = granted(&world.acquire(id(1, 2)));
    let renew = Renew { id: id(1, 2), token, from: From::Now, lease_ms: LEASE_MS, not_after_us: world.now_us - 1 };
    assert_eq!(world.step(&Op::Renew(renew)).outcome, Outcome::Late);
}

#[test]
fn p5_a_release_grants_the_next_waiter_and_notifies_only_that_waiter() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    for session in 2..5 {
        ticket(&world.acquire(id(session, 1)));
    }
    let released = world.release(id(1, 1), token);
    assert_eq!(released.handed_claim_ms, Some(CLAIM_MIN_MS));
    assert_eq!(world.holder(), Some(id(2, 1)));
    let [push] = world.pushed.as_slice() else { panic!("one message: {:?}", world.pushed) };
    assert_eq!((push.to, push.id, push.event), (SessionId(2), id(2, 1), Event::Granted));
    assert!(push.token > token);
}

#[test]
fn p6_a_detached_waiter_is_passed_over_and_comes_back_to_its_place() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    let mine = ticket(&world.acquire(id(2, 1)));
    ticket(&world.acquire(id(3, 1)));
    ticket(&world.acquire(id(4, 1)));
    world.detached.insert(SessionId(2));
    world.release(id(1, 1), token);
    assert_eq!(world.holder(), Some(id(3, 1)));
    world.detached.clear();
    let back = world.with_place(id(2, 1), |place| place.ticket = Some(mine));
    assert_eq!(ticket(&back), mine);
    let order: Vec<GrantId> = world.resource.queue.iter().map(|entry| entry.id).collect();
    assert_eq!(order, [id(2, 1), id(4, 1)]);
}

#[test]
fn p6_a_recheck_moves_an_entry_without_its_ticket_to_its_place() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    let mine = ticket(&world.acquire(id(2, 1)));
    ticket(&world.acquire(id(3, 1)));
    ticket(&world.acquire(id(4, 1)));
    world.detached.insert(SessionId(2));
    world.release(id(1, 1), token);
    assert_eq!(world.holder(), Some(id(3, 1)));
    world.detached.clear();
    // A copy of its first request, from before it knew its ticket, was still in flight.
    assert!(ticket(&world.acquire(id(2, 1))) > mine);
    let back = world.with_place(id(2, 1), |place| place.ticket = Some(mine));
    assert_eq!(ticket(&back), mine);
    let order: Vec<GrantId> = world.resource.queue.iter().map(|entry| entry.id).collect();
    assert_eq!(order, [id(2, 1), id(4, 1)]);
}

#[test]
fn p6_a_polling_waiter_is_gone_after_three_intervals_without_a_poll() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    world.with_place(id(2, 1), |place| place.hears = Hears::Polls);
    world.detached.insert(SessionId(2));
    world.pass(14_999);
    let mut early = World { resource: world.resource.clone(), ..World::new() };
    early.now_us = world.now_us;
    early.release(id(1, 1), token);
    assert_eq!(early.holder(), Some(id(2, 1)), "a waiter that polls needs no inbox");
    world.pass(1);
    world.release(id(1, 1), token);
    assert_eq!(world.holder(), None);
}

#[test]
fn p7_a_push_lasts_a_claim_and_a_renewal_makes_it_a_whole_lease() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    world.release(id(1, 1), token);
    let push = world.pushed.remove(0);
    assert_eq!(push.left_us, CLAIM_MIN_MS * 1000);
    world.pass(CLAIM_MIN_MS / 3);
    let renewed = world.renew(id(2, 1), push.token, From::Now);
    assert_eq!(renewed.outcome, Outcome::Renewed { left_us: LEASE_MS * 1000 });
}

#[test]
fn p7_a_fixed_lease_is_claimed_once_from_its_grant() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    world.release(id(1, 1), token);
    let push = world.pushed.remove(0);
    for (pass_ms, waited_ms) in [(400, 400), (500, 900)] {
        world.pass(pass_ms);
        let claimed = world.renew(id(2, 1), push.token, From::Grant);
        assert_eq!(claimed.outcome, Outcome::Renewed { left_us: (LEASE_MS - waited_ms) * 1000 });
    }
}

#[test]
fn p7_a_frozen_session_costs_one_claim_and_not_one_for_each_of_its_waiters() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    let mut tickets = Vec::new();
    for counter in 1..4 {
        tickets.push(ticket(&world.acquire(id(2, counter))));
    }
    ticket(&world.acquire(id(3, 1)));
    world.release(id(1, 1), token);
    assert_eq!(world.holder(), Some(id(2, 1)));
    // Session 2 is frozen: its connection exists, and it sends nothing.
    world.pass(CLAIM_MIN_MS);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(3, 1)));
    // It wakes up and re-checks, and each of its waiters is back before the waiters that came later.
    for (counter, mine) in (1..4).zip(tickets) {
        let back = world.with_place(id(2, counter), |place| place.ticket = Some(mine));
        assert_eq!(ticket(&back), mine);
    }
    let next = world.pushed.last().unwrap().token;
    world.release(id(3, 1), next);
    assert_eq!(world.holder(), Some(id(2, 1)));
}

#[test]
fn p9_every_answer_and_push_reports_whether_others_wait() {
    let mut world = World::new();
    let first = world.acquire(id(1, 1));
    assert_eq!(first.contention, Contention::None);
    let token = granted(&first);
    world.acquire(id(2, 1));
    assert_eq!(world.renew(id(1, 1), token, From::Now).contention, Contention::Others);
    world.with_place(id(3, 1), |place| place.order = Order::Strict);
    assert_eq!(world.renew(id(1, 1), token, From::Now).contention, Contention::Strict);
    world.release(id(1, 1), token);
    assert_eq!(world.pushed[0].contention, Contention::Strict);
    let token = world.pushed[0].token;
    assert_eq!(world.release(id(2, 1), token).contention, Contention::None);
}

#[test]
fn p10_a_revoked_holder_is_notified_and_has_its_grace() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    let holder = id(1, 1).public();
    let wrong = Op::Revoke { holder, token: Token::new(token.get() - 1).unwrap(), grace_ms: 5_000 };
    assert_eq!(world.step(&wrong).outcome, Outcome::NotHeld);
    let revoke = Op::Revoke { holder, token, grace_ms: 5_000 };
    assert_eq!(world.step(&revoke).outcome, Outcome::Revoking { left_us: 5_000_000 });
    assert_eq!(world.pushed.remove(0).event, Event::Revoked);
    assert_eq!(world.renew(id(1, 1), token, From::Now).outcome, Outcome::Lost { how: LostHow::Revoked });
    assert_eq!(world.holder(), Some(id(1, 1)));
    world.pass(5_000);
    world.step(&Op::Settle);
    assert_eq!(world.holder(), Some(id(2, 1)));
    let (holder, token) = (id(2, 1).public(), world.pushed.last().unwrap().token);
    world.step(&Op::Revoke { holder, token, grace_ms: 0 });
    assert_eq!(world.holder(), None, "without a grace the lease ends at once");
    assert!(world.resource.lapses.is_empty(), "a revoked claim is not a lapse");
}

#[test]
fn p16_a_leave_hands_on_a_grant_that_was_already_made() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    ticket(&world.acquire(id(3, 1)));
    world.release(id(1, 1), token);
    assert_eq!(world.step(&Op::Leave { id: id(2, 1), used: Token::NONE }).outcome, Outcome::Left { was: Was::Granted });
    assert_eq!(world.holder(), Some(id(3, 1)));
    assert_eq!(world.step(&Op::Leave { id: id(2, 1), used: Token::NONE }).outcome, Outcome::Left { was: Was::Absent });
}

#[test]
fn tokens_do_not_fall_behind_a_clock_that_steps_back() {
    let mut world = World::new();
    let mut last = Token::NONE;
    for counter in 1..5 {
        let token = granted(&world.acquire(id(1, counter)));
        assert!(token > last);
        last = token;
        world.release(id(1, counter), token);
        world.now_us -= 10_000_000;
    }
    assert!(!world.resource.is_forgotten(last.get() + RETENTION_US - 1, u64::MAX));
}

#[test]
fn an_expired_grant_stays_until_a_step_touches_the_name() {
    let mut world = World::new();
    let token = granted(&world.acquire(id(1, 1)));
    ticket(&world.acquire(id(2, 1)));
    world.pass(LEASE_MS + 1_000);
    assert_eq!(world.holder(), Some(id(1, 1)));
    // The release is late, and no request was carried out since the lease ended.
    assert_eq!(world.release(id(1, 1), token).outcome, Outcome::Released);
    assert_eq!(world.holder(), Some(id(2, 1)));
    assert_eq!(world.resource.grants.sole().unwrap().state, GrantState::Pushed);
}
