//! The due requests: the one place that decides what the session's thread sends, and when.

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{GrantId, Name, Op};

use super::acquire::{self, begin_for_queue};
use super::attempt::{Attempt, Phase};
use super::beside::Beside;
use super::connections::Route;
use super::order::InFlight;
use super::release::{self, fail, give_back};
use super::renew::{self, Batch};
use super::turn::Turn;
use super::{lower, recheck, reserve, waiting};
use crate::observe::Event;
use crate::session::agenda::window::Kind;
use crate::session::terms::Wait;

/// A request for the thread to send.
pub(crate) enum DueRequest {
    Return { counter: u64, name: Name, op: Op, request: InFlight },
    Renew(Batch),
    Beside(Beside),
    Acquire { id: GrantId, name: Name, op: Op, request: InFlight },
    Settle { name: Name, request: InFlight },
}

/// An attempt that waits for its turn. Lower ranks come first. At `until_us` something else of the attempt is due.
struct Waits {
    kind: Kind,
    rank: u64,
    until_us: u64,
}

/// Returns everything to send now, in the order of P11: returns, renewals (the earliest end first), re-checks.
pub(crate) fn due_requests(turn: &mut Turn<'_>) -> Vec<DueRequest> {
    let reach = turn.server.links.reach();
    waiting::expire_waiters(turn);
    // The attempts of a batch that was not answered in time have alarms of their own from now on.
    while let Some(counters) = turn.ledger.agenda.batches.take_overdue(turn.now.us()) {
        counters.into_iter().for_each(|counter| turn.ledger.arm(counter, reach));
    }
    let (mut requests, mut beside, mut turns) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        while let Some((at_us, counter)) = turn.ledger.agenda.attempts.pop(turn.now.us()) {
            // The alarm of an attempt that is over, or that has an earlier alarm, is dropped.
            let rings = |attempt: &&mut Attempt| attempt.alarm_us == at_us;
            let Some(attempt) = turn.ledger.attempts.get_mut(&counter).filter(rings) else { continue };
            attempt.alarm_us = u64::MAX;
            if attempt.due_us(reach) <= turn.now.us()
                && let Some(Waits { kind, rank, until_us }) = serve(turn, counter, &mut beside)
            {
                turn.ledger.agenda.windows.wait(kind, rank, counter);
                turns.push((counter, until_us));
            } else {
                turn.ledger.arm_after(counter, reach, turn.now.us());
            }
        }
        if !attend(turn) {
            break;
        }
    }
    let settles = recheck::due_requests(turn);
    take_turns(turn, Kind::Return, &mut requests, |turn, counter| {
        let (name, op, request) = release::due_request(turn, counter)?;
        Some(DueRequest::Return { counter, name, op, request })
    });
    requests.extend(renew::due_requests(turn).into_iter().map(DueRequest::Renew));
    requests.extend(beside.into_iter().map(DueRequest::Beside));
    requests.extend(settles.into_iter().map(|(name, request)| DueRequest::Settle { name, request }));
    take_turns(turn, Kind::Recheck, &mut requests, |turn, counter| {
        let (id, name, op, request) = acquire::due_request(turn, counter)?;
        Some(DueRequest::Acquire { id, name, op, request })
    });
    for (counter, until_us) in turns {
        // An attempt that was served has its alarm, or that of its batch.
        let waits = |attempt: &Attempt| attempt.alarm_us == u64::MAX && attempt.in_flight.is_none();
        if until_us < u64::MAX && turn.ledger.attempts.get(&counter).is_some_and(waits) {
            turn.ledger.set_alarm(counter, until_us);
        }
    }
    requests
}

/// Begins an attempt, which the thread sends, for each local queue with waiters whose attempt has ended (P21). Returns
/// whether there was one.
pub(crate) fn attend(turn: &mut Turn<'_>) -> bool {
    let mut has_begun = false;
    while let Some(queue) = turn.ledger.next_unattended() {
        begin_for_queue(turn, queue, (None, &Route::default()));
        has_begun = true;
    }
    has_begun
}

/// Serves attempts whose turn it is, as far as the window has room. The others wait for replies to earlier requests.
fn take_turns(
    turn: &mut Turn<'_>,
    kind: Kind,
    requests: &mut Vec<DueRequest>,
    mut due_request: impl FnMut(&mut Turn<'_>, u64) -> Option<DueRequest>,
) {
    let mut room = turn.ledger.agenda.windows.room(kind);
    while room > 0 {
        let Some(counter) = turn.ledger.agenda.windows.next(kind) else { return };
        if let Some(request) = due_request(turn, counter) {
            requests.push(request);
            turn.ledger.agenda.windows.sent(kind);
            room -= 1;
        }
        turn.ledger.arm_after(counter, turn.server.links.reach(), turn.now.us());
    }
}

/// Does what is due of an attempt. If it has to send something, returns how it waits for its turn. Requests to which no
/// turn applies are added to `beside`.
fn serve(turn: &mut Turn<'_>, counter: u64, beside: &mut Vec<Beside>) -> Option<Waits> {
    let is_overdue = |request: &mut InFlight| request.until_us <= turn.now.us();
    if let Some(request) = turn.ledger.attempts.get_mut(&counter)?.in_flight.take_if(is_overdue) {
        turn.server.links.doubt(&mut turn.ledger.agenda, &request.link);
        if let Some(attempt) = turn.ledger.attempts.get(&counter).filter(|attempt| attempt.is_held()) {
            turn.ledger.effects.event(|| Event::RenewalLate { name: attempt.name.clone() });
        }
        time_out(turn, counter);
    }
    let attempt = turn.ledger.attempts.get_mut(&counter)?;
    let renewal = |until_us| Some(Waits { kind: Kind::Renewal, rank: until_us, until_us });
    match &attempt.phase {
        Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. }
            if attempt.wait_ends_us() <= turn.now.us() =>
        {
            waiting::expire(turn, counter);
        }
        Phase::Asking { .. } if attempt.wait == Wait::No && turn.server.links.home().is_none() => {
            let error = turn.server.links.away_for(attempt);
            fail(turn, counter, error);
            return None;
        }
        Phase::Asking { .. } | Phase::Queued { .. } => return recheck_turn(attempt, turn.now.us()),
        Phase::Claiming { until_us, .. } if *until_us <= turn.now.us() => {
            // A grant ended before the client could claim it: back to the place in the queue.
            hit(Mark::ClaimRanOut);
            attempt.in_flight = None;
            attempt.phase = Phase::Queued { next_us: turn.now.us() };
            return recheck_turn(attempt, turn.now.us());
        }
        Phase::Claiming { until_us, .. } => return renewal(*until_us),
        Phase::Held(holding) if holding.hold.valid_until_us() <= turn.now.us() => {
            hit(Mark::ValidityOver);
            turn.ledger.effects.expire_hold(&holding.hold, turn.now.us());
            give_back(turn, counter);
        }
        Phase::Held(holding) if holding.is_kept_no_longer(turn.now.us()) => give_back(turn, counter),
        Phase::Held(holding) if holding.budget.wants_range() && turn.server.links.home().is_some() => {
            beside.extend(reserve::due_request(turn, counter));
            return None;
        }
        Phase::Held(holding) if holding.owes_lower(turn.now.us()) && turn.server.links.home().is_some() => {
            beside.extend(lower::due_request(turn, counter));
            return None;
        }
        Phase::Held(holding) => return renewal(holding.hold.valid_until_us()),
        // The store has ended the rest: nothing is returned, unless an old acquire may still be carried out.
        Phase::Ended { .. } => give_back(turn, counter),
        Phase::Returning(_) => {}
    }
    let until_us = release::expire(turn, counter)?;
    Some(Waits { kind: Kind::Return, rank: turn.now.us(), until_us })
}

/// Re-checks wait in the order in which they fell due, and so do returns.
fn recheck_turn(attempt: &Attempt, now_us: u64) -> Option<Waits> {
    Some(Waits { kind: Kind::Recheck, rank: now_us, until_us: attempt.wait_ends_us() })
}

/// A request was not answered in time: it is repeated, unless its caller does not wait.
fn time_out(turn: &mut Turn<'_>, counter: u64) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    match attempt.phase {
        Phase::Asking { .. } if attempt.wait == Wait::No => {
            let error = turn.server.links.silence().may_act();
            fail(turn, counter, error);
        }
        _ => attempt.set_next(turn.now.us()),
    }
}

/// The thread sleeps until then, unless it is woken.
pub(crate) fn sleep_until(turn: &mut Turn<'_>, until_us: u64) {
    turn.server.contact.sleeps(until_us);
    if !is_on(Mutant::P17LostWake) {
        turn.ledger.agenda.plan(until_us);
    }
}

/// The thread runs again: while it works, it sees every change at the end of its turn.
pub(crate) fn woke(turn: &mut Turn<'_>) {
    turn.server.contact.woke(turn.now.us());
    turn.ledger.agenda.plan(0);
    for timer in turn.ledger.agenda.take_fired(turn.now.us()) {
        turn.ledger.effects.signal(timer);
    }
}

/// Returns when the thread has to run at the latest.
pub(crate) fn next_due_us(turn: &mut Turn<'_>) -> u64 {
    turn.ledger.drop_idle_alarms(turn.server.links.reach());
    let is_online = turn.server.links.home().is_some();
    if turn.ledger.agenda.windows.is_due() || (turn.ledger.agenda.windows.may_settle() && is_online) {
        return 0;
    }
    // A re-check needs a connection: without one it stays due.
    let names_us = turn.ledger.agenda.names.next_us().filter(|_| is_online).unwrap_or(u64::MAX);
    turn.ledger.agenda.next_us().min(names_us)
}
