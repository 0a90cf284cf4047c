//! Notify and spend (P41 to P43): the notifications of a condition variable.
//!
//! A notification is a grant. The limit of the name is the number of notifications that nobody has spent. So a grant that
//! ends in any other way than by a spend leaves a free unit, which the same step hands to the next waiter.

use crate::answer::{Outcome, Refusal, Rest};
use crate::id::{GrantId, Token};
use crate::limits::GRANTS_MAX;
use crate::mark::{Mark, hit};
use crate::step::context::Step;
use crate::take::Kind;

/// Notifies this many waiters, or as many as there are.
pub(super) fn notify(step: &mut Step<'_, '_>, count: u32) -> (Outcome, Rest) {
    let rest = step.settle();
    let resource = &mut *step.resource;
    if resource.last == Token::NONE {
        // Nobody has waited yet, so there is no record and no kind.
        return (Outcome::Notified { count: 0 }, rest);
    }
    if resource.kind != Kind::Condition {
        hit(Mark::TakeRefused);
        return (Outcome::Refused(Refusal::Other { kind: resource.kind, limit: resource.limit }), rest);
    }
    // After MORE there are notifications for the first waiters already.
    let on_their_way = resource.limit.saturating_sub(resource.grants.units());
    let waiting = u32::try_from(resource.queue.len()).unwrap_or(u32::MAX).saturating_sub(on_their_way);
    let count = count.min(waiting).min(GRANTS_MAX.saturating_sub(resource.limit));
    if count == 0 {
        hit(Mark::NotifiedNobody);
        return (Outcome::Notified { count }, rest);
    }
    hit(Mark::Notified);
    resource.limit += count;
    (Outcome::Notified { count }, step.settle())
}

/// Ends a notification whose receiver acts on it. A repeat changes nothing, so the request has no `not_after`.
pub(super) fn spend(step: &mut Step<'_, '_>, id: GrantId, token: Token) -> (Outcome, Rest) {
    let rest = step.settle_ended();
    let is_condition = step.resource.kind == Kind::Condition;
    let Some(grant) = step.resource.held_by(id).filter(|grant| is_condition && grant.token == token) else {
        hit(Mark::SpendNotHeld);
        let is_repeated = is_condition && step.resource.was_given_back(id);
        return (if is_repeated { Outcome::Spent } else { Outcome::NotHeld }, rest);
    };
    hit(Mark::Spent);
    let units = grant.units;
    step.resource.grants.take(id);
    step.resource.limit = step.resource.limit.saturating_sub(units);
    step.resource.released = Some(id);
    (Outcome::Spent, step.settle_for_waiters())
}
