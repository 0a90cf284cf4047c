//! Arrivals at a barrier (P52): what the session does otherwise than for a lock.
//!
//! - A party arrives once. If nobody knows any more whether it has arrived, it fails, and does not arrive again: the others
//!   of its round may have gone on, and it would be one of the next round.
//! - A party whose time is over asks once more. Its request says that no time is left, and the store decides: the round was
//!   let through before, or this party breaks it. So a caller that gets `None` has not let others through.

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::attempt::{Attempt, Phase};
use super::effects::Verdict;
use super::turn::Turn;
use crate::error::Error;

/// Notes that an arrival is sent. Returns how long a store may execute the request: if it had executed the first one at
/// once, the grant of that one would last until then.
pub(crate) fn may_arrive_within_us(attempt: &mut Attempt, now_us: u64) -> u64 {
    if attempt.terms.is_arrival() && !is_on(Mutant::P52ArrivesAgain) {
        attempt.arrive_by_us = attempt.arrive_by_us.min(now_us + attempt.terms.lease_us());
    }
    if attempt.ticket.is_some() { u64::MAX } else { attempt.arrive_by_us.saturating_sub(now_us) }
}

/// Returns whether it is too late to repeat an arrival that may have been executed.
pub(crate) fn is_too_late(attempt: &Attempt, now_us: u64) -> bool {
    attempt.ticket.is_none() && now_us >= attempt.arrive_by_us
}

/// Lets a party whose time is over ask once more. Returns whether it does.
pub(crate) fn ask_once_more(turn: &mut Turn<'_>, counter: u64) -> bool {
    let now_us = turn.now.us();
    let usual_us = now_us + turn.server.usual_us();
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
