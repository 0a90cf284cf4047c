//! The meaning of each kind. Nothing else in a step asks for the kind.

use crate::answer::Refusal;
use crate::env::Env;
use crate::grant::{Grant, keep_from};
use crate::id::{GrantId, Token};
use crate::limits::{RETENTION_MS, RETENTION_US};
use crate::mutant::{Mutant, is_on};
use crate::resource::Resource;
use crate::take::{Kind, Mode, Take};

/// Whether a step looks at the first waiter. Of a mutex, it does so if the unit is free. Of a pool, it always does: a dead
/// waiter that needs many units would keep those behind it out, who need few (P33).
pub(crate) fn looks_at_waiters(resource: &Resource) -> bool {
    match resource.kind {
        Kind::Mutex => resource.grants.units() < resource.limit,
        Kind::ReadWrite | Kind::Semaphore | Kind::Condition | Kind::Latch | Kind::Barrier => {
            resource.upgrade.is_none()
                && (resource.grants.units() < resource.limit || !is_on(Mutant::P33DeadHeadBlocks))
        }
    }
}

/// Whether this many units are free, for a grant of this mode. Nobody is admitted while an upgrade waits.
pub(crate) fn fits(resource: &Resource, units: u32, mode: Mode) -> bool {
    match resource.kind {
        Kind::Latch => return exists(resource) && resource.latch.left(resource.limit) == 0,
        Kind::Barrier => return resource.limit == 1,
        Kind::Mutex | Kind::ReadWrite | Kind::Semaphore | Kind::Condition => {}
    }
    let is_alone = mode != Mode::Upgradeable || !resource.grants.has_upgradeable();
    is_alone && resource.upgrade.is_none() && resource.grants.units().saturating_add(units) <= resource.limit
}

/// Whether this many units can ever be free (P40). The limit of a condition variable grows with each notification.
pub(crate) fn fits_at_all(resource: &Resource, units: u32) -> bool {
    !resource.kind.has_holders() || (1..=resource.limit).contains(&units)
}

/// Gives a name that has no record its kind and its limit.
pub(crate) fn begin(resource: &mut Resource, take: &Take) {
    if resource.last == Token::NONE && take.kind != Kind::Latch {
        (resource.kind, resource.limit) = (take.kind, take.limit);
    }
}

/// Whether the name is a latch that was created, and not deleted since.
pub(crate) fn exists(resource: &Resource) -> bool {
    resource.kind == Kind::Latch && resource.limit > 0
}

/// Returns the refusal of a take that contradicts the record (P31), or that can never fit (P40).
pub(crate) fn refusal(resource: &Resource, take: &Take) -> Option<Refusal> {
    let Resource { kind, limit, .. } = *resource;
    // A waiter creates no latch: it would wait for count-downs that came before.
    let is_unused = resource.last == Token::NONE || kind == Kind::Latch;
    if take.kind == Kind::Latch && is_unused && !exists(resource) {
        return Some(Refusal::Absent);
    }
    let is_same = kind == take.kind && (limit == take.limit || take.limit == 0);
    if !is_same && !is_on(Mutant::P31OtherLimitEnters) {
        return Some(Refusal::Other { kind, limit });
    }
    (!fits_at_all(resource, take.units) && !is_on(Mutant::P40TooBigWaits)).then_some(Refusal::TooMany { limit })
}

/// Whether the waiters of a name are granted together, and wait in vain if one of them is gone (P52).
pub(crate) fn waits_together(kind: Kind) -> bool {
    kind == Kind::Barrier
}

/// Whether a waiter that asks again without having a place was dismissed. It does not begin to wait anew: the others of its
/// round do not wait any more (P52).
pub(crate) fn is_dismissed(kind: Kind, ticket: Option<u64>) -> bool {
    waits_together(kind) && ticket.is_some() && !is_on(Mutant::P52WaitsAnew)
}

/// Returns what a statement about a grant says of its range. Of a barrier it is the place of the arrival, counted from the
/// last one (P52).
pub(crate) fn stated_range(kind: Kind, grant: &Grant) -> u64 {
    if waits_together(kind) { grant.units.into() } else { grant.range }
}

/// Returns the number of tokens that a grant may reserve. The tokens of shared grants would cross (P32).
pub(crate) fn range(kind: Kind, asked: u64) -> u64 {
    if kind.is_pool() { 1 } else { asked }
}

/// Returns the highest token once a lease has ended without a request, with `reserved` as its last token.
///
/// In a pool it grows (P32). Otherwise a waiter whose claim has ended would get a reply with the same highest token as in
/// the message of its grant, and could not tell which of the two is the later statement.
pub(crate) fn burn(resource: &Resource, reserved: Token) -> Token {
    let last = reserved.max(resource.last);
    if resource.kind.is_pool() && !is_on(Mutant::P32ExpiryIsSilent) { last.plus(1) } else { last }
}

/// Notes that a grant has ended, and was not spent. Its units are free again: a notification goes to the next waiter (P42).
pub(crate) fn note_unspent(resource: &mut Resource, units: u32) {
    if resource.kind == Kind::Condition && is_on(Mutant::P42ForgetsUnit) {
        resource.limit = resource.limit.saturating_sub(units);
    }
}

/// Notes that nobody waits. Notifications that nobody has received are not kept for later waiters.
pub(crate) fn note_idle(resource: &mut Resource) {
    if resource.kind == Kind::Condition && !is_on(Mutant::P42KeepsStock) {
        resource.limit = resource.grants.units();
    }
}

/// Whether a waiter that was dropped from the queue comes back to its place (P6). A waiter of a condition variable does
/// not: it wakes up instead, and its new ticket is how it learns that it was dropped (P43).
pub(crate) fn gives_places_back(kind: Kind) -> bool {
    !matches!(kind, Kind::Condition) || is_on(Mutant::P43KeepsTicket)
}

/// Keeps the record of a kind that has waiters and no grant. Each of its waiters asks at least every
/// [`RECHECK_MAX_MS`](crate::limits::RECHECK_MAX_MS).
pub(crate) fn keep_for_standing_waiter(resource: &mut Resource, now_us: u64) {
    if !resource.kind.has_holders() && resource.keep_until_us < keep_from(now_us) {
        resource.keep_until_us = keep_from(now_us) + RETENTION_US;
    }
}

/// Keeps the record for as long as the grant of `id` needs. Without that grant this changes nothing.
///
/// The other grants of a pool may need the record for longer, so this time never falls there. If a grant needs the record
/// for longer, it is kept for one more lease, so that most grants do not write this time again.
pub(crate) fn keep(resource: &mut Resource, id: GrantId, env: &Env<'_>) {
    let Some(grant) = resource.grants.get(id) else { return };
    let needed_us = grant.needed_until_us(env);
    if keeps_by_span(resource) {
        resource.keep_until_us = grant.keep_until_us(env);
    } else if needed_us > resource.keep_until_us {
        resource.keep_until_us = needed_us + grant.length_ms * 1000;
    }
}

/// Returns the time until which the record has to be kept when somebody begins to wait.
pub(crate) fn keep_for_waiter_us(resource: &Resource, env: &Env<'_>) -> u64 {
    let of_grant = resource.grants.sole().filter(|_| keeps_by_span(resource)).map(|grant| grant.keep_until_us(env));
    of_grant.unwrap_or(keep_from(env.lease_us))
}

/// Whether the end of the last grant shortens the time for which the record is kept. That time may be longer than the grant
/// needed: for the sake of a longer lease that was given back before. This compares with the beginning of the grant and not
/// with the clock, which the usual release does not read.
pub(crate) fn ends_with(resource: &Resource, last: &Grant) -> bool {
    let keeps_for_others = resource.kind.is_pool() && resource.keep_until_us > keep_from(last.since_us) + RETENTION_US;
    resource.kind != Kind::Latch && (last.length_ms > RETENTION_MS || keeps_for_others)
}

/// Whether the first renewal in each span of time writes the time until which the record is kept.
pub(crate) fn keeps_by_span(resource: &Resource) -> bool {
    !resource.kind.is_pool()
}

/// Whether a request that changes one grant leaves it to a later step to end others by their time. The usual release and
/// the usual renewal of a pool read one grant of perhaps thousands.
pub(crate) fn leaves_others_alone(resource: &Resource) -> bool {
    resource.kind.is_pool()
}
