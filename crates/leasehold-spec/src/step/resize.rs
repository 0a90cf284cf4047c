//! Resize (P40): another number of permits.

use crate::answer::{Outcome, Refusal, Rest};
use crate::grant::keep_from;
use crate::id::Token;
use crate::limits::PERMITS_MAX;
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::policy;
use crate::step::context::Step;
use crate::take::{Kind, Take};

/// Changes the number of permits, if it is the one that the caller saw. Grants beyond a smaller number live on, and nobody
/// is granted before enough of them have ended.
///
/// A name without a record gets one. Otherwise a client that knows only the earlier number could begin the name with it.
pub(super) fn resize(step: &mut Step<'_, '_>, (from, to): (u32, u32), not_after_us: u64) -> (Outcome, Rest) {
    if step.is_late(not_after_us) {
        return (Outcome::Late, step.settle());
    }
    let is_new = step.resource.last == Token::NONE;
    policy::begin(step.resource, &Take::permits(0, from));
    let (kind, limit) = (step.resource.kind, step.resource.limit);
    let is_as_seen = limit == from || limit == to || is_on(Mutant::P40ResizesBlindly);
    if kind != Kind::Semaphore || !is_as_seen {
        hit(Mark::ResizeRefused);
        return (Outcome::Refused(Refusal::Other { kind, limit }), step.settle());
    }
    if !(1..=PERMITS_MAX).contains(&to) {
        return (Outcome::Refused(Refusal::TooMany { limit: PERMITS_MAX }), step.settle());
    }
    hit(Mark::Resized);
    step.resource.limit = to;
    if is_new {
        step.resource.last = Token::NONE.next(step.env.wall_us);
        step.resource.keep_until_us = keep_from(step.env.lease_us);
    }
    (Outcome::Resized, step.settle())
}
