//! P1: the step within every step. It ends what has ended and hands a free lease to the next live waiter.
//!
//! Invariant: *after a step, a live waiter at the head never waits for a free lease, unless the answer said MORE.*

use crate::id::range;
use crate::limits::{LAPSES, SETTLE_STEPS, look_floor_ms};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::{Delivery, Event, GrantState, Hears, Rest};
use crate::resource::{Entry, Grant, Lapse, Resource};
use crate::step::Env;

/// What settling did.
#[derive(Default)]
pub(crate) struct Settled {
    pub(crate) rest: Rest,
    /// The waiter that holds now, and how long its claim lasts.
    pub(crate) handed_claim_ms: Option<u64>,
    pub(crate) delivery: Option<Delivery>,
}

pub(crate) fn settle(resource: &mut Resource, env: &Env<'_>) -> Settled {
    date_anew(resource, env);
    end_expired(resource, env.lease_us);
    let mut settled = Settled::default();
    if resource.grant.is_none() && !is_on(Mutant::P1Barging) {
        settled = hand_over(resource, env);
    }
    if resource.queue.is_empty() {
        // Lapses speak of waiters only. Without any they are noise, and the record goes back to its short form.
        resource.lapses.clear();
    }
    settled
}

/// Dates all times in the future from now: the clock was set back. Otherwise a dead holder would keep the lease, and a
/// session whose claim lapsed would be passed over, for as long as the clock was set back.
///
/// No lease ends earlier by this than its holder believes: the holder counts from a moment before the grant, or the
/// renewal.
fn date_anew(resource: &mut Resource, env: &Env<'_>) {
    let now_us = env.lease_us;
    if is_on(Mutant::P1FutureStays) {
        return;
    }
    for lapse in &mut resource.lapses {
        lapse.at_us = lapse.at_us.min(now_us);
    }
    let Some(grant) = resource.grant.as_mut().filter(|grant| grant.since_us > now_us) else { return };
    hit(Mark::LeaseDatedAnew);
    grant.since_us = now_us;
    resource.keep_until_us = grant.keep_until_us(env);
}

fn end_expired(resource: &mut Resource, now_us: u64) {
    let Some(ended) = resource.grant.take_if(|g| g.end_us() <= now_us) else { return };
    if !ended.is_held() {
        // It was given back when it began to cool down, and its range with it.
        hit(Mark::CooledDown);
        resource.released = Some(ended.id);
        return;
    }
    // Nobody says how much of the range was used: all of it is burnt.
    resource.last = if is_on(Mutant::P19BurnsNothing) { ended.token } else { ended.reserved() };
    if ended.range > 1 {
        hit(Mark::RangeBurnt);
    }
    hit(Mark::LeaseExpired);
    if ended.state == GrantState::Pushed && !is_on(Mutant::P7ForgetsLapse) {
        note_lapse(resource, Lapse { session: ended.id.session, at_us: ended.end_us() });
    }
}

/// A receiver that let a claim run out is frozen, dead, or did not get the push. Its other waiters would each cost a
/// claim: they are passed over until their session is heard again.
fn note_lapse(resource: &mut Resource, lapse: Lapse) {
    hit(Mark::ClaimLapsed);
    resource.lapses.retain(|l| l.session != lapse.session);
    if resource.lapses.len() == LAPSES {
        hit(Mark::LapsesFull);
        resource.lapses.remove(0);
    }
    resource.lapses.push(lapse);
}

fn hand_over(resource: &mut Resource, env: &Env<'_>) -> Settled {
    let mut looked_at = 0;
    while let Some(head) = resource.queue.pop_front() {
        if looked_at == SETTLE_STEPS && !is_on(Mutant::P1Unbounded) {
            hit(Mark::SettleMore);
            resource.queue.push_front(head);
            return Settled { rest: Rest::More, ..Settled::default() };
        }
        looked_at += 1;
        if let Some(why) = gone(resource, env, &head) {
            // Only the entry goes: the waiter keeps its ticket, and a look brings it back to its place.
            hit(why);
            continue;
        }
        return grant(resource, env, head);
    }
    Settled::default()
}

/// Why an entry is not granted, if it is not.
pub(crate) fn gone(resource: &Resource, env: &Env<'_>, entry: &Entry) -> Option<Mark> {
    if entry.limit_us.is_some_and(|limit| limit <= env.lease_us) {
        return Some(Mark::PassedOverdue);
    }
    // An entry seen in the future was seen before the clock was set back, and counts as never seen. A look brings it back.
    let is_known = entry.seen_us <= env.lease_us || is_on(Mutant::P1FutureStays);
    let seen_us = if is_known { entry.seen_us } else { 0 };
    if resource.lapses.iter().any(|lapse| lapse.session == entry.id.session && seen_us < lapse.at_us) {
        return Some(Mark::PassedLapsed);
    }
    let silent_us = 3 * look_floor_ms(entry.lease_ms) * 1000;
    match entry.hears {
        Hears::Listens if (env.attached)(entry.id.session) || is_on(Mutant::P6GrantsDetached) => None,
        Hears::Listens => Some(Mark::PassedDetached),
        Hears::Polls => (seen_us + silent_us <= env.lease_us).then_some(Mark::PassedSilent),
    }
}

fn grant(resource: &mut Resource, env: &Env<'_>, entry: Entry) -> Settled {
    hit(Mark::HandedOver);
    let now_us = env.lease_us;
    let claim_ms = if is_on(Mutant::P7NoClaim) { entry.lease_ms } else { entry.claim_ms.min(entry.lease_ms) };
    resource.last = resource.last.next(env.wall_us);
    let grant = Grant {
        id: entry.id,
        token: resource.last,
        range: range(entry.range, resource.last, env.wall_us),
        since_us: now_us,
        length_ms: claim_ms,
        state: GrantState::Pushed,
        label: entry.label,
    };
    // Not at every hand-over: on a busy lock this is a write in a thousand.
    if resource.keep_until_us < grant.keep_until_us(env) {
        let whole = Grant { length_ms: entry.lease_ms, label: String::new(), ..grant };
        resource.keep_until_us = whole.keep_until_us(env);
    }
    let delivery = Delivery {
        to: grant.id.session,
        now_us,
        contention: resource.contention(),
        rest: Rest::Done,
        id: grant.id,
        token: grant.token,
        left_us: grant.left_us(now_us),
        range: grant.range,
        event: Event::Granted,
    };
    resource.grant = Some(grant);
    Settled { rest: Rest::Done, handed_claim_ms: Some(claim_ms), delivery: Some(delivery) }
}
