//! Re-check: asking the store again for a name when the lease of another holder has ended.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::{Name, Token};

use super::attempt::Phase;
use super::connections::Reply;
use super::ledger::Ledger;
use super::names::WatchAction;
use super::order::InFlight;
use super::replies::note;
use super::turn::Turn;
use crate::session::agenda::window::Kind;
use crate::session::bounds::{ANSWER_MAX_US, RETRY_US};
use crate::store::Fault;

/// The pause between two calls to all waiters of a name to re-check.
const RALLY_US: u64 = 100_000;

/// Lets a waiter re-check each name whose watched lease has ended. A name without a waiter is settled: returns the settles
/// to send now.
pub(crate) fn due_requests(turn: &mut Turn<'_>) -> Vec<(Name, InFlight)> {
    let Some(home) = turn.server.links.home() else { return Vec::new() };
    for (name, action) in turn.ledger.names.ended_watches(&mut turn.ledger.agenda, turn.now.us()) {
        let waiter = if action == WatchAction::Recheck { waiter_of(turn.ledger, &name) } else { None };
        hit(if waiter.is_some() { Mark::WatchLooked } else { Mark::WatchSettled });
        match waiter {
            Some(counter) => {
                turn.ledger.set_next(counter, turn.now.us());
                turn.ledger.agenda.windows.wait(Kind::Recheck, turn.now.us(), counter);
            }
            None => turn.ledger.agenda.windows.settle(name),
        }
    }
    let mut settles = Vec::new();
    while turn.ledger.agenda.windows.may_settle() {
        let Some(name) = turn.ledger.agenda.windows.next_settle() else { break };
        settles.push((
            name,
            turn.server.request(Arc::clone(home), ANSWER_MAX_US, turn.ledger.ids.serial(), turn.now.us()),
        ));
        turn.ledger.agenda.windows.sent(Kind::Settle);
    }
    settles
}

/// Returns a waiter of ours for this name without a request in flight.
fn waiter_of(ledger: &Ledger, name: &Name) -> Option<u64> {
    let known = ledger.names.get(name)?.waiter;
    match ledger.attempts.get(&known).filter(|attempt| attempt.may_recheck(name)) {
        Some(_) => Some(known),
        // The known waiter is gone: this is rare, so that a search through all attempts is cheap enough.
        None => ledger.attempts.iter().find(|(_, attempt)| attempt.may_recheck(name)).map(|(counter, _)| *counter),
    }
}

/// Accepts the reply to a settle.
pub(crate) fn accept_reply(turn: &mut Turn<'_>, name: &Name, request: &InFlight, reply: Reply) {
    turn.ledger.agenda.end_requests(Kind::Settle, 1);
    match turn.server.judge(&mut turn.ledger.agenda, request, reply, turn.now.us()) {
        Ok(answer) => {
            note(turn, name, &answer, request.sent_us);
        }
        // The record is damaged, and nobody here wants the name.
        Err(Fault::Damaged(_)) if !turn.ledger.names.is_wanted(name) => {}
        Err(_) => turn.ledger.watch(name, Token::NONE, turn.now.us(), RETRY_US, WatchAction::Settle),
    }
}

/// A re-check that had to re-enter the queue means that the store dropped our waiters: the others of that name re-check too
/// (P15). Once is enough: the others, re-checking because of this one, find the same. A single waiter has no others: after
/// a failover each of ten thousand names re-enters, and none is worth a search through all attempts.
pub(crate) fn rally(turn: &mut Turn<'_>, name: &Name, except: u64) {
    match turn.ledger.names.get_mut(name) {
        Some(state) if state.attempts > 1 && state.rallied_us + RALLY_US < turn.now.us() => {
            state.rallied_us = turn.now.us();
        }
        _ => return,
    }
    hit(Mark::Rallied);
    for counter in turn.ledger.counters() {
        let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { continue };
        if counter != except && attempt.name == *name && matches!(attempt.phase, Phase::Queued { .. }) {
            attempt.set_next(turn.now.us());
            turn.arm(counter);
        }
    }
}
