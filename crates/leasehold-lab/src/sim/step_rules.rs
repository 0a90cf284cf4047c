//! The checks of every step of the server, apart from `step` itself. If one of these rules is broken, clients notice it
//! as slowness or unfairness long before a promise is broken.

use leasehold_spec::limits::{SETTLE_STEPS, TICKET_STEPS, TOKEN_LEAD_US};
use leasehold_spec::{
    Answer, Contention, Delivery, Entry, Event, Grant, GrantState, Inspection, Kind, Mode, Op, Outcome, Patience,
    Resource, Rest, SessionId, ShownMode,
};

/// One step: the record before, the request, and the results.
pub(super) struct Seen<'a> {
    pub(super) before: &'a Resource,
    pub(super) op: &'a Op,
    pub(super) now_us: u64,
    pub(super) after: &'a Resource,
    pub(super) answer: &'a Answer,
    pub(super) deliveries: &'a [Delivery],
}

/// Returns the first rule that the step has broken, if there is one.
pub(super) fn wrong(seen: &Seen<'_>, is_attached: impl Fn(SessionId) -> bool) -> Option<&'static str> {
    let Seen { before, op, now_us, after, answer, deliveries } = seen;
    let is_free = after.grants.is_empty() && !matches!(op, Op::Inspect);
    if is_free && after.kind.has_holders() && !after.queue.is_empty() && answer.rest == Rest::Done {
        return Some("P1: a lease is free, but a waiter is in the queue");
    }
    // One more entry leaves because it holds now, and one because it asked to leave.
    let is_round = before.kind == Kind::Barrier;
    if !is_round && before.queue.len() > after.queue.len() + SETTLE_STEPS + 2 {
        return Some("P1: a step has examined more waiters than it may");
    }
    let mut grants = deliveries.iter().filter(|delivery| delivery.event == Event::Granted);
    if grants.any(|delivery| !is_attached(delivery.to)) {
        return Some("P6: the store granted to a waiter whose inbox is not attached");
    }
    if after.latch.born == before.latch.born && after.latch.counted.len() < before.latch.counted.len() {
        return Some("P44: a latch has forgotten a count-down");
    }
    if !matches!(after.kind, Kind::Latch | Kind::Barrier)
        && after.grants.units() > before.grants.units().max(after.limit)
    {
        return Some("P31: more units are granted than there are");
    }
    if after.kind == Kind::Condition && after.is_idle() && after.limit > after.grants.units() {
        return Some("P42: a notification is kept for a later waiter");
    }
    let settles = matches!(op, Op::Acquire(_) | Op::Leave { .. } | Op::Settle);
    if after.kind == Kind::Barrier && settles && after.queue.iter().any(|party| !is_attached(party.id.session)) {
        return Some("P52: a round waits, although a party of it is gone");
    }
    let is_upgradeable = |grant: &&Grant| grant.mode == Mode::Upgradeable;
    if after.grants.iter().filter(is_upgradeable).count() > 1 {
        return Some("P37: two grants may be upgraded");
    }
    if answer.rest == Rest::Done && !matches!(op, Op::Inspect) && waits_in_vain(after, *now_us, is_attached) {
        return Some("P33: a live waiter at the head fits, and waits");
    }
    if (answer.contention == Contention::None) != after.is_idle() {
        return Some("P9: an answer does not say whether others wait");
    }
    if matches!(&answer.outcome, Outcome::Inspected(seen) if contradicts(seen, after, *now_us)) {
        return Some("an inspection shows another state than the record has");
    }
    let cooling = |record: &Resource| record.grants.sole().filter(|grant| !grant.is_held()).map(|g| (g.id, g.end_us()));
    match (cooling(before), cooling(after)) {
        (Some((id, end_us)), Some((same, later_us))) if id == same && later_us > end_us => {
            return Some("P23: a cool-down was made longer");
        }
        (Some((_, end_us)), None) if end_us > *now_us && !matches!(op, Op::Revoke { .. }) => {
            return Some("P23: a cool-down was cut short");
        }
        _ => {}
    }
    let reserved = |record: &Resource| record.grants.sole().map(|grant| (grant.token, grant.range, grant.reserved()));
    if let Some((_, 2.., last)) = reserved(after)
        && reserved(before) != reserved(after)
        && last.get() > now_us + TOKEN_LEAD_US
    {
        return Some("P19: tokens are reserved too far ahead of the clock");
    }
    match (op, &answer.outcome) {
        (Op::Acquire(acquire), outcome) => {
            let same = |record: &Resource| record.held_by(acquire.id).map(|grant| (grant.token, grant.end_us()));
            if let (Some((token, end_us)), Some((again, later_us))) = (same(before), same(after))
                && token == again
                && later_us > end_us
            {
                return Some("P2: a repeated acquire has extended its lease");
            }
            let ticket = if let Patience::Queue(place) = &acquire.patience { place.ticket } else { None };
            // An expired waiter has no place. It may ask once more if its first answer is late, and then leaves.
            let stands =
                |entry: &&Entry| entry.id == acquire.id && entry.limit_us.is_none_or(|until_us| *now_us < until_us);
            let had = before.queue.iter().find(stands).map(|entry| entry.ticket);
            // After a failover two waiters may have the same ticket: then the tail is as good a place.
            let is_near = before.queue.len() < TICKET_STEPS
                && ticket.is_none_or(|ticket| before.queue.back().is_none_or(|tail| tail.ticket != ticket));
            if let (Outcome::Queued { ticket: now, .. }, Some(ticket)) = (outcome, ticket.or(had))
                && (is_near && after.kind.has_holders())
                && *now > ticket
            {
                return Some("P6: a waiter that came back has lost its place");
            }
            None
        }
        (Op::Reserve { id, token, .. }, Outcome::Reserved { .. }) => {
            let is_holder = before.held_by(*id).is_some_and(|grant| grant.token == *token);
            (!is_holder).then_some("P19: a client was given tokens of another client's grant")
        }
        // A record may be forgotten at its end, and then says nothing.
        (Op::Release { id, .. }, Outcome::NotHeld) => (before.released == Some(*id) && *now_us < before.keep_until_us)
            .then_some("P3: a repeated release is not known any more"),
        (Op::Revoke { token, grace_ms, .. }, Outcome::Revoking { left_us }) => {
            let named = before.grants.iter().find(|grant| grant.token == *token);
            let there_us = named.map_or(0, |grant| grant.left_us(*now_us));
            let has_grace = |grant: &Grant| grant.is_held() && grant.state != GrantState::Revoked;
            let is_first = named.is_some_and(has_grace);
            (is_first && left_us + 1_000 < there_us.min(grace_ms * 1000)).then_some("P10: a grace was cut short")
        }
        _ => None,
    }
}

/// Whether an inspection counts otherwise than the record, or shows no upgrade that waits.
fn contradicts(seen: &Inspection, record: &Resource, now_us: u64) -> bool {
    let live = || record.grants.iter().filter(|grant| grant.end_us() > now_us);
    let (count, units) = (live().count() as u64, live().map(|grant| grant.units).sum::<u32>());
    let waiters = record.queue.len() as u64 + u64::from(record.upgrade.is_some());
    let is_upgrade_first = seen.queue.first().is_some_and(|waiter| waiter.mode == ShownMode::Upgrade);
    (seen.grants, seen.units, seen.waiters) != (count, units, waiters)
        || is_upgrade_first != record.upgrade.is_some()
        || !seen.holders.is_sorted_by(|one, next| one.token < next.token)
}

/// Whether the first waiter is there, and its units are free. A mutex is judged by another rule above.
fn waits_in_vain(record: &Resource, now_us: u64, is_attached: impl Fn(SessionId) -> bool) -> bool {
    let Some(head) = record.queue.front().filter(|_| record.kind.is_pool() && record.upgrade.is_none()) else {
        return false;
    };
    let session = head.id.session;
    let has_lapsed = record.lapses.iter().any(|lapse| lapse.session == session && head.seen_us < lapse.at_us);
    let is_over = head.limit_us.is_some_and(|limit_us| limit_us <= now_us);
    if record.kind == Kind::Barrier {
        return record.queue.len() >= record.limit as usize;
    }
    if record.kind == Kind::Latch {
        let is_open = record.limit > 0 && record.latch.left(record.limit) == 0;
        return is_open && is_attached(session) && !has_lapsed && !is_over;
    }
    let is_alone = head.mode != Mode::Upgradeable || record.grants.iter().all(|grant| grant.mode != Mode::Upgradeable);
    let fits = is_alone && record.grants.units() + head.units <= record.limit;
    fits && is_attached(session) && !has_lapsed && !is_over
}
