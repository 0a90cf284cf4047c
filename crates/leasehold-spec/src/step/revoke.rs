//! Revoke: a request to end the grant of another client (P10).

use crate::answer::{Contention, Delivery, Event, Outcome, Rest};
use crate::grant::GrantState;
use crate::id::{PublicId, Token};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::policy;
use crate::step::context::Step;
use crate::step::notify::notify_next_waiters;

pub(super) fn revoke(step: &mut Step<'_, '_>, holder: PublicId, token: Token, grace_ms: u64) -> (Outcome, Rest) {
    let rest = step.settle();
    let Some(message) = mark_revoked(step, holder, token, grace_ms) else {
        hit(Mark::RevokeMissed);
        return (Outcome::NotHeld, rest);
    };
    let left_us = message.left_us;
    step.deliveries.push(message);
    let rest = step.settle();
    notify_next_waiters(step);
    (Outcome::Revoking { left_us }, rest)
}

/// Marks the grant that the caller saw, and shortens its lease to the grace. Returns the message to its holder.
fn mark_revoked(step: &mut Step<'_, '_>, holder: PublicId, token: Token, grace_ms: u64) -> Option<Delivery> {
    let now_us = step.env.lease_us;
    let id = step.resource.grants.named(holder)?;
    step.resource.grants.get(id).filter(|grant| grant.token == token)?;
    hit(Mark::GrantRevoked);
    step.resource.grants.change(id, |grant| {
        // Nobody works under a grant that cools down, so nobody needs the grace.
        let grace_ms = if is_on(Mutant::P10NoGrace) || !grant.is_held() { 0 } else { grace_ms };
        let end_us = grant.end_us().min(now_us + grace_ms * 1000);
        grant.length_ms = (end_us - grant.since_us) / 1000;
        grant.state = GrantState::Revoked;
    })?;
    let grant = step.resource.grants.get(id)?;
    let message = Delivery {
        to: grant.id.session,
        now_us,
        contention: Contention::None,
        rest: Rest::Done,
        id: grant.id,
        token: grant.token,
        left_us: grant.left_us(now_us),
        range: grant.range,
        event: Event::Revoked,
    };
    policy::keep(step.resource, id, step.env);
    Some(message)
}
