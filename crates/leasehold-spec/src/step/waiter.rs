//! A waiter: whether it is there, its grant, and its dismissal.

use crate::answer::{Contention, Delivery, Event, Rest};
use crate::env::Env;
use crate::grant::{Grant, GrantState};
use crate::id::{Token, allowed_range};
use crate::limits::recheck_floor_ms;
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::Hears;
use crate::policy;
use crate::resource::{Entry, Resource};

/// Returns the reason for which a waiter is passed over, if there is one.
pub(super) fn reason_to_skip(resource: &Resource, env: &Env<'_>, entry: &Entry) -> Option<Mark> {
    if entry.limit_us.is_some_and(|limit| limit <= env.lease_us) {
        return Some(Mark::PassedOverdue);
    }
    // An entry that was seen in the future was seen before the clock was set back. It counts as never seen, and a
    // re-check brings it back.
    let is_known = entry.seen_us <= env.lease_us || is_on(Mutant::P1FutureStays);
    let seen_us = if is_known { entry.seen_us } else { 0 };
    if resource.lapses.iter().any(|lapse| lapse.session == entry.id.session && seen_us < lapse.at_us) {
        return Some(Mark::PassedLapsed);
    }
    let silent_us = 3 * recheck_floor_ms(entry.lease_ms) * 1000;
    match entry.hears {
        Hears::Listens if (env.attached)(entry.id.session) || is_on(Mutant::P6GrantsDetached) => None,
        Hears::Listens => Some(Mark::PassedDetached),
        Hears::Polls => (seen_us + silent_us <= env.lease_us).then_some(Mark::PassedSilent),
    }
}

/// Makes the grant of a waiter, and returns the message to it.
pub(super) fn push(resource: &mut Resource, env: &Env<'_>, (entry, length_ms): (Entry, u64)) -> Delivery {
    hit(Mark::HandedOver);
    let now_us = env.lease_us;
    resource.last = resource.reserved().next(env.wall_us);
    let grant = Grant {
        id: entry.id,
        token: resource.last,
        range: allowed_range(entry.range, resource.last, env.wall_us),
        since_us: now_us,
        length_ms,
        state: GrantState::Pushed,
        units: entry.units,
        mode: entry.mode.once_granted(),
        label: entry.label,
    };
    // Not at every hand-over: on a busy lock, only one hand-over in a thousand writes it.
    if resource.keep_until_us < grant.keep_until_us(env) {
        let whole = Grant { length_ms: entry.lease_ms, label: String::new(), ..grant };
        resource.keep_until_us = whole.keep_until_us(env);
    }
    let message = Delivery {
        to: grant.id.session,
        now_us,
        contention: resource.contention(),
        rest: Rest::Done,
        id: grant.id,
        token: grant.token,
        left_us: grant.left_us(now_us),
        range: policy::stated_range(resource.kind, &grant),
        event: Event::Granted,
    };
    resource.grants.add(grant);
    message
}

/// Returns the message to a waiter whose entry was removed. It asks again, and is refused.
pub(super) fn dismissal(entry: &Entry, token: Token, now_us: u64) -> Delivery {
    Delivery {
        to: entry.id.session,
        now_us,
        contention: Contention::None,
        rest: Rest::Done,
        id: entry.id,
        token,
        left_us: 0,
        range: 1,
        event: Event::Ending,
    }
}
