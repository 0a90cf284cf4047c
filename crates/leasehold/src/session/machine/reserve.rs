//! Reserve: more tokens for hand-overs inside the process (P19). Without a reply the client only hands on no further.

use leasehold_spec::{Answer, Op, Outcome};

use super::beside::{self, Beside};
use super::grant::{Others, note_others};
use super::holding::Holding;
use super::turn::Turn;

/// Returns the request that the thread has to send now, if any.
pub(crate) fn due_request(turn: &mut Turn<'_>, counter: u64) -> Option<Beside> {
    let op = |holding: &mut Holding, id| {
        let (token, range) = (holding.budget.grant(), holding.budget.request_range());
        Some(Op::Reserve { id, token, range })
    };
    beside::request(turn, counter, op, accept)
}

fn accept(turn: &mut Turn<'_>, counter: u64, answer: Option<&Answer>) {
    let Some(holding) = turn.ledger.holding(counter) else { return };
    match answer {
        Some(&Answer { outcome: Outcome::Reserved { range }, contention: level, now_us: said_us, .. }) => {
            holding.budget.reserved(Some(range));
            note_others(turn, counter, Others { level, said_us });
        }
        _ => holding.budget.reserved(None),
    }
}
