//! Requests about a grant that is held, which are sent beside its renewal: reserve and lower.
//!
//! Nothing waits for the reply, so the request is not the attempt's request in flight, and the reply lengthens nothing.

use std::sync::Arc;

use leasehold_spec::{Answer, GrantId, Name, Op, Outcome, Token};

use super::attempt::Phase;
use super::connections::Reply;
use super::grant::lose;
use super::holding::Holding;
use super::order::InFlight;
use super::replies::note;
use super::turn::Turn;

/// A request in flight.
pub(crate) struct Beside {
    counter: u64,
    pub(crate) name: Name,
    /// The token of the grant.
    grant: Token,
    pub(crate) op: Op,
    pub(crate) request: InFlight,
    accept: Accept,
}

/// A function of one operation that accepts its answer; `None`: there was no valid reply. The grant is held.
pub(super) type Accept = fn(&mut Turn<'_>, counter: u64, Option<&Answer>);

/// Returns a request about a held grant, for the thread to send, if there is a connection.
pub(super) fn request(
    turn: &mut Turn<'_>,
    counter: u64,
    op: impl FnOnce(&mut Holding, GrantId) -> Option<Op>,
    accept: Accept,
) -> Option<Beside> {
    let link = Arc::clone(turn.server.links.home()?);
    let attempt = turn.ledger.attempts.get_mut(&counter)?;
    let Phase::Held(holding) = &mut attempt.phase else { return None };
    let (grant, op) = (holding.budget.grant(), op(holding, attempt.id)?);
    let request = turn.server.request(link, attempt.terms.answer_within_us(), turn.ledger.ids.serial(), turn.now.us());
    Some(Beside { counter, name: attempt.name.clone(), grant, op, request, accept })
}

pub(crate) fn accept_reply(turn: &mut Turn<'_>, of: &Beside, reply: Reply) {
    let answer = turn.server.judge(&mut turn.ledger.agenda, &of.request, reply, turn.now.us()).ok();
    if let Some(answer) = &answer {
        note(turn, &of.name, answer, of.request.sent_us);
    }
    if turn.ledger.holding(of.counter).is_none_or(|holding| holding.budget.grant() != of.grant) {
        return;
    }
    match &answer {
        Some(Answer { outcome: Outcome::Lost { how }, highest, .. }) => lose(turn, of.counter, *how, *highest),
        answer => (of.accept)(turn, of.counter, answer.as_ref()),
    }
    turn.arm(of.counter);
}
