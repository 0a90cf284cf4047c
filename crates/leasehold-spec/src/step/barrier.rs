//! The round of a barrier (P52): as many parties as the limit says wait for each other.
//!
//! An arrival is an entry of the queue, and the queue is the round. The round ends for all of its parties at once: it is
//! let through when the last party arrives, or it is broken when one of them is gone. A party whose round was broken has
//! to arrive again.
//!
//! A grant only says that the round was let through. It keeps nobody out. It lasts for a whole lease, so that a party whose
//! message was lost learns of it from its next request.

use crate::answer::Delivery;
use crate::env::Env;
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::resource::{Entry, Resource};
use crate::step::waiter::{dismissal, push, reason_to_skip};

/// Breaks the round if one of its parties is gone, or lets it through if it is complete. Returns the messages.
pub(super) fn settle_round(resource: &mut Resource, env: &Env<'_>) -> Vec<Delivery> {
    let is_gone = |entry: &Entry| reason_to_skip(resource, env, entry).is_some();
    if resource.queue.iter().any(is_gone) && !is_on(Mutant::P52TripsWithTheDead) {
        return break_round(resource, env);
    }
    let missing = u32::from(is_on(Mutant::P52TripsEarly));
    if resource.queue.len() >= resource.limit.saturating_sub(missing).max(1) as usize {
        return let_through(resource, env);
    }
    Vec::new()
}

/// Grants to all parties, to the first one first. The units of a grant are the place of its arrival, counted from the last.
fn let_through(resource: &mut Resource, env: &Env<'_>) -> Vec<Delivery> {
    hit(Mark::RoundTripped);
    let parties = std::mem::take(&mut resource.queue);
    let first = u32::try_from(parties.len()).unwrap_or(u32::MAX);
    let places = (1..=first).rev();
    let grants = parties.into_iter().zip(places).map(|(mut party, place)| {
        party.units = if is_on(Mutant::P52LeadsTwice) && place == first { 1 } else { place };
        let length_ms = if is_on(Mutant::P52GrantsClaims) { party.claim_ms } else { party.lease_ms };
        push(resource, env, (party, length_ms))
    });
    grants.collect()
}

/// Breaks the round if its first party came before one that has no place any more, and returns the messages. A failover has
/// lost the places of the later parties of the round. (The parties of a later round have later tickets.)
pub(super) fn break_earlier_round(resource: &mut Resource, env: &Env<'_>, ticket: Option<u64>) -> Vec<Delivery> {
    let is_earlier = |first: &Entry| ticket.is_some_and(|ticket| first.ticket < ticket);
    if resource.queue.front().is_some_and(is_earlier) && !is_on(Mutant::P52KeepsEarlier) {
        return break_round(resource, env);
    }
    Vec::new()
}

/// Removes all parties, and returns the messages to them.
pub(super) fn break_round(resource: &mut Resource, env: &Env<'_>) -> Vec<Delivery> {
    if resource.queue.is_empty() {
        return Vec::new();
    }
    hit(Mark::RoundBroken);
    resource.lapses.clear();
    let parties = std::mem::take(&mut resource.queue);
    parties.iter().map(|party| dismissal(party, resource.last, env.lease_us)).collect()
}
