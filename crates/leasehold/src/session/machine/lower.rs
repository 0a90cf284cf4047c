//! Lower: a guard gives a part of its units back, or its right to an upgrade (P39).
//!
//! The guard counts as lowered from the moment at which it asks, so nothing waits for the reply. The request is repeated
//! until the store has replied, and once more at each new run of the store, which may have forgotten it.

use std::sync::Arc;

use leasehold_spec::{Answer, Mode, Name, Op, Outcome, Take, Token};

use super::attempt::Phase;
use super::connections::Reply;
use super::grant::lose;
use super::holding::Lowered;
use super::order::InFlight;
use super::replies::note;
use super::turn::Turn;
use crate::session::bounds::RETRY_US;
use crate::session::hold::Hold;
use crate::session::terms::Terms;

/// A request in flight.
pub(crate) struct Lowering {
    counter: u64,
    pub(crate) name: Name,
    /// The token of the grant.
    grant: Token,
    pub(crate) op: Op,
    pub(crate) request: InFlight,
}

/// Lowers the grant of a guard to this many units. The thread sends the request.
pub(crate) fn lower(turn: &mut Turn<'_>, hold: &Hold, units: u32) {
    let counter = hold.id.counter;
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.is_out(hold)) else { return };
    let take = Take { units, mode: Mode::Plain, ..attempt.terms.take };
    attempt.terms = Arc::new(Terms { take, ..Terms::clone(&attempt.terms) });
    if let Phase::Held(holding) = &mut attempt.phase {
        holding.lowered = Some(Lowered { units, next_us: turn.now.us() });
        turn.arm(counter);
    }
}

/// Asks once more, at a new run of the store, for what was confirmed by an earlier one.
pub(crate) fn repeat(turn: &mut Turn<'_>) {
    for counter in turn.ledger.counters() {
        if let Some(Phase::Held(holding)) = turn.ledger.attempts.get_mut(&counter).map(|attempt| &mut attempt.phase)
            && let Some(lowered) = &mut holding.lowered
        {
            lowered.next_us = turn.now.us();
        }
    }
}

/// Returns the request that the thread has to send now, if any.
pub(crate) fn due_request(turn: &mut Turn<'_>, counter: u64) -> Option<Lowering> {
    let link = Arc::clone(turn.server.links.home()?);
    let attempt = turn.ledger.attempts.get_mut(&counter)?;
    let Phase::Held(holding) = &mut attempt.phase else { return None };
    let (grant, lowered) = (holding.budget.grant(), holding.lowered.as_mut()?);
    lowered.next_us = u64::MAX;
    let op = Op::Lower { id: attempt.id, token: grant, units: lowered.units };
    let request = turn.server.request(link, attempt.terms.answer_within_us(), turn.ledger.ids.serial(), turn.now.us());
    Some(Lowering { counter, name: attempt.name.clone(), grant, op, request })
}

pub(crate) fn accept_reply(turn: &mut Turn<'_>, of: &Lowering, reply: Reply) {
    let counter = of.counter;
    let answer = turn.server.judge(&mut turn.ledger.agenda, &of.request, reply, turn.now.us()).ok();
    if let Some(answer) = &answer {
        note(turn, &of.name, answer, of.request.sent_us);
    }
    let known = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.token() == Some(of.grant));
    let Some(Phase::Held(holding)) = known.map(|attempt| &mut attempt.phase) else { return };
    match answer {
        Some(Answer { outcome: Outcome::Lowered, .. }) => {}
        Some(Answer { outcome: Outcome::Lost { how }, highest, .. }) => lose(turn, counter, how, highest),
        _ => {
            if let Some(lowered) = &mut holding.lowered {
                lowered.next_us = turn.now.us() + RETRY_US;
            }
        }
    }
    turn.arm(counter);
}
