//! Upgrade (P37, P38): a grant that may be upgraded becomes the grant of a writer, without a moment between the two.
//!
//! An upgrade waits ahead of the queue, until the grant that it names is the only one left. While it waits, nobody is
//! admitted. If it waited in the queue, it would wait behind writers that wait for its own grant.

use crate::answer::{Joined, Outcome, Refusal, Rest};
use crate::grant::{Grant, GrantState};
use crate::id::{GrantId, Token};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::{Acquire, Patience};
use crate::resource::{Entry, Resource};
use crate::step::acquire::{entry, grant};
use crate::step::context::Step;
use crate::take::Mode;

pub(super) fn upgrade(step: &mut Step<'_, '_>, request: &Acquire, of: (GrantId, Token), rest: Rest) -> (Outcome, Rest) {
    let waits = step.resource.upgrade.as_ref().is_some_and(|upgrade| upgrade.id == request.id);
    if upgradeable(step.resource, of).is_none() {
        hit(Mark::UpgradeRefused);
        return (Outcome::Refused(Refusal::NoGrant), rest);
    }
    if step.resource.grants.len() == 1 || is_on(Mutant::P37WaitsForNobody) {
        hit(Mark::UpgradedAtOnce);
        end_for_upgrade(step.resource, of.0);
        return (grant(step, request), rest);
    }
    let left_us = step.first_left_us();
    let Patience::Queue(place) = &request.patience else {
        if !waits {
            return (Outcome::Busy { left_us }, rest);
        }
        // The caller stops waiting, and keeps the grant that it has (P38). Those that the upgrade has kept out go on.
        hit(Mark::UpgradeWithdrawn);
        step.resource.upgrade = None;
        return (Outcome::Busy { left_us }, step.settle());
    };
    let ticket = step.env.lease_us;
    if !waits {
        step.resource.upgrade = Some(entry(request, place, (step.env.lease_us, ticket)));
    }
    let joined = if waits { Joined::Before } else { Joined::Now };
    (Outcome::Queued { ticket, left_us, joined }, rest)
}

/// Returns the grant that an upgrade names, if it is held and may be upgraded. A grant that is marked for revocation may
/// not: its holder would escape.
pub(super) fn upgradeable(resource: &Resource, (id, token): (GrantId, Token)) -> Option<&Grant> {
    let may_be = |grant: &&Grant| {
        let is_held = matches!(grant.state, GrantState::Held | GrantState::Pushed);
        grant.token == token && grant.mode == Mode::Upgradeable && is_held
    };
    resource.grants.get(id).filter(may_be)
}

/// Ends the grant that an upgrade replaces. Returns the time at which its lease would have ended.
pub(super) fn end_for_upgrade(resource: &mut Resource, id: GrantId) -> Option<u64> {
    let ended = resource.grants.take(id)?;
    resource.released = Some(id);
    Some(ended.end_us())
}

/// Returns the length of a lease that is pushed to an upgrade. Its holder held until `end_us`, and would lose by less.
pub(super) fn pushed_length_ms(entry: &Entry, end_us: u64, now_us: u64) -> u64 {
    let left_ms = end_us.saturating_sub(now_us) / 1000;
    let claim_ms = entry.claim_ms.min(entry.lease_ms);
    if is_on(Mutant::P37ClaimShortens) { claim_ms } else { claim_ms.max(left_ms) }
}
