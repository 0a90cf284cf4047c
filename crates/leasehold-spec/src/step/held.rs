//! Renew, reserve and put: requests about a grant that is held.

use crate::answer::{LostHow, Outcome, Rest};
use crate::grant::{Grant, GrantState};
use crate::id::{GrantId, Token, allowed_range};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::{From, Renew};
use crate::policy;
use crate::resource::Resource;
use crate::step::context::Step;
use crate::take::Mode;

pub(super) fn renew(step: &mut Step<'_, '_>, request: &Renew) -> (Outcome, Rest) {
    let rest = step.settle_ended();
    if step.is_late(request.not_after_us) {
        hit(Mark::RenewLate);
        return (Outcome::Late, rest);
    }
    let now_us = step.env.lease_us;
    if step.resource.grants.is_empty() && is_on(Mutant::P3RenewRecreates) {
        recreate(step.resource, request, now_us);
    }
    let grants = &mut step.resource.grants;
    let is_its = |grant: &&Grant| grant.token == request.token && (grant.is_held() || is_on(Mutant::P23RenewRevives));
    let found = match is_on(Mutant::P3RenewByAnyone) {
        true => grants.iter().find(|grant| grant.id.session == request.id.session),
        false => grants.get(request.id).filter(is_its),
    };
    let Some((id, state)) = found.map(|grant| (grant.id, grant.state)) else {
        hit(Mark::RenewNotHeld);
        return (Outcome::Lost { how: LostHow::NotHeld }, rest);
    };
    if state == GrantState::Revoked {
        hit(Mark::RenewRevoked);
        return (Outcome::Lost { how: LostHow::Revoked }, rest);
    }
    let renewed = grants.change(id, |grant| (extend(grant, request, now_us), grant.left_us(now_us)));
    let (is_kept, left_us) = renewed.unwrap_or_default();
    if !is_kept || !policy::keeps_by_span(step.resource) {
        policy::keep(step.resource, id, step.env);
    }
    (Outcome::Renewed { left_us }, rest)
}

/// Extends a grant. Returns whether its record is kept for long enough.
fn extend(grant: &mut Grant, request: &Renew, now_us: u64) -> bool {
    let is_kept = match (request.from, grant.state) {
        (From::Now, _) => {
            let is_kept = grant.is_kept_until(now_us, request.lease_ms);
            (grant.since_us, grant.length_ms) = (now_us, request.lease_ms);
            is_kept
        }
        // The lease never becomes shorter. If the record were kept only until a time that has passed, the step would
        // forget it although the lease is held.
        (From::Grant, GrantState::Pushed) => {
            hit(Mark::FixedClaimed);
            grant.length_ms = grant.length_ms.max(request.lease_ms);
            false
        }
        // The grant was claimed before, and the reply was lost. A fixed lease is never lengthened.
        (From::Grant, _) => {
            hit(Mark::FixedClaimedAgain);
            true
        }
    };
    grant.state = GrantState::Held;
    is_kept
}

/// Makes the grant that the renewal names. This is a flaw: see [`Mutant::P3RenewRecreates`].
fn recreate(resource: &mut Resource, request: &Renew, now_us: u64) {
    let Renew { id, token, lease_ms: length_ms, .. } = *request;
    let (state, mode, label) = (GrantState::Held, Mode::Plain, String::new());
    resource.grants.add(Grant { id, token, range: 1, since_us: now_us, length_ms, state, units: 1, mode, label });
}

/// Reserves more tokens for a grant that is held. The lease does not end earlier or later, so the request has no
/// `not_after`.
pub(super) fn reserve(step: &mut Step<'_, '_>, id: GrantId, token: Token, asked: u64) -> (Outcome, Rest) {
    let rest = step.settle();
    let (now_us, wall_us) = (step.env.lease_us, step.env.wall_us);
    let is_its = |grant: &&Grant| grant.token == token && grant.is_held();
    let found = match is_on(Mutant::P19ReservesForAll) {
        true => step.resource.grants.sole(),
        false => step.resource.grants.get(id).filter(is_its),
    };
    let Some((id, state)) = found.map(|grant| (grant.id, grant.state)) else {
        hit(Mark::ReserveNotHeld);
        return (Outcome::Lost { how: LostHow::NotHeld }, rest);
    };
    if state == GrantState::Revoked {
        return (Outcome::Lost { how: LostHow::Revoked }, rest);
    }
    hit(Mark::RangeExtended);
    let asked = policy::range(step.resource.kind, asked);
    let extended = step.resource.grants.change(id, |grant| {
        grant.range = grant.range.max(allowed_range(asked, token, wall_us));
        let is_beyond = now_us + grant.reserved().get().saturating_sub(wall_us) > grant.end_us();
        (grant.range, is_beyond.then(|| grant.keep_until_us(step.env)))
    });
    let (range, keep_until_us) = extended.unwrap_or_default();
    step.resource.keep_until_us = step.resource.keep_until_us.max(keep_until_us.unwrap_or_default());
    (Outcome::Reserved { range }, rest)
}

/// Changes the label of a grant that is held. A repeat changes nothing, and a later grant has another ID (P48), so the
/// request has no `not_after`.
pub(super) fn put(step: &mut Step<'_, '_>, id: GrantId, token: Token, label: &str) -> (Outcome, Rest) {
    let rest = step.settle();
    let any = step.resource.grants.sole().filter(|_| is_on(Mutant::P48PutsForAny)).map(|grant| grant.id);
    let its = step.resource.held_by(id).filter(|grant| grant.token == token).map(|grant| grant.id);
    let Some(id) = its.or(any) else {
        hit(Mark::PutNotHeld);
        return (Outcome::Lost { how: LostHow::NotHeld }, rest);
    };
    hit(Mark::LabelPut);
    step.resource.grants.change(id, |grant| label.clone_into(&mut grant.label));
    (Outcome::Put, rest)
}
