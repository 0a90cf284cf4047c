//! The grant or the entry of the queue that an acquire makes.

use crate::answer::Outcome;
use crate::grant::{Grant, GrantState};
use crate::id::allowed_range;
use crate::limits::RANGE_MAX;
use crate::op::{Acquire, Place};
use crate::policy;
use crate::resource::Entry;
use crate::step::context::Step;

/// Grants the request.
pub(super) fn grant(step: &mut Step<'_, '_>, request: &Acquire) -> Outcome {
    let (now_us, wall_us) = (step.env.lease_us, step.env.wall_us);
    let token = step.resource.reserved().next(wall_us);
    let grant = Grant {
        id: request.id,
        token,
        range: allowed_range(policy::range(request.take.kind, request.range.clamp(1, RANGE_MAX)), token, wall_us),
        since_us: now_us,
        length_ms: request.lease_ms,
        state: GrantState::Held,
        units: request.take.units,
        mode: request.take.mode.once_granted(),
        label: request.label.to_string(),
    };
    let granted = Outcome::Granted { token, left_us: grant.left_us(now_us), range: grant.range };
    step.resource.last = token;
    step.resource.grants.add(grant);
    policy::keep(step.resource, request.id, step.env);
    granted
}

/// Returns the entry of a request that came at `now_us`.
pub(super) fn entry(request: &Acquire, place: &Place, (now_us, ticket): (u64, u64)) -> Entry {
    Entry {
        id: request.id,
        ticket,
        lease_ms: request.lease_ms,
        range: policy::range(request.take.kind, request.range.clamp(1, RANGE_MAX)),
        claim_ms: place.claim_ms,
        limit_us: place.limit_ms.map(|ms| now_us + ms * 1000),
        seen_us: now_us,
        hears: place.hears,
        order: place.order,
        units: request.take.units,
        mode: request.take.mode,
        label: request.label.to_string(),
    }
}
