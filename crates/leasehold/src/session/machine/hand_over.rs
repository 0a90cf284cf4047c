//! Hand-over inside the process: to the next waiter, or to a caller that will come (P20). The
//! [budget](crate::session::local::budget) says how far this may go on.

use std::sync::Arc;

use leasehold_spec::Contention;

use super::attempt::{Phase, Requester};
use super::effects::Verdict;
use super::ledger::{Ledger, Stage};
use super::release;
use super::turn::Turn;
use crate::observe::{Event, To};
use crate::session::hold::Hold;
use crate::session::local::budget::Needs;
use crate::session::terms::Terms;

/// Hands a lease on to the next waiter here, or keeps it for a caller that comes. Returns whether it did: then nothing goes
/// to the store.
pub(crate) fn pass(turn: &mut Turn<'_>, hold: &Hold) -> bool {
    let counter = hold.id.counter;
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.is_out(hold)) else {
        return false;
    };
    let (Phase::Held(holding), Requester::Queue(queue)) = (&mut attempt.phase, &attempt.requester) else {
        return false;
    };
    if turn.now.us() >= hold.valid_until_us() {
        return false;
    }
    let Some(token) = holding.budget.next(hold.token, turn.now.us()) else { return false };
    let Some(queue) = turn.ledger.queues.get_mut(*queue) else { return false };
    match queue.next() {
        Some(waiter) => {
            holding.succeed(token, &mut turn.ledger.effects);
            holding.sticky_us = waiter.sticky_us;
            let verdict = Verdict::Granted(Arc::clone(&holding.hold));
            turn.ledger.effects.event(|| Event::HandedOver { name: hold.name.clone(), to: To::Local });
            turn.ledger.effects.verdict(waiter.number, Some(waiter.caller), verdict);
        }
        None if holding.sticky_us == 0 || holding.budget.contention() != Contention::None => return false,
        None if turn.ledger.stage != Stage::Open => return false,
        None => {
            holding.succeed(token, &mut turn.ledger.effects);
            holding.kept_until_us = Some(turn.now.us() + holding.sticky_us);
            // Renew from now on often enough to learn in time that others wait.
            holding.renew_us = holding.renew_us.min(holding.budget.refresh_us());
        }
    }
    let Needs { renew, reserve } = holding.budget.note_pass(token, turn.now.us());
    let renew = renew && attempt.in_flight.is_none();
    if renew {
        holding.renew_us = holding.renew_us.min(turn.now.us());
    }
    if renew || reserve || !holding.is_in_use() {
        turn.arm(counter);
    }
    true
}

/// Enters a lease that is kept. If it may not be handed on, it is released: others wait, or nobody knows whether.
pub(crate) fn enter_kept(turn: &mut Turn<'_>, queue: u64, terms: &Terms) -> Option<Arc<Hold>> {
    let holding = turn.ledger.holding_of(queue).filter(|holding| !holding.is_in_use())?;
    // The hold was made when the lease was kept, with the token of that hand-over.
    if holding.budget.may_go_on(turn.now.us()) && turn.now.us() < holding.hold.valid_until_us() {
        (holding.kept_until_us, holding.sticky_us) = (None, terms.sticky_us);
        return Some(Arc::clone(&holding.hold));
    }
    let counter = turn.ledger.queues.get(queue).map_or(0, |queue| queue.attempt);
    release::give_back(turn, counter);
    None
}

/// Lets the attempt of a single caller, which holds now, stand for a local queue of its name, if none is in use: later
/// callers wait here for it.
pub(crate) fn adopt(ledger: &mut Ledger, counter: u64) {
    let Some(attempt) = ledger.attempts.get(&counter) else { return };
    if attempt.queue().is_some() || attempt.range <= 1 {
        return;
    }
    let (name, terms) = (attempt.name.clone(), Arc::clone(&attempt.terms));
    if let Some(queue) = ledger.idle_or_new_queue(&name, &terms) {
        ledger.attach(counter, queue);
    }
}
