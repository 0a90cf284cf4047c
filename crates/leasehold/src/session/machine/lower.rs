//! Lower: a guard gives a part of its units back, or its right to an upgrade (P39).
//!
//! The guard counts as lowered from the moment at which it asks, so nothing waits for the reply. The request is repeated
//! until the store has replied, and once more at each new run of the store, which may have forgotten it.

use std::sync::Arc;

use leasehold_spec::{Answer, Mode, Op, Outcome, Take};

use super::beside::{self, Beside};
use super::holding::{Holding, Lowered};
use super::turn::Turn;
use crate::session::bounds::RETRY_US;
use crate::session::hold::Hold;
use crate::session::terms::Terms;

/// Lowers the grant of a guard to this many units. The thread sends the request.
pub(crate) fn lower(turn: &mut Turn<'_>, hold: &Hold, units: u32) {
    let counter = hold.id.counter;
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.is_out(hold)) else { return };
    let take = Take { units, mode: Mode::Plain, ..attempt.terms.take };
    attempt.terms = Arc::new(Terms { take, ..Terms::clone(&attempt.terms) });
    if let Some(holding) = turn.ledger.holding(counter) {
        holding.lowered = Some(Lowered { units, next_us: turn.now.us() });
        turn.arm(counter);
    }
}

/// Asks once more, at a new run of the store, for what was confirmed by an earlier one.
pub(crate) fn repeat(turn: &mut Turn<'_>) {
    for counter in turn.ledger.counters() {
        if let Some(lowered) = turn.ledger.holding(counter).and_then(|holding| holding.lowered.as_mut()) {
            lowered.next_us = turn.now.us();
        }
    }
}

/// Returns the request that the thread has to send now, if any.
pub(crate) fn due_request(turn: &mut Turn<'_>, counter: u64) -> Option<Beside> {
    let op = |holding: &mut Holding, id| {
        let (token, lowered) = (holding.budget.grant(), holding.lowered.as_mut()?);
        lowered.next_us = u64::MAX;
        Some(Op::Lower { id, token, units: lowered.units })
    };
    beside::request(turn, counter, op, accept)
}

fn accept(turn: &mut Turn<'_>, counter: u64, answer: Option<&Answer>) {
    let is_confirmed = answer.is_some_and(|answer| matches!(answer.outcome, Outcome::Lowered));
    let lowered = turn.ledger.holding(counter).and_then(|holding| holding.lowered.as_mut());
    if let Some(lowered) = lowered.filter(|_| !is_confirmed) {
        lowered.next_us = turn.now.us() + RETRY_US;
    }
}
