//! P1: the step within every step. It ends leases whose time is over, and hands a free lease to the next live waiter.
//!
//! Invariant: *after a step, a live waiter at the head never waits for a free lease, unless the answer said MORE.*

use crate::answer::{Delivery, Rest};
use crate::env::Env;
use crate::grant::GrantState;
use crate::limits::{LAPSES, SETTLE_STEPS};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::policy;
use crate::resource::{Lapse, Resource};
use crate::step::barrier;
use crate::step::replace::{end_for_upgrade, pushed_length_ms, upgradeable};
use crate::step::waiter::{push, reason_to_skip};
use crate::take::Mode;

/// The result of settling a name.
#[derive(Default)]
pub(super) struct Settled {
    pub(super) rest: Rest,
    /// The length of the longest claim, if waiters were granted leases.
    pub(super) handed_claim_ms: Option<u64>,
    /// The messages to the waiters that were granted the lease.
    pub(super) deliveries: Vec<Delivery>,
}

impl Settled {
    /// Adds the message to a waiter that was granted a lease of this length.
    pub(super) fn add(&mut self, message: Delivery, length_ms: u64) {
        self.handed_claim_ms = self.handed_claim_ms.max(Some(length_ms));
        self.deliveries.push(message);
    }
}

pub(super) fn settle(resource: &mut Resource, env: &Env<'_>) -> Settled {
    move_future_to_now(resource, env);
    while end_expired(resource, env.lease_us) {}
    let mut settled = Settled::default();
    if policy::waits_together(resource.kind) {
        settled.deliveries = barrier::settle_round(resource, env);
    } else if !is_on(Mutant::P1Barging) {
        hand_to_upgrade(resource, env, &mut settled);
        hand_over(resource, env, &mut settled);
    }
    if resource.is_idle() {
        // Lapses concern waiters only. Without waiters they are useless, and the record goes back to its short form.
        resource.lapses.clear();
        policy::note_idle(resource);
    }
    settled
}

/// Replaces times in the future by now. They are there because the clock was set back. Otherwise a dead holder would
/// keep the lease, and a session whose claim lapsed would be passed over, until the clock has caught up.
///
/// No lease ends earlier by this than its holder believes: the holder counts from a moment before the grant, or before
/// the renewal.
fn move_future_to_now(resource: &mut Resource, env: &Env<'_>) {
    let now_us = env.lease_us;
    if is_on(Mutant::P1FutureStays) {
        return;
    }
    // P33: a pool has thousands of grants.
    for lapse in &mut resource.lapses {
        lapse.at_us = lapse.at_us.min(now_us);
    }
    if !resource.grants.may_begin_after(now_us) {
        return;
    }
    for id in resource.grants.begun_after(now_us) {
        hit(Mark::LeaseDatedAnew);
        resource.grants.change(id, |grant| grant.since_us = now_us);
        policy::keep(resource, id, env);
    }
    resource.grants.none_begins_after(now_us);
}

/// Ends a lease whose time is over. Returns whether there was one.
fn end_expired(resource: &mut Resource, now_us: u64) -> bool {
    let Some(ended) = resource.grants.take_ended(now_us) else { return false };
    policy::note_unspent(resource, ended.units);
    if !ended.is_held() {
        // The grant was given back when it began to cool down, and its range with it.
        hit(Mark::CooledDown);
        resource.released = Some(ended.id);
        return true;
    }
    // Nobody reported how much of the range was used: all of it is burnt.
    let burnt = if is_on(Mutant::P19BurnsNothing) { ended.token } else { ended.reserved() };
    resource.last = policy::burn(resource, burnt);
    if ended.range > 1 {
        hit(Mark::RangeBurnt);
    }
    hit(Mark::LeaseExpired);
    if ended.state == GrantState::Pushed && !is_on(Mutant::P7ForgetsLapse) {
        note_lapse(resource, Lapse { session: ended.id.session, at_us: ended.end_us() });
    }
    true
}

/// Notes a session that let a claim run out: it is frozen or dead, or did not get the push. Each of its other waiters
/// would cost one more claim. They are passed over until a request of their session arrives.
fn note_lapse(resource: &mut Resource, lapse: Lapse) {
    hit(Mark::ClaimLapsed);
    resource.lapses.retain(|known| known.session != lapse.session);
    if resource.lapses.len() == LAPSES {
        hit(Mark::LapsesFull);
        resource.lapses.remove(0);
    }
    resource.lapses.push(lapse);
}

/// Grants leases to the first waiters that are still there, as long as they fit. Checks at most 64 waiters.
fn hand_over(resource: &mut Resource, env: &Env<'_>, settled: &mut Settled) {
    let mut checked = 0;
    while policy::looks_at_waiters(resource)
        && let Some(head) = resource.queue.pop_front()
    {
        if checked == SETTLE_STEPS && !is_on(Mutant::P1Unbounded) {
            hit(Mark::SettleMore);
            resource.queue.push_front(head);
            settled.rest = Rest::More;
            // P34: the reply can be lost with its client. The last of those that were granted goes on.
            if let Some(message) = settled.deliveries.last_mut().filter(|_| !is_on(Mutant::P34MessageIsSilent)) {
                message.rest = Rest::More;
            }
            return;
        }
        checked += 1;
        if let Some(reason) = reason_to_skip(resource, env, &head) {
            // Only the entry is removed. The waiter has its ticket, and a re-check brings it back to its place.
            hit(reason);
            continue;
        }
        if !policy::fits_at_all(resource, head.units) && !is_on(Mutant::P40TooBigWaits) {
            hit(Mark::PassedTooBig);
            continue;
        }
        if !policy::fits(resource, head.units, head.mode) {
            resource.queue.push_front(head);
            return;
        }
        let length_ms = if is_on(Mutant::P7NoClaim) { head.lease_ms } else { head.claim_ms.min(head.lease_ms) };
        settled.add(push(resource, env, (head, length_ms)), length_ms);
        if is_on(Mutant::P33ServesOne) {
            return;
        }
    }
}

/// Replaces the grant that a waiting upgrade names, if it is the only one left (P37).
fn hand_to_upgrade(resource: &mut Resource, env: &Env<'_>, settled: &mut Settled) {
    let Some(entry) = resource.upgrade.take() else { return };
    let Mode::Instead { id, token } = entry.mode else { return };
    if upgradeable(resource, (id, token)).is_none() {
        hit(Mark::UpgradeOrphaned);
        return;
    }
    if let Some(reason) = reason_to_skip(resource, env, &entry) {
        // A re-check brings it back.
        hit(reason);
        return;
    }
    if resource.grants.len() > 1 {
        resource.upgrade = Some(entry);
        return;
    }
    hit(Mark::Upgraded);
    let end_us = end_for_upgrade(resource, id).unwrap_or_default();
    let length_ms = pushed_length_ms(&entry, end_us, env.lease_us);
    settled.add(push(resource, env, (entry, length_ms)), length_ms);
}
