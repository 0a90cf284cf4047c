//! Count-downs of latches (P44). A count-down ends nothing, but it is repeated like the end of an attempt: until the store
//! has replied, whatever becomes of the caller, and once more at each new run. A refusal is a reply: the caller gets it,
//! and nothing is repeated.

use leasehold_spec::limits::LEASE_MAX_MS;
use leasehold_spec::{GrantId, Name, Token};
use tokio::sync::oneshot;

use super::attempt::{Attempt, Phase};
use super::close;
use super::release::insert;
use super::returning::{ReturnKind, Returning};
use super::turn::Turn;
use crate::error::Result;
use crate::lost::Released;

/// Counts a latch down. The thread sends the request.
pub(crate) fn count_down(
    turn: &mut Turn<'_>,
    name: &Name,
    (born, counts): (Token, Option<GrantId>),
    caller: oneshot::Sender<Result<Released>>,
) -> Result<()> {
    close::check_open(turn)?;
    let id = turn.ledger.ids.grant_id();
    let kind = ReturnKind::CountDown { counts: counts.unwrap_or(id), born };
    let until_us = turn.now.us() + LEASE_MAX_MS * 1000;
    insert(turn, (name.clone(), id), Returning::new(kind, until_us, 0));
    if let Some(Attempt { phase: Phase::Returning(returning), .. }) = turn.ledger.attempts.get_mut(&id.counter) {
        returning.caller = Some(caller);
    }
    Ok(())
}
