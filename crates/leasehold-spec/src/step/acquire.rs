//! Acquire: the lease for a client, a place in the queue, or neither.

use crate::answer::{Joined, Outcome, Refusal, Rest};
use crate::grant::Grant;
use crate::id::Token;
use crate::limits::{QUEUE_MAX, TICKET_STEPS};
use crate::mark::{Mark, hit};
use crate::mutant::{Mutant, is_on};
use crate::op::{Acquire, Patience, Place};
use crate::policy;
use crate::resource::Resource;
use crate::step::admit::{entry, grant};
use crate::step::barrier::break_earlier_round;
use crate::step::context::Step;
use crate::step::notify::notify_holder;
use crate::step::upgrade::upgrade;
use crate::take::Mode;

pub(super) fn acquire(step: &mut Step<'_, '_>, request: &Acquire) -> (Outcome, Rest) {
    if step.is_late(request.not_after_us) {
        hit(Mark::AcquireLate);
        return (Outcome::Late, step.settle());
    }
    // P33: the step may pass over the waiter that asks, because its inbox is detached. It comes back to its place.
    let known_place = known_place(step.resource, request);
    let request = known_place.as_ref().unwrap_or(request);
    // Before the step settles: a re-check shows that this waiter lives, so it must not be dropped for an older silence.
    note_seen(step.resource, step.env.lease_us, request);
    let rest = step.settle();
    if let Some(known) = known_attempt(step, request) {
        return (known, rest);
    }
    if let Mode::Instead { id, token } = request.take.mode {
        return upgrade(step, request, (id, token), rest);
    }
    if policy::is_dismissed(request.take.kind, request.ticket()) {
        hit(Mark::ArrivalDismissed);
        let told = break_earlier_round(step.resource, step.env, request.ticket());
        step.deliveries.extend(told);
        return (Outcome::Refused(Refusal::Absent), rest);
    }
    policy::begin(step.resource, &request.take);
    if let Some(refusal) = policy::refusal(step.resource, &request.take) {
        hit(Mark::TakeRefused);
        return (Outcome::Refused(refusal), rest);
    }
    // A lease is free while others wait only after MORE: the queue comes first, and the caller settles again.
    let is_free = policy::fits(step.resource, request.take.units, request.take.mode);
    if is_free && (comes_first(step, request) || is_on(Mutant::P1Barging)) {
        return (grant(step, request), rest);
    }
    if is_free {
        hit(Mark::NewcomerBehindMore);
    }
    let place = match &request.patience {
        Patience::Try => return (Outcome::Busy { left_us: step.first_left_us() }, rest),
        Patience::Queue(_) if step.resource.queue.len() >= QUEUE_MAX => {
            hit(Mark::QueueFull);
            return (Outcome::Full, rest);
        }
        Patience::Queue(place) => place,
    };
    let ticket = enqueue(step, request, place);
    if policy::waits_together(step.resource.kind) {
        let rest = step.settle();
        return (arrived(step, request), rest);
    }
    (Outcome::Queued { ticket, left_us: step.first_left_us(), joined: Joined::Now }, rest)
}

/// Returns the answer to an arrival at a barrier. It may have completed its round. It has broken the round if its
/// session is detached.
fn arrived(step: &mut Step<'_, '_>, request: &Acquire) -> Outcome {
    match known_attempt(step, request) {
        Some(Outcome::Queued { ticket, left_us, .. }) => Outcome::Queued { ticket, left_us, joined: Joined::Now },
        Some(known) => known,
        None => Outcome::Refused(Refusal::Absent),
    }
}

/// Returns the request with the place that its waiter has in a pool, if the request does not know the place: a copy of the
/// first request has no ticket. If the kind of the name gives no places back, the next ticket is larger.
fn known_place(resource: &Resource, request: &Acquire) -> Option<Acquire> {
    let Patience::Queue(place) = &request.patience else { return None };
    let at = resource.position(request.id).filter(|_| resource.kind.is_pool())?;
    let known = Some(resource.queue[at].ticket);
    let is_known = place.ticket.is_some_and(|ticket| known <= Some(ticket) || policy::gives_places_back(resource.kind));
    if is_known {
        return None;
    }
    let place = Place { ticket: known, ..place.clone() };
    Some(Acquire { patience: Patience::Queue(place), ..request.clone() })
}

/// Whether nobody waits before this request. A waiter of a pool that was passed over can come back to the head of the
/// queue, before one that does not fit (P33).
fn comes_first(step: &Step<'_, '_>, request: &Acquire) -> bool {
    let resource = &*step.resource;
    let is_back_at_head = || match &request.patience {
        Patience::Queue(place) if place.ticket.is_some() && !is_on(Mutant::P33ComesBackInVain) => {
            resource.kind.is_pool() && place_in_queue(resource, step.env.lease_us, place).1 == 0
        }
        _ => false,
    };
    resource.queue.is_empty() || is_back_at_head()
}

/// Notes that a waiter was seen, and when its caller stops waiting.
fn note_seen(resource: &mut Resource, now_us: u64, request: &Acquire) {
    let Patience::Queue(place) = &request.patience else { return };
    let limit_us = place.limit_ms.map(|ms| now_us + ms * 1000);
    policy::keep_for_standing_waiter(resource, now_us);
    if let Some(upgrade) = resource.upgrade.as_mut().filter(|upgrade| upgrade.id == request.id) {
        (upgrade.seen_us, upgrade.limit_us) = (now_us, limit_us);
    }
    let Some(mut at) = resource.position(request.id) else { return };
    let queue = &mut resource.queue;
    let gives_back = policy::gives_places_back(resource.kind) && !is_on(Mutant::P6LosesPlace);
    let earlier = place.ticket.filter(|ticket| *ticket < queue[at].ticket && gives_back);
    let first_behind = |ticket: u64| queue.iter().take(TICKET_STEPS).position(|entry| entry.ticket > ticket);
    let place_before = earlier.and_then(|ticket| Some((ticket, first_behind(ticket)?)));
    let Some(mut entry) = queue.remove(at) else { return };
    entry.seen_us = now_us;
    entry.limit_us = limit_us;
    // The waiter was passed over. Then a copy of its first request, which had no ticket yet, put it at the tail.
    if let Some((ticket, index)) = place_before {
        hit(Mark::TicketMended);
        (entry.ticket, at) = (ticket, index);
    }
    queue.insert(at, entry);
}

/// Returns the answer to an attempt that the record knows already (P3). It never lengthens a lease (P2).
fn known_attempt(step: &mut Step<'_, '_>, request: &Acquire) -> Option<Outcome> {
    let now_us = step.env.lease_us;
    let is_granted = |grant: &&Grant| grant.is_held() || is_on(Mutant::P23GrantsAgain);
    if step.resource.grants.get(request.id).filter(is_granted).is_some() {
        hit(Mark::AcquireRepeatedGranted);
        if is_on(Mutant::P2RepeatExtends) {
            let restart = |grant: &mut Grant| (grant.since_us, grant.length_ms) = (now_us, request.lease_ms);
            step.resource.grants.change(request.id, restart);
        }
        let grant = step.resource.grants.get(request.id)?;
        let range = policy::stated_range(step.resource.kind, grant);
        let left_us = if is_on(Mutant::P2WholeLease) { grant.length_ms * 1000 } else { grant.left_us(now_us) };
        return Some(Outcome::Granted { token: grant.token, left_us, range });
    }
    if step.resource.was_given_back(request.id) {
        hit(Mark::AcquireGone);
        return Some(Outcome::Gone);
    }
    let entry = &step.resource.queue[step.resource.position(request.id)?];
    hit(Mark::AcquireRepeatedQueued);
    Some(Outcome::Queued { ticket: entry.ticket, left_us: step.first_left_us(), joined: Joined::Before })
}

/// Puts the attempt into the queue, and returns its ticket.
fn enqueue(step: &mut Step<'_, '_>, request: &Acquire, place: &Place) -> u64 {
    let Step { resource, env, .. } = step;
    let now_us = env.lease_us;
    let holds_range = resource.grants.sole().is_some_and(|grant| grant.range > 1);
    let before = holds_range.then(|| resource.contention());
    if resource.queue.is_empty() {
        resource.keep_until_us = resource.keep_until_us.max(policy::keep_for_waiter_us(resource, env));
    }
    if resource.last == Token::NONE {
        // A name that a waiter begins, and not a grant. The token shows that it has a record.
        resource.last = Token::NONE.next(env.wall_us);
    }
    let (ticket, index) = place_in_queue(resource, now_us, place);
    resource.queue.insert(index, entry(request, place, (now_us, ticket)));
    if let Some(before) = before {
        notify_holder(step, before, place.order);
    }
    ticket
}

/// Returns ticket and index of a new entry. A waiter that brings a ticket comes back to its place (P6).
fn place_in_queue(resource: &Resource, now_us: u64, place: &Place) -> (u64, usize) {
    let queue = &resource.queue;
    let gives_back = policy::gives_places_back(resource.kind);
    let kept = place.ticket.filter(|_| gives_back && !is_on(Mutant::P6LosesPlace));
    let spot = kept.and_then(|ticket| match queue.back() {
        Some(tail) if tail.ticket >= ticket => {
            let first_behind = queue.iter().take(TICKET_STEPS).position(|entry| entry.ticket > ticket)?;
            Some((ticket, first_behind))
        }
        _ => Some((ticket, queue.len())),
    });
    match (kept, spot) {
        (Some(_), Some(_)) => hit(Mark::TicketBack),
        (Some(_), None) => hit(Mark::TicketTooFar),
        (None, _) => {}
    }
    // A bounded walk from the head does not reach the place: the waiter goes to the tail, like a newcomer.
    let fresh = queue.back().map_or(now_us, |tail| now_us.max(tail.ticket + 1));
    // P43: never the ticket that the waiter had before.
    let fresh = place.ticket.filter(|_| !gives_back).map_or(fresh, |known| fresh.max(known + 1));
    spot.unwrap_or((fresh, queue.len()))
}
