//! The end of a session: callers get an error, and held leases are released (P18).

use leasehold_spec::mark::{Mark, hit};
use tokio::sync::oneshot;

use super::attempt::Phase;
use super::effects::Verdict;
use super::ledger::Stage;
use super::release;
use super::turn::Turn;
use crate::error::{Error, Result};
use crate::lost::LostReason;

/// Returns an error if the session is closed or closing.
pub(crate) fn check_open(turn: &Turn<'_>) -> Result<()> {
    if turn.ledger.stage == Stage::Open { Ok(()) } else { Err(Error::closed()) }
}

/// Begins the end of the session: no new work is accepted, callers get an error, and held leases are released.
pub(crate) fn begin(turn: &mut Turn<'_>) {
    let ledger = &mut *turn.ledger;
    if ledger.stage != Stage::Open {
        return;
    }
    ledger.stage = Stage::Closing;
    if !ledger.is_drained() {
        hit(Mark::ClosedInUse);
    }
    ledger.tell_queues(&Error::closed());
    for counter in ledger.counters() {
        let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { continue };
        attempt.tell(&mut turn.ledger.effects, Verdict::Failed(Error::closed()));
        if let Phase::Held(holding) = &attempt.phase {
            turn.ledger.effects.end_hold(&holding.hold, LostReason::Closed);
        }
        release::give_back(turn, counter);
    }
    turn.ledger.agenda.wake();
}

/// Returns whether the thread may end: the client is closed, and everything is returned.
pub(crate) fn is_over(turn: &Turn<'_>) -> bool {
    turn.ledger.stage != Stage::Open && turn.ledger.is_drained()
}

/// Ends the session after its thread has ended: from now on nobody renews or sends. Guards may exist for a long time after
/// that, and need no connection.
pub(crate) fn end(turn: &mut Turn<'_>) {
    let ledger = &mut *turn.ledger;
    ledger.stage = Stage::Closed;
    ledger.tell_queues(&Error::closed());
    for (counter, attempt) in &mut ledger.attempts {
        attempt.tell(&mut ledger.effects, Verdict::Failed(Error::closed()));
        match &mut attempt.phase {
            Phase::Held(holding) => ledger.effects.end_hold(&holding.hold, LostReason::Closed),
            Phase::Returning(returning) => {
                ledger.effects.released(*counter, returning.caller.take(), || Err(Error::closed()));
            }
            _ => {}
        }
    }
    turn.server.links.lane.close(&mut ledger.effects);
    let waiting = std::mem::take(&mut ledger.close_waiters).into_iter().chain(ledger.agenda.take_fired(u64::MAX));
    waiting.for_each(|waiter| ledger.effects.signal(waiter));
}

/// Signals `waiter` when everything is returned, or at once if the thread has ended.
pub(crate) fn await_end(turn: &mut Turn<'_>, waiter: oneshot::Sender<()>) {
    if turn.ledger.stage != Stage::Closed {
        turn.ledger.close_waiters.push(waiter);
    }
}

/// Sets a timer that fires at `at_us`. After the end of the session it fires at once, because nobody keeps the time.
pub(crate) fn set_timer(turn: &mut Turn<'_>, at_us: u64, timer: oneshot::Sender<()>) {
    match turn.ledger.stage {
        Stage::Closed => turn.ledger.effects.signal(timer),
        Stage::Open | Stage::Closing => turn.ledger.agenda.set_timer(at_us, timer),
    }
}
