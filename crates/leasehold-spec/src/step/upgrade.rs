//! Upgrade (P37, P38): a grant that may be upgraded becomes the grant of a writer, without a moment between the two.
//!
//! An upgrade waits ahead of the queue, until the grant that it names is the only one left. While it waits, nobody is
//! admitted. If it waited in the queue, it would wait behind writers that wait for its own grant.

use crate::answer::{Joined, Outcome, Refusal, Rest};
use crate::id::{GrantId, Token};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::{Acquire, Patience};
use crate::step::admit::{entry, grant};
use crate::step::context::Step;
use crate::step::replace::{end_for_upgrade, upgradeable};

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
    let known = step.resource.upgrade.as_ref().filter(|_| waits).map(|upgrade| upgrade.ticket);
    let ticket = known.or(place.ticket).unwrap_or(step.env.lease_us);
    if !waits {
        step.resource.upgrade = Some(entry(request, place, (step.env.lease_us, ticket)));
    }
    let joined = if waits { Joined::Before } else { Joined::Now };
    (Outcome::Queued { ticket, left_us, joined }, rest)
}
