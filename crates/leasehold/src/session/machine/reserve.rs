//! Reserve: more tokens for hand-overs inside the process (P19).
//!
//! Nothing waits for the reply, so the request is none of the attempt's: a renewal can be sent beside it. The reply
//! lengthens nothing. Without a reply the client only hands on no further.

use std::sync::Arc;

use leasehold_spec::{Answer, Name, Op, Outcome, Token};

use super::attempt::Phase;
use super::connections::Reply;
use super::grant::{Others, lose, note_others};
use super::order::InFlight;
use super::replies::note;
use super::turn::Turn;

/// A reservation in flight.
pub(crate) struct Reserving {
    counter: u64,
    pub(crate) name: Name,
    /// The token of the grant.
    grant: Token,
    pub(crate) op: Op,
    pub(crate) request: InFlight,
}

/// Returns the request that the thread has to send now, if any.
pub(crate) fn due_request(turn: &mut Turn<'_>, counter: u64) -> Option<Reserving> {
    let link = Arc::clone(turn.server.links.home()?);
    let attempt = turn.ledger.attempts.get_mut(&counter)?;
    let Phase::Held(holding) = &mut attempt.phase else { return None };
    let (grant, range) = (holding.budget.grant(), holding.budget.request_range());
    let op = Op::Reserve { id: attempt.id, token: grant, range };
    let request = turn.server.request(link, attempt.terms.answer_within_us(), turn.ledger.ids.serial(), turn.now.us());
    Some(Reserving { counter, name: attempt.name.clone(), grant, op, request })
}

pub(crate) fn accept_reply(turn: &mut Turn<'_>, of: &Reserving, reply: Reply) {
    let counter = of.counter;
    let answer = turn.server.judge(&mut turn.ledger.agenda, &of.request, reply, turn.now.us()).ok();
    if let Some(answer) = &answer {
        note(turn, &of.name, answer, of.request.sent_us);
    }
    let known = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.token() == Some(of.grant));
    let Some(Phase::Held(holding)) = known.map(|attempt| &mut attempt.phase) else { return };
    match answer {
        Some(Answer { outcome: Outcome::Reserved { range }, contention: level, now_us: said_us, .. }) => {
            holding.budget.reserved(Some(range));
            note_others(turn, counter, Others { level, said_us });
        }
        Some(Answer { outcome: Outcome::Lost { how }, highest, .. }) => {
            lose(turn, counter, how, highest);
        }
        _ => holding.budget.reserved(None),
    }
    turn.arm(counter);
}
