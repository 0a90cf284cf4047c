//! Condition variables (P41 to P43): what an attempt does that waits for a notification, and not for a free lease.
//!
//! The caller learns of its place in the queue, because it must not release its lock before (P41). From then on it trusts
//! the queue only as long as it knows that it never left it (P43). Otherwise it wakes up: a wake-up for nothing is allowed,
//! and a missed notification is not.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Joined, Kind, Mode, Take};
use tokio::sync::oneshot;

use super::attempt::{Attempt, Phase, Requester};
use super::effects::Verdict;
use super::release::give_back;
use super::turn::Turn;
use crate::lost::{Lost, LostReason};
use crate::session::hold::Hold;
use crate::session::terms::Terms;

/// Notifies the caller of an attempt that it stands in the queue. Its next result comes by another channel.
pub(crate) fn tell_queued(turn: &mut Turn<'_>, counter: u64) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter).filter(|attempt| is_condition(attempt)) else { return };
    let Some(caller) = attempt.take_caller() else { return };
    let (next, verdict) = oneshot::channel();
    attempt.requester = Requester::Caller(next);
    turn.ledger.effects.verdict(counter, Some(caller), Verdict::Queued { counter, verdict });
}

/// Returns whether a waiter may have missed a notification: it was dropped from the queue, and came back by a re-check.
/// The reply to that re-check may be lost, but its place is a new one.
pub(crate) fn is_unsure(attempt: &Attempt, ticket: u64, joined: Joined) -> bool {
    let is_waiting = matches!(attempt.phase, Phase::Asking { .. } | Phase::Queued { .. });
    let was_dropped = attempt.ticket.is_some_and(|known| known != ticket || joined == Joined::Now);
    is_waiting && was_dropped && is_condition(attempt) && !is_on(Mutant::P43SleepsOn)
}

/// Wakes a waiter that may have missed a notification. One that it is granted at this moment passes on.
pub(crate) fn wake_unsure(turn: &mut Turn<'_>, counter: u64) {
    hit(Mark::WokenUnsure);
    turn.ledger.tell(counter, Verdict::Again);
    give_back(turn, counter);
}

/// Another run of the store answers. It may have forgotten notifications that were acknowledged, and kept the waiters.
pub(crate) fn meet_new_run(turn: &mut Turn<'_>) {
    for counter in turn.ledger.counters() {
        let waits = |attempt: &&Attempt| {
            let is_waiting = matches!(attempt.phase, Phase::Asking { .. } | Phase::Queued { .. });
            is_waiting && attempt.ticket.is_some() && is_condition(attempt)
        };
        let is_unsure = turn.ledger.attempts.get(&counter).filter(waits).is_some();
        if is_unsure && !is_on(Mutant::P43TrustsNewRun) {
            wake_unsure(turn, counter);
        }
    }
}

/// Spends a notification, in the background: its receiver has the lock again (P42).
pub(crate) fn spend(turn: &mut Turn<'_>, hold: &Hold) {
    let counter = hold.id.counter;
    if turn.ledger.attempts.get(&counter).is_none_or(|attempt| !attempt.is_out(hold)) {
        return;
    }
    if let Some(holding) = turn.ledger.holding(counter) {
        holding.is_spent = true;
    }
    // A notification is never handed on inside the client.
    give_back(turn, counter);
}

/// Returns the terms on which the lock of this hold is acquired again, after a wait.
pub(crate) fn terms_again(turn: &Turn<'_>, hold: &Hold) -> Result<Arc<Terms>, Lost> {
    hold.check()?;
    let held = turn.ledger.attempts.get(&hold.id.counter).filter(|attempt| attempt.is_out(hold));
    let Some(Attempt { terms, phase: Phase::Held(holding), .. }) = held else {
        return Err(hold.lost(LostReason::Expired));
    };
    let mode = if let Mode::Instead { .. } = terms.take.mode { Mode::Plain } else { terms.take.mode };
    // A local queue has callers that keep the lease, and others that do not.
    let (take, sticky_us) = (Take { mode, ..terms.take }, holding.sticky_us);
    if (take, sticky_us) == (terms.take, terms.sticky_us) {
        return Ok(Arc::clone(terms));
    }
    Ok(Arc::new(Terms { take, sticky_us, ..Terms::clone(terms) }))
}

fn is_condition(attempt: &Attempt) -> bool {
    attempt.terms.take.kind == Kind::Condition
}
