//! Arrivals at a barrier (P52): what the session does otherwise than for a lock.
//!
//! - A party arrives once. If nobody knows any more whether it has arrived, it fails, and does not arrive again: the others
//!   of its round may have gone on, and it would be one of the next round.
//! - A party whose time is over asks once more. Its request says that no time is left, and the store decides: the round was
//!   let through before, or this party breaks it. So a caller that gets `None` has not let others through.
//! - A place that nobody waits for counts in a round. (A lock only passes it over.) So the session leaves it for as long as
//!   the store may have it, and again at a new run of the store, which may have it back.

use leasehold_spec::Token;
use leasehold_spec::limits::{NOT_AFTER_MAX_US, RETENTION_US};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::attempt::{Attempt, Phase};
use super::effects::Verdict;
use super::ledger::Ledger;
use super::returning::{GivenUp, ReturnKind};
use super::turn::Turn;
use crate::error::Error;
use crate::session::bounds::ANSWER_MAX_US;

/// The clock of the store is known to this precision.
const CLOCK_SPARE_US: u64 = 100_000;

/// Notes that an arrival is sent. Returns how long a store may execute the request: if it had executed the first one at
/// once, the grant of that one would last until then.
pub(crate) fn may_arrive_within_us(attempt: &mut Attempt, now_us: u64) -> u64 {
    if attempt.terms.is_arrival() && !is_on(Mutant::P52ArrivesAgain) {
        attempt.arrive_by_us = attempt.arrive_by_us.min(now_us + attempt.terms.lease_us());
    }
    if attempt.ticket.is_some() {
        return u64::MAX;
    }
    let within_us = attempt.arrive_by_us.saturating_sub(now_us);
    attempt.arrive_again_us = now_us + within_us.min(NOT_AFTER_MAX_US) + CLOCK_SPARE_US;
    within_us
}

/// Returns from when on a party without a place may arrive again. A request without a reply may still be on its way, and it
/// would count in a later round if the repeated one ended in this one.
pub(crate) fn waits_until_us(attempt: &Attempt, now_us: u64) -> Option<u64> {
    let is_placeless = attempt.terms.is_arrival() && attempt.ticket.is_none();
    let is_on_its_way = !attempt.order.is_settled() && attempt.arrive_again_us > now_us;
    (is_placeless && is_on_its_way).then_some(attempt.arrive_again_us)
}

/// Returns for how much longer than the place of a lock the store may have the place of an attempt.
pub(crate) fn place_lasts_us(attempt: &Attempt) -> u64 {
    if attempt.terms.is_arrival() { 2 * RETENTION_US } else { 0 }
}

/// Remembers a place that was given up, for a new run of the store.
pub(crate) fn remember_place(ledger: &mut Ledger, counter: u64, now_us: u64) {
    let Some(attempt) = ledger.attempts.get(&counter) else { return };
    let (name, id) = (attempt.name.clone(), attempt.id);
    let until_us = now_us + attempt.terms.lease_us() + NOT_AFTER_MAX_US;
    ledger.releases.remember(GivenUp { name, id, kind: ReturnKind::Leave { used: Token::NONE }, until_us }, now_us);
}

/// Returns whether it is too late to repeat an arrival that may have been executed.
pub(crate) fn is_too_late(attempt: &Attempt, now_us: u64) -> bool {
    attempt.ticket.is_none() && now_us >= attempt.arrive_by_us
}

/// Lets a party whose time is over ask once more. Returns whether it does. It waits for the reply for as long as a busy
/// store may need: a party that does not know how its round ended is of no use to its caller.
pub(crate) fn ask_once_more(turn: &mut Turn<'_>, counter: u64) -> bool {
    let now_us = turn.now.us();
    let usual_us = now_us + ANSWER_MAX_US;
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return false };
    let may_ask = attempt.terms.is_arrival() && matches!(attempt.phase, Phase::Queued { .. });
    if !may_ask || attempt.asks_last || is_on(Mutant::P52LeavesBlindly) {
        return false;
    }
    hit(Mark::ArrivalAskedLast);
    (attempt.asks_last, attempt.in_flight) = (true, None);
    attempt.phase = Phase::Asking { next_us: now_us, usual_us };
    turn.arm(counter);
    true
}

/// Returns the result of a party that was dismissed.
pub(crate) fn dismissed(attempt: &Attempt) -> Verdict {
    if attempt.asks_last { Verdict::Busy } else { Verdict::Failed(Error::broken()) }
}
