//! Release, leave and cool down: requests that end an attempt.

use crate::answer::{Outcome, Rest, Was};
use crate::grant::{GrantState, keep_from};
use crate::id::{GrantId, Token};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::policy;
use crate::step::barrier::break_round;
use crate::step::context::Step;
use crate::step::notify::notify_next_waiters;

/// Gives the grant back. The step does not first end the grant because of its age: it ends here in any case, the next
/// holder is the same, and the usual release needs no clock.
pub(super) fn release(step: &mut Step<'_, '_>, id: GrantId, token: Token, used: Token) -> (Outcome, Rest) {
    let is_held = step.resource.held_by(id).is_some_and(|grant| grant.token == token);
    if is_held {
        return (Outcome::Released, give_back(step, id, used));
    }
    if let Some(id) = step.resource.grants.sole().map(|grant| grant.id).filter(|_| is_on(Mutant::P3ReleaseByAnyone)) {
        return (Outcome::Released, give_back(step, id, used));
    }
    let is_repeated = step.resource.was_given_back(id) && !is_on(Mutant::P3ForgetsRelease);
    hit(if is_repeated { Mark::ReleaseRepeated } else { Mark::ReleaseNotHeld });
    let outcome = if is_repeated { Outcome::Released } else { Outcome::NotHeld };
    (outcome, step.settle())
}

pub(super) fn leave(step: &mut Step<'_, '_>, id: GrantId, used: Token) -> (Outcome, Rest) {
    if let Some(at) = step.resource.position(id) {
        hit(Mark::LeftQueue);
        step.resource.queue.remove(at);
        if policy::waits_together(step.resource.kind) && !is_on(Mutant::P52LeavesTheOthers) {
            step.deliveries.extend(break_round(step.resource, step.env));
        }
        let rest = step.settle();
        if !is_on(Mutant::P10TellsOnce) {
            notify_next_waiters(step);
        }
        return (Outcome::Left { was: Was::Queued }, rest);
    }
    if step.resource.upgrade.take_if(|upgrade| upgrade.id == id).is_some() {
        hit(Mark::UpgradeWithdrawn);
        return (Outcome::Left { was: Was::Queued }, step.settle());
    }
    if step.resource.held_by(id).is_some() && !is_on(Mutant::P16LeaveKeeps) {
        hit(Mark::LeftGranted);
        return (Outcome::Left { was: Was::Granted }, give_back(step, id, used));
    }
    hit(Mark::LeftAbsent);
    (Outcome::Left { was: Was::Absent }, step.settle())
}

/// P23: the grant is given back and cools down. The lease is not free, so nobody is granted it before the cool-down is
/// over.
///
/// Nothing happens at the store by itself at that time. So the step also notifies the waiters that are next.
pub(super) fn cool_down(step: &mut Step<'_, '_>, id: GrantId, used: Token, for_ms: u64) -> (Outcome, Rest) {
    if !begin_cool_down(step, id, used, for_ms) {
        return leave(step, id, used);
    }
    let rest = step.settle();
    notify_next_waiters(step);
    (Outcome::Left { was: Was::Granted }, rest)
}

/// Makes the grant of `id` cool down, and returns whether it cools down now. A revoked grant does not cool down: the
/// operator wants its end.
fn begin_cool_down(step: &mut Step<'_, '_>, id: GrantId, used: Token, for_ms: u64) -> bool {
    let now_us = step.env.lease_us;
    let Some((state, end_us)) = step.resource.grants.get(id).map(|grant| (grant.state, grant.end_us())) else {
        return false;
    };
    match state {
        GrantState::Revoked => return false,
        // A lease that has ended is lost, and its minimum hold with it. A request can be this late: the store stood
        // still.
        GrantState::Held | GrantState::Pushed if end_us <= now_us && !is_on(Mutant::P23CoolsTheEnded) => {
            return false;
        }
        // The reply to the first request was lost. A repeat does not lengthen the cool-down.
        GrantState::CoolingDown if !is_on(Mutant::P23RepeatExtends) => {
            hit(Mark::CoolDownRepeated);
            return true;
        }
        GrantState::Held | GrantState::Pushed | GrantState::CoolingDown => {}
    }
    hit(Mark::CoolDownBegun);
    let highest = step.resource.grants.change(id, |grant| {
        grant.token = grant.used(used);
        grant.range = 1;
        (grant.since_us, grant.length_ms, grant.state) = (now_us, for_ms, GrantState::CoolingDown);
        grant.token
    });
    step.resource.last = step.resource.last.max(highest.unwrap_or_default());
    policy::keep(step.resource, id, step.env);
    true
}

/// Ends the grant, and hands the lease to the next waiter.
pub(super) fn give_back(step: &mut Step<'_, '_>, id: GrantId, used: Token) -> Rest {
    let Some(ended) = step.resource.grants.take(id) else { return Rest::Done };
    policy::note_unspent(step.resource, ended.units);
    let used = ended.used(used);
    step.resource.last = step.resource.last.max(used);
    if used > ended.token {
        hit(Mark::RangeUsed);
    }
    step.resource.released = Some(ended.id);
    if is_on(Mutant::P5WakeOnly) {
        return Rest::Done;
    }
    let rest = step.settle_for_waiters();
    let is_free = step.resource.grants.is_empty() && step.resource.is_idle();
    if is_free && policy::ends_with(step.resource, &ended) {
        step.resource.keep_until_us = keep_from(step.env.lease_us);
    }
    rest
}
