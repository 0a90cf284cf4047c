//! The grant that an upgrade replaces (P37).

use crate::grant::{Grant, GrantState};
use crate::id::{GrantId, Token};
use crate::mutant::{Mutant, is_on};
use crate::resource::{Entry, Resource};
use crate::take::Mode;

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
