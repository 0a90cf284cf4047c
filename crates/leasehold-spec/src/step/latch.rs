//! Latches (P44): a gate that opens once, when as many count-downs have come as it was created with.
//!
//! A latch that was deleted has the limit 0. Its record is kept for a while, so that the next latch of the name has a
//! larger token.

use crate::answer::{Outcome, Refusal, Rest};
use crate::grant::keep_from;
use crate::id::{GrantId, Token};
use crate::latch::Latch;
use crate::limits::{COUNTS_MAX, SETTLE_STEPS};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::policy;
use crate::step::context::Step;
use crate::step::waiter::dismissal;
use crate::take::Kind;

/// Creates a latch. If there is one with this limit, or if the limit is 0, returns the state of that one.
pub(super) fn create(step: &mut Step<'_, '_>, limit: u32, keep_ms: u64, not_after_us: u64) -> (Outcome, Rest) {
    if step.is_late(not_after_us) {
        return (Outcome::Late, step.settle());
    }
    let rest = step.settle();
    let resource = &mut *step.resource;
    let is_free = resource.last == Token::NONE || resource.kind == Kind::Latch;
    if !policy::exists(resource) && is_free {
        if limit == 0 {
            return (Outcome::Refused(Refusal::Absent), rest);
        }
        if limit > COUNTS_MAX {
            return (Outcome::Refused(Refusal::TooMany { limit: COUNTS_MAX }), rest);
        }
        hit(Mark::LatchCreated);
        resource.last = resource.reserved().next(step.env.wall_us);
        (resource.kind, resource.limit) = (Kind::Latch, limit);
        resource.latch = Latch { born: resource.last, keep_ms, ..Latch::default() };
        keep(step);
        return (counted(step), rest);
    }
    if resource.kind != Kind::Latch || (limit != 0 && limit != resource.limit) {
        return (Outcome::Refused(Refusal::Other { kind: resource.kind, limit: resource.limit }), rest);
    }
    (counted(step), rest)
}

/// Counts once for each ID, and only for the latch that the caller saw. A repeat changes nothing, so the request has no
/// `not_after`.
pub(super) fn count_down(step: &mut Step<'_, '_>, id: GrantId, born: Token) -> (Outcome, Rest) {
    let rest = step.settle();
    let is_its = policy::exists(step.resource) && (step.resource.latch.born == born || is_on(Mutant::P44CountsForAny));
    if !is_its {
        hit(Mark::CountRefused);
        return (Outcome::Refused(Refusal::Absent), rest);
    }
    let mut counts_as = id;
    while is_on(Mutant::P44CountsTwice) && step.resource.latch.counted.contains(&counts_as) {
        counts_as.nonce = counts_as.nonce.wrapping_add(1);
    }
    if step.resource.latch.left(step.resource.limit) > 0 && step.resource.latch.counted.insert(counts_as) {
        hit(Mark::CountedDown);
        keep(step);
    }
    let rest = step.settle();
    (counted(step), rest)
}

/// Deletes a latch. Its waiters are removed, and notified to ask again: they are refused then.
pub(super) fn delete(step: &mut Step<'_, '_>, born: Token) -> (Outcome, Rest) {
    let rest = step.settle();
    if !policy::exists(step.resource) || step.resource.latch.born != born {
        return (Outcome::Deleted, rest);
    }
    hit(Mark::LatchDeleted);
    let now_us = step.env.lease_us;
    let waiting = std::mem::take(&mut step.resource.queue);
    step.deliveries.extend(waiting.iter().take(SETTLE_STEPS).map(|entry| dismissal(entry, born, now_us)));
    step.resource.lapses.clear();
    (step.resource.limit, step.resource.latch) = (0, Latch::default());
    step.resource.keep_until_us = keep_from(now_us);
    (Outcome::Deleted, Rest::Done)
}

fn counted(step: &Step<'_, '_>) -> Outcome {
    Outcome::Counted { left: step.resource.latch.left(step.resource.limit), born: step.resource.latch.born }
}

fn keep(step: &mut Step<'_, '_>) {
    let until_us = keep_from(step.env.lease_us + step.resource.latch.keep_ms * 1000);
    step.resource.keep_until_us = step.resource.keep_until_us.max(until_us);
}
