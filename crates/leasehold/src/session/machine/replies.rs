//! The part that all replies have in common, and the requests that get none.

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, Name, Outcome, Rest};

use super::attempt::Phase;
use super::connections::Reply;
use super::names::WatchAction;
use super::order::{InFlight, same};
use super::turn::Turn;
use crate::error::{Error, ErrorKind};
use crate::observe::{Event, To};
use crate::store::Fault;

/// Notes what a reply says about its name and about time. Returns the local moment from which the time counts that it says
/// to be left: see [`Server::note_time`].
pub(crate) fn note(turn: &mut Turn<'_>, name: &Name, answer: &Answer, sent_us: u64) -> u64 {
    let since_us = turn.server.note_time(turn.ledger, answer, sent_us, turn.now.us());
    turn.ledger.names.set_contention(name, answer.contention);
    if let Some(claim_ms) = answer.handed_claim_ms {
        turn.ledger.effects.event(|| Event::HandedOver { name: name.clone(), to: To::Remote });
        // A client that handed over re-checks once when the claim has ended: the receiver may be frozen or dead (P7).
        turn.ledger.watch(name, answer.highest, turn.now.us(), claim_ms * 1000, WatchAction::Recheck);
    }
    if answer.rest == Rest::More {
        turn.ledger.watch(name, answer.highest, turn.now.us(), 0, WatchAction::Settle);
    }
    if let Outcome::Revoking { left_us } = answer.outcome {
        // The waiters that were notified may be gone by then. The client that revoked re-checks as well (P10).
        turn.ledger.watch(name, answer.highest, turn.now.us(), left_us, WatchAction::Recheck);
        turn.ledger.recheck_in(name, turn.now.us(), left_us);
    }
    since_us
}

/// Gives up the reply to a request that a caller was to send. The thread repeats the request, if its reply is still wanted.
pub(crate) fn leave_to_thread(turn: &mut Turn<'_>, counter: u64) {
    let serial = turn.ledger.ids.last_serial();
    if let Some(attempt) = turn.ledger.attempts.get_mut(&counter) {
        attempt.order.sent_by_caller(serial);
    }
    give_up_reply(turn, counter);
}

/// Gives up the reply to a request that a caller has sent. Nothing is known of what it asked for, and the next request is
/// the thread's. (A lost reply to a release does not say whether the acquire was sent.)
pub(crate) fn give_up_reply(turn: &mut Turn<'_>, counter: u64) {
    await_repetition(turn, counter);
    let serial = turn.ledger.ids.last_serial();
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    if attempt.only_tries_to_upgrade() {
        attempt.order.only_tries(serial);
    }
    attempt.in_flight = None;
    if let Phase::Returning(_) | Phase::Asking { .. } = attempt.phase {
        attempt.set_next(turn.now.us());
    }
    turn.arm(counter);
}

/// The first request of an attempt is about to be repeated. A caller whose deadline has passed waits for this reply as for
/// the first one: without a store that replies, nothing would be sent.
pub(crate) fn await_repetition(turn: &mut Turn<'_>, counter: u64) {
    let phase = turn.ledger.attempts.get_mut(&counter).map(|attempt| &mut attempt.phase);
    if let Some(Phase::Asking { usual_us, .. }) = phase
        && !is_on(Mutant::P30EndsUnheard)
    {
        *usual_us = turn.now.us() + turn.server.usual_us();
    }
}

/// Closes the lane, and repeats on the session's connection every request that was sent on it. All at once: the thread
/// sends releases before acquires, and an acquire that overtook the release before it would be refused.
pub(crate) fn give_lane_up(turn: &mut Turn<'_>) {
    let Some(lane) = turn.server.links.lane.close(&mut turn.ledger.effects) else { return };
    hit(Mark::LaneStalled);
    let is_on_it = |counter: &u64| {
        let request = turn.ledger.attempts.get(counter).and_then(|attempt| attempt.in_flight.as_ref());
        request.is_some_and(|request| same(&request.link, &lane))
    };
    let unanswered: Vec<u64> = turn.ledger.counters().into_iter().filter(is_on_it).collect();
    unanswered.into_iter().for_each(|counter| leave_to_thread(turn, counter));
}

/// Checks that an answer is one to an acquire. Otherwise a reply was lost on the way, and each request on this connection
/// gets the reply of the one before it from now on. None of them can be believed, this one least.
pub(crate) fn to_acquire(answer: Answer, request: &InFlight) -> Reply {
    let is_one = matches!(
        answer.outcome,
        Outcome::Granted { .. }
            | Outcome::Queued { .. }
            | Outcome::Busy { .. }
            | Outcome::Gone
            | Outcome::Late
            | Outcome::Full
            | Outcome::Refused(_)
    );
    if is_one {
        return Ok(answer);
    }
    request.link.close();
    let message =
        "the store answered a request that was not made: is a proxy in between that drops or repeats answers?";
    Err(Fault::Gone(Error::new(ErrorKind::Unreachable, message)))
}
