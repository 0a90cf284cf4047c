//! The callers that wait: joining a local queue, leaving it, and giving up.
//!
//! A caller gets "somebody else holds the lock" only if that is known (P30): the last reply of the store said it, or this
//! client holds the lock itself. Otherwise nobody knows, and the caller gets an error that says so. A call that only tries
//! gets it as well if other calls of this client wait for the lock (P21): nobody overtakes them.
//!
//! No grant is forgotten. A waiter whose future is dropped leaves the queue. If it had been granted the lease at that
//! moment, and never took it, it hands the lease on like a guard (`calls.rs`).

use std::sync::Arc;

use leasehold_spec::Name;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use tokio::sync::oneshot;

use super::acquire::{Outgoing, begin_for_queue};
use super::arrival;
use super::attempt::{Attempt, Phase, wait_ends_us};
use super::effects::Verdict;
use super::hand_over::enter_kept;
use super::lane::Upkeep;
use super::ledger::{HandOver, Ledger, Stage};
use super::refusals::full;
use super::release::give_back;
use super::replies::{give_up_reply, leave_to_thread};
use super::turn::Turn;
use super::upgrade;
use crate::error::Error;
use crate::observe::Event;
use crate::session::local::queue::{Waiter, WaiterId};
use crate::session::terms::{Terms, Wait};

/// The result of joining a local queue.
pub(crate) enum Joined {
    /// The result of the acquire, at once.
    Done(Verdict),
    /// The caller does not use the queue. It asks the store by a request of its own.
    Apart(oneshot::Sender<Verdict>),
    /// The caller waits, and sends the first request of the queue, if there is one.
    Waits { waiter: WaiterId, first: Option<Box<Outgoing>>, upkeep: Upkeep },
}

/// The request that a dropped future leaves without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// An acquire that its caller no longer wants.
    Attempt,
    /// An acquire that its caller no longer sends. The attempt goes on, or was given up before.
    Acquire,
    /// A release that was sent.
    Release,
}

/// Joins the local queue for this name and lease. Every lock that may be handed on inside the client begins here.
pub(crate) fn join(
    turn: &mut Turn<'_>,
    (name, terms): (&Name, &Arc<Terms>),
    (wait, caller): (Wait, oneshot::Sender<Verdict>),
) -> Joined {
    if turn.ledger.stage != Stage::Open {
        return Joined::Done(Verdict::Failed(Error::closed()));
    }
    if turn.ledger.hand_over == HandOver::Remote {
        return Joined::Apart(caller);
    }
    let known = known_queue(turn.ledger, name, terms);
    if let Some(queue) = known {
        // A lease is kept only while nobody waits.
        let may_be_kept = turn.ledger.queues.get(queue).is_some_and(|queue| queue.is_empty());
        if may_be_kept && let Some(hold) = enter_kept(turn, queue, terms) {
            return Joined::Done(Verdict::Granted(hold));
        }
        if wait == Wait::No && is_taken(turn.ledger, queue, turn.now.us()) {
            return Joined::Done(Verdict::Busy);
        }
    }
    let until_us = match wait {
        Wait::No => return Joined::Apart(caller),
        Wait::Until { until_us } => until_us,
        Wait::ForEver => u64::MAX,
    };
    // If a kept lease was released just now, its queue may be closed.
    let known = known.filter(|queue| turn.ledger.queues.get(*queue).is_some());
    let queue = known.unwrap_or_else(|| turn.ledger.open_queue(name, terms));
    let number = turn.ledger.ids.number();
    let keeper = turn.keep_inbox(terms);
    let mut counter = 0;
    if let Some(queue) = turn.ledger.queues.get_mut(queue) {
        if queue.is_full() {
            return Joined::Done(Verdict::Failed(full()));
        }
        queue.set_terms_if_idle(terms);
        counter = queue.attempt;
        queue.push(Waiter { number, until_us, sticky_us: terms.sticky_us, caller, _keeps_inbox: keeper });
    }
    let (mut first, mut upkeep) = (None, Upkeep::Fine);
    if counter == 0 {
        let (route, care) = turn.route();
        let link = turn.server.links.way_in(route.lane.clone());
        (first, upkeep) = (begin_for_queue(turn, queue, (link, &route)), care);
    } else {
        turn.ledger.effects.event(|| Event::Waits { name: name.clone() });
        recheck_if_outlasted(turn, queue, until_us);
    }
    turn.ledger.arm_queue(queue);
    Joined::Waits { waiter: WaiterId { queue, number }, first, upkeep }
}

/// Returns the queue for this name and lease. Nearly always the terms already know its number.
fn known_queue(ledger: &Ledger, name: &Name, terms: &Terms) -> Option<u64> {
    let hint = terms.queue.get();
    if ledger.queues.get(hint).is_some_and(|queue| queue.terms.lease_ms == terms.lease_ms && queue.name == *name) {
        return Some(hint);
    }
    ledger.names.queue_of(name, terms.lease_ms).inspect(|&queue| terms.queue.set(queue))
}

/// Returns whether the store need not be asked: this client holds the lock, or others wait for it here. A try that asked
/// beside them could be sent right behind a pending release, and would overtake them.
fn is_taken(ledger: &mut Ledger, queue: u64, now_us: u64) -> bool {
    ledger.queues.get(queue).is_some_and(|queue| !queue.is_empty())
        || ledger.holding_of(queue).is_some_and(|holding| now_us < holding.hold.valid_until_us())
}

/// Re-checks at once if a waiter waits for longer than the store keeps the entry of the queue. Otherwise the store would
/// drop the entry, which would come back only with the next re-check.
fn recheck_if_outlasted(turn: &mut Turn<'_>, queue: u64, until_us: u64) {
    let Some(queue) = turn.ledger.queues.get(queue).filter(|queue| queue.outlasts(until_us)) else { return };
    let counter = queue.attempt;
    let phase = turn.ledger.attempts.get(&counter).map(|attempt| &attempt.phase);
    let is_waiting = matches!(phase, Some(Phase::Asking { .. } | Phase::Queued { .. }));
    if is_waiting && !is_on(Mutant::P21ShortLimit) {
        hit(Mark::LineOutlasted);
        turn.ledger.set_next(counter, turn.now.us());
        turn.arm(counter);
    }
}

/// Removes a waiter from its queue, and returns it. Returns `None` if it has its result, or is about to get it. The waiter
/// must not be dropped under the lock, because this wakes the task that polled its future, or drops that waker.
pub(crate) fn leave(turn: &mut Turn<'_>, waiter: WaiterId) -> Option<Waiter<Verdict>> {
    let queue = turn.ledger.queues.get_mut(waiter.queue)?;
    let (waiter, counter) = (queue.take(waiter.number)?, queue.attempt);
    if queue.is_empty() && !is_on(Mutant::P21EntryStays) {
        abandon_empty_queue(turn, counter);
    }
    Some(waiter)
}

/// Gives up the attempt of a queue that its last waiter has left. An attempt that holds continues: it has a guard.
fn abandon_empty_queue(turn: &mut Turn<'_>, counter: u64) {
    if turn.ledger.attempts.get(&counter).is_some_and(|attempt| !attempt.is_held()) {
        hit(Mark::LineDeserted);
        abandon(turn, counter);
    }
}

/// Takes over the request of a future that was dropped before the reply (P16).
pub(crate) fn drop_request(turn: &mut Turn<'_>, counter: u64, dropped: Dropped) {
    match dropped {
        Dropped::Attempt => {
            let serial = turn.ledger.ids.last_serial();
            if let Some(attempt) = turn.ledger.attempts.get_mut(&counter) {
                attempt.order.sent_by_caller(serial);
            }
            abandon(turn, counter);
        }
        Dropped::Acquire => leave_to_thread(turn, counter),
        Dropped::Release => give_up_reply(turn, counter),
    }
}

/// Gives up an attempt that nobody waits for. A future that stands still may send its first request later. A leave that was
/// sent before that request does not close the attempt (P14).
fn abandon(turn: &mut Turn<'_>, counter: u64) {
    hit(Mark::Abandoned);
    if is_on(Mutant::P16DropSilent) {
        turn.ledger.remove(counter, turn.now.us());
        return;
    }
    // The caller that did not take the lease may have handed it to the next waiter here.
    if !turn.ledger.attempts.get(&counter).is_some_and(Attempt::is_handed_on) {
        give_back(turn, counter);
    }
}

/// Gives the waiters of local queues their results when their deadlines have passed.
pub(crate) fn expire_waiters(turn: &mut Turn<'_>) {
    while let Some((at_us, number)) = turn.ledger.agenda.queues.pop(turn.now.us()) {
        let Some(queue) = turn.ledger.queues.get_mut(number) else { continue };
        if !queue.takes_alarm(at_us) {
            continue;
        }
        let counter = queue.attempt;
        let answer_us = turn.ledger.attempts.get(&counter).map_or(0, Attempt::first_answer_us);
        let is_over = |until_us: u64| wait_ends_us(until_us, answer_us) <= turn.now.us();
        while let Some(waiter) = turn.ledger.queues.get_mut(number).and_then(|queue| queue.take_overdue(is_over)) {
            let verdict = verdict_at_deadline(turn, counter);
            turn.ledger.effects.verdict(waiter.number, Some(waiter.caller), verdict);
        }
        if turn.ledger.queues.get(number).is_some_and(|queue| queue.is_empty()) {
            abandon_empty_queue(turn, counter);
        }
        turn.ledger.arm_queue(number);
    }
}

/// Gives the caller of an attempt its result at its deadline, and ends the attempt.
pub(crate) fn expire(turn: &mut Turn<'_>, counter: u64) {
    hit(Mark::PatienceOver);
    if upgrade::try_once_more(turn, counter) || arrival::ask_once_more(turn, counter) {
        return;
    }
    let verdict = verdict_at_deadline(turn, counter);
    if let Some(attempt) = turn.ledger.attempts.get_mut(&counter) {
        attempt.tell(&mut turn.ledger.effects, verdict);
        give_back(turn, counter);
    }
}

/// Returns what is known to the callers that wait for this attempt.
fn verdict_at_deadline(turn: &Turn<'_>, counter: u64) -> Verdict {
    let Some(attempt) = turn.ledger.attempts.get(&counter) else { return Verdict::Busy };
    match &attempt.phase {
        Phase::Queued { .. } => Verdict::Busy,
        Phase::Held(holding) if turn.now.us() < holding.hold.valid_until_us() => Verdict::Busy,
        // The last reply of the store said that we hold, and it has not said whether we still do.
        Phase::Held(_) | Phase::Claiming { .. } => Verdict::Failed(turn.server.links.away().may_act()),
        // The store has replied, and its record of this name is damaged.
        Phase::Asking { .. } | Phase::Ended { .. } | Phase::Returning(_) => Verdict::Failed(match &attempt.damaged {
            Some((_, error)) => error.share().may_act(),
            None => turn.server.links.away_for(attempt),
        }),
    }
}
