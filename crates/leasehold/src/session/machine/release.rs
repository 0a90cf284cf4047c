//! Release: returning to the store what was held, waited for, or may still be granted.
//!
//! A lease that nobody needs must not stay at the store until it runs out: others wait. So whatever ends an attempt here
//! (a guard, a dropped future, a refusal, the end of the session) comes to [`begin_return`]. The request is repeated until
//! the store has confirmed it, or cannot have kept the lease any longer (P13).
//!
//! Three schedules need more than one request:
//! - An acquire without a reply may be carried out *after* the leave. Then that leave was not the last request (P14).
//! - A message or a reply grants an attempt that is closed: a ghost. It is never believed, and is returned.
//! - A failover brings back a lease that was released, or the state in which its attempt still waited. The new run gets a
//!   leave: a release would name a token that the restored attempt may not have.

use std::collections::VecDeque;
use std::sync::Arc;

use leasehold_spec::limits::{CLAIM_MIN_MS, LEASE_MAX_MS, NOT_AFTER_MAX_US, RECHECK_MAX_MS};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, GrantId, Name, Op, Outcome, Token, Was};

use super::arrival;
use super::attempt::{Attempt, Phase, Requester};
use super::connections::Reply;
use super::effects::Verdict;
use super::ledger::Ledger;
use super::order::InFlight;
use super::replies::{give_lane_up, note};
use super::returning::{GivenUp, ReturnKind, Returning};
use super::turn::Turn;
use crate::error::Error;
use crate::lost::{LostReason, Released};
use crate::session::bounds::RETRY_US;
use crate::session::terms::{Terms, Wait};
use crate::store::{Fault, Link};

/// The most ghosts that a session returns at a time: a rogue publisher must not fill the memory. It is as many as may wait
/// for one name, half a kilobyte each.
const GHOSTS: usize = leasehold_spec::limits::QUEUE_MAX;

/// Ends an attempt that neither waits nor holds, with a result for its caller.
pub(crate) fn finish(turn: &mut Turn<'_>, counter: u64, verdict: Verdict) {
    turn.ledger.tell(counter, verdict);
    if let Some(attempt) = turn.ledger.attempts.get_mut(&counter) {
        attempt.ticket = None;
    }
    give_back(turn, counter);
}

/// Ends an attempt with an error, and returns to the store whatever there may be of it.
pub(crate) fn fail(turn: &mut Turn<'_>, counter: u64, error: Error) {
    let may_have_acted = turn.ledger.attempts.get(&counter).is_some_and(Attempt::may_have_arrived);
    let error = if may_have_acted { error.may_act() } else { error };
    turn.ledger.tell(counter, Verdict::Failed(error));
    give_back(turn, counter);
}

/// Returns to the store whatever there may be of an attempt. The thread sends the request.
pub(crate) fn give_back(turn: &mut Turn<'_>, counter: u64) {
    begin_return(turn, counter);
    turn.arm(counter);
}

/// Ends an attempt in any phase: its hold ends, its queue is detached, and its phase becomes Returning, unless the store
/// has nothing of it. Sets no alarm. A caller that sends the request itself needs none: an alarm that is due now wakes the
/// thread, which costs more than the release.
pub(crate) fn begin_return(turn: &mut Turn<'_>, counter: u64) {
    turn.ledger.go_on(counter, turn.now.us());
    let is_whole = !turn.server.links.profile().partial_grants;
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let (mut cools_until_us, mut is_spent) = (0, false);
    let (token, used) = match &attempt.phase {
        Phase::Returning(_) => return,
        // The store has ended all of it already. Its alarm may still be set.
        Phase::Ended { token, used, until_us } if *until_us <= turn.now.us() && attempt.is_known() && is_whole => {
            let kind = ReturnKind::Release { token: *token, used: *used };
            return forget_ended(turn.ledger, counter, kind, turn.now.us());
        }
        Phase::Held(holding) => {
            let is_lost = holding.hold.why_lost().is_some_and(|reason| reason.is_expiry());
            turn.ledger.effects.end_hold(&holding.hold, LostReason::Released);
            let min_hold_us = attempt.terms.min_hold_us;
            if min_hold_us > 0 && !is_lost && holding.hold.keeps_min_hold() && !is_on(Mutant::P23ReleasesAtOnce) {
                cools_until_us = holding.granted_us.saturating_add(min_hold_us);
            }
            is_spent = holding.is_spent;
            (Some(holding.budget.grant()), holding.hold.token)
        }
        Phase::Claiming { token, .. } => (Some(*token), *token),
        Phase::Ended { token, used, .. } => (Some(*token), *used),
        Phase::Asking { .. } | Phase::Queued { .. } => (None, Token::NONE),
    };
    let used = if is_on(Mutant::P19ForgetsUsed) { token.unwrap_or(used) } else { used };
    // If the state at the store is not known, the grant may have been made anew, with a token that is not known here. A
    // release of the old token would find nothing and close the attempt.
    let kind = match token {
        _ if cools_until_us > turn.now.us() => ReturnKind::CoolDown { used, until_us: cools_until_us },
        Some(token) if attempt.order.is_settled() && is_spent => ReturnKind::Spend { token },
        Some(token) if attempt.is_known() => ReturnKind::Release { token, used },
        Some(_) => {
            hit(Mark::LeaveForRelease);
            ReturnKind::Leave { used }
        }
        None => ReturnKind::Leave { used },
    };
    if token.is_none() && attempt.ticket.is_none() && attempt.order.is_settled() {
        turn.ledger.remove(counter, turn.now.us()); // The store has nothing of it.
        return;
    }
    // The longest that the store can keep it: a request that is carried out at its last moment, and a whole lease.
    let until_us = turn.now.us() + attempt.terms.lease_us() + NOT_AFTER_MAX_US + arrival::place_lasts_us(attempt);
    attempt.in_flight = None;
    attempt.phase = Phase::Returning(Returning::new(kind, until_us, turn.now.us()));
    if let Some(token) = token {
        let name = attempt.name.clone();
        note_going_back(turn.ledger, &name, counter, token);
    }
}

/// Notes that an attempt is in the way of this session's next acquire of a name (`precede.rs`).
fn note_going_back(ledger: &mut Ledger, name: &Name, counter: u64, token: Token) {
    let Some(state) = ledger.names.get_mut(name) else { return };
    if !state.kind.is_pool() {
        let latest = |counter: &u64| ledger.attempts.get(counter).map(|attempt| attempt.latest);
        if state.going_back.iter().filter_map(latest).any(|known| known >= token) {
            return;
        }
        state.going_back.clear();
    }
    state.going_back.push(counter);
}

/// Forgets an attempt whose lease the store has ended. A failover can bring the lease back: the revocation or the upgrade
/// that ended it may be among what it lost.
pub(crate) fn forget_ended(ledger: &mut Ledger, counter: u64, kind: ReturnKind, now_us: u64) {
    let Some(attempt) = ledger.remove(counter, now_us) else { return };
    let until_us = now_us + attempt.terms.lease_us() + NOT_AFTER_MAX_US;
    let Attempt { name, id, .. } = attempt;
    ledger.releases.remember(GivenUp { name, id, kind, until_us }, now_us);
}

/// Notes the request as sent, and returns it.
pub(crate) fn request(turn: &mut Turn<'_>, counter: u64, link: Arc<dyn Link>) -> Option<(Op, InFlight)> {
    let attempt = turn.ledger.attempts.get_mut(&counter)?;
    let request = turn.server.request(link, attempt.terms.answer_within_us(), turn.ledger.ids.serial(), turn.now.us());
    let Phase::Returning(returning) = &mut attempt.phase else { return None };
    returning.unanswered += 1;
    attempt.in_flight = Some(request.clone());
    Some((returning.kind.op(attempt.id, turn.now.us()), request))
}

/// Returns the request that the thread has to send now, if any. It goes on the connection of the acquire that it ends: on
/// another one it would overtake the acquire.
pub(crate) fn due_request(turn: &mut Turn<'_>, counter: u64) -> Option<(Name, Op, InFlight)> {
    let attempt = turn.ledger.attempts.get(&counter)?;
    let Phase::Returning(returning) = &attempt.phase else { return None };
    if attempt.in_flight.is_some() || returning.next_us > turn.now.us() {
        return None;
    }
    let follow = attempt.order.follow().filter(|_| !is_on(Mutant::P11LeaveOvertakes));
    let link = Arc::clone(follow.or(turn.server.links.home())?);
    let name = attempt.name.clone();
    let (op, request) = request(turn, counter, link)?;
    Some((name, op, request))
}

/// Ends an attempt whose lease the store must have ended by itself by now. Otherwise returns when that will be.
pub(crate) fn expire(turn: &mut Turn<'_>, counter: u64) -> Option<u64> {
    let attempt = turn.ledger.attempts.get_mut(&counter)?;
    let Phase::Returning(returning) = &mut attempt.phase else { return None };
    if returning.until_us > turn.now.us() {
        return Some(returning.until_us);
    }
    hit(Mark::ReturnExpired);
    let caller = returning.caller.take();
    turn.ledger.effects.released(counter, caller, || Err(turn.server.links.silence().may_act()));
    turn.ledger.remove(counter, turn.now.us());
    None
}

/// Accepts the reply to a release, a leave, or a cool-down.
pub(crate) fn accept_reply(turn: &mut Turn<'_>, counter: u64, request: &InFlight, reply: Reply) {
    let reply = turn.server.judge(&mut turn.ledger.agenda, request, reply, turn.now.us());
    if matches!(reply, Err(Fault::Undecided(_))) && turn.server.links.may_be_unsent(request) {
        return give_lane_up(turn); // As with an acquire: the session's connection asks.
    }
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let is_latest = attempt.end_wait(request);
    let name = attempt.name.clone();
    let Phase::Returning(returning) = &mut attempt.phase else { return };
    let answer = match reply {
        Ok(answer) => answer,
        Err(fault) if is_latest => return retry(turn, counter, fault),
        Err(_) => return,
    };
    returning.unanswered = returning.unanswered.saturating_sub(1);
    // After a request without a reply, "not held" proves nothing: that request may have returned the lease, and the record
    // remembers only the last release (P3).
    let released = match answer.outcome {
        Outcome::NotHeld if returning.unanswered == 0 => Released::NotHeld,
        // This is the leave of a guard: a waiter that leaves does not ask for the result.
        Outcome::Left { was: Was::Absent } if returning.unanswered == 0 => Released::NotHeld,
        _ => Released::Released,
    };
    let absent = matches!(answer.outcome, Outcome::Refused(_));
    let result = || if absent { Err(Error::absent()) } else { Ok(released) };
    turn.ledger.effects.released(counter, returning.caller.take(), result);
    close_attempt(turn.ledger, counter, request, &answer, turn.now.us());
    note(turn, &name, &answer, request.sent_us);
    turn.arm(counter);
}

/// Closes an attempt that was returned, unless an older request of it may still be carried out (P14).
fn close_attempt(ledger: &mut Ledger, counter: u64, request: &InFlight, answer: &Answer, now_us: u64) {
    let Some(attempt) = ledger.attempts.get_mut(&counter) else { return };
    let (id, name, was_granted) = (attempt.id, attempt.name.clone(), attempt.latest > Token::NONE);
    let is_arrival = attempt.terms.is_arrival();
    let open_for_us = attempt.order.open_for_us(answer.now_us).min(NOT_AFTER_MAX_US);
    let Phase::Returning(returning) = &mut attempt.phase else { return };
    let is_closed = match returning.kind {
        // The reply to the usual release has no time: it closes what was sent before it on its own connection.
        ReturnKind::Release { .. } | ReturnKind::Spend { .. } | ReturnKind::CountDown { .. } => {
            attempt.order.is_closed_by(request, 0)
        }
        ReturnKind::Leave { .. } | ReturnKind::CoolDown { .. } => {
            attempt.order.is_closed_by(request, answer.now_us) || is_on(Mutant::P14FirstLeave)
        }
    };
    // A leave that hands a grant on is a release by another name. If the leave finds nothing, an earlier request without a
    // reply may have been the release. Or a revocation has ended a grant that we know of. A failover can lose it, too.
    let (kind, until_us) = (returning.kind, returning.until_us);
    let is_release = match answer.outcome {
        Outcome::Left { .. } if returning.is_repeated && !is_on(Mutant::P13SecondRun) => true,
        Outcome::Left { was: Was::Granted } => true,
        Outcome::Left { was: Was::Absent } => returning.unanswered > 0 || was_granted,
        _ => matches!(kind, ReturnKind::Release { .. } | ReturnKind::Spend { .. }),
    };
    if is_closed {
        ledger.remove(counter, now_us);
    } else {
        hit(Mark::LeaveAgain);
        returning.kind = kind.of_any_grant();
        returning.next_us = match returning.note_answered(answer.now_us) {
            true => now_us,
            false => now_us + open_for_us + 1_000,
        };
    }
    // Closed or not: from now on a failover can bring it back, or forget it.
    if is_arrival {
        ledger.releases.remember(GivenUp { name, id, kind: kind.of_any_grant(), until_us }, now_us);
    } else if matches!((kind, &answer.outcome), (ReturnKind::CountDown { .. }, Outcome::Counted { .. })) {
        ledger.counted.remember(GivenUp { name, id, kind, until_us }, now_us);
    } else if is_release {
        ledger.releases.remember(GivenUp { name, id, kind, until_us }, now_us);
    }
}

/// Repeats a request without an answer, until the store must have ended the lease by itself.
fn retry(turn: &mut Turn<'_>, counter: u64, fault: Fault) {
    if matches!(fault, Fault::Gone(_)) && is_on(Mutant::P13ReleaseOnce) {
        turn.ledger.remove(counter, turn.now.us());
        return;
    }
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let (error, pause_us) = match fault {
        Fault::Gone(_) => {
            hit(Mark::ReturnRepeated);
            (None, 0)
        }
        Fault::Damaged(error) => match attempt.note_damaged(&error) {
            Some(pause_us) => (None, pause_us),
            // The record is damaged. It may still be mended or deleted: ask rarely, and without the caller.
            None => (Some(error.may_act()), RECHECK_MAX_MS * 1000),
        },
        Fault::Undecided(_) => {
            hit(Mark::ReturnRepeated);
            (None, RETRY_US)
        }
        Fault::Refused(error) | Fault::NoMemory(error) => (Some(error), RETRY_US),
    };
    if let (Phase::Returning(returning), Some(error)) = (&mut attempt.phase, error) {
        let caller = returning.caller.take();
        // P44: a caller that knows of the refusal may count down again. Both would count.
        let is_refused_count = caller.is_some() && matches!(returning.kind, ReturnKind::CountDown { .. });
        let has_older = returning.unanswered > 1;
        let error = if is_refused_count && has_older { error.may_act() } else { error };
        turn.ledger.effects.released(counter, caller, || Err(error));
        if is_refused_count {
            turn.ledger.remove(counter, turn.now.us());
            return;
        }
    }
    attempt.set_next(turn.now.us() + pause_us);
    turn.arm(counter);
}

/// Leaves again at once if the store says that an attempt which was given up waits or holds. Its acquire may have been
/// carried out after the leave, on another connection. Nobody enters by that attempt, and all others would wait for it.
pub(crate) fn note_present(ledger: &mut Ledger, counter: u64, said_us: u64, now_us: u64) {
    let Some(attempt) = ledger.attempts.get_mut(&counter) else { return };
    let Phase::Returning(returning) = &mut attempt.phase else { return };
    // If a request is in flight, its reply decides.
    if returning.note_present(said_us) && attempt.in_flight.is_none() {
        returning.next_us = now_us;
    }
}

/// Returns a grant of a closed attempt. While the store is unreachable it is kept for as long as the grant can last, within
/// bounds, because anybody can publish.
pub(crate) fn return_ghost(turn: &mut Turn<'_>, (name, id): (&Name, GrantId), left_us: u64) {
    if turn.ledger.attempts.contains_key(&id.counter) || turn.ledger.ghosts.len() >= GHOSTS {
        return; // The end of that attempt ends it.
    }
    let left_us = left_us.clamp(CLAIM_MIN_MS * 1000, LEASE_MAX_MS * 1000);
    // It may have been held here and been given up for want of a reply: then nobody knows how much of its range was used.
    let kind = ReturnKind::Leave { used: Token::HIGHEST };
    let until_us = turn.now.us() + left_us + NOT_AFTER_MAX_US;
    turn.ledger.ghosts.insert(id.counter);
    insert(turn, (name.clone(), id), Returning::new(kind, until_us, 0));
}

/// Leaves, at a new run, what was released lately (P13), and counts again what was counted (P44).
pub(crate) fn repeat_releases(turn: &mut Turn<'_>) {
    let counted = if is_on(Mutant::P44CountsOnce) { VecDeque::new() } else { turn.ledger.counted.take() };
    for old in turn.ledger.releases.take().into_iter().chain(counted) {
        if old.until_us > turn.now.us() && !turn.ledger.attempts.contains_key(&old.id.counter) {
            hit(Mark::ReleaseSaidAgain);
            let returning = Returning::repeated(old.kind.at_a_new_run(), old.until_us);
            insert(turn, (old.name, old.id), returning);
        }
    }
}

/// Lets the thread send a return.
pub(crate) fn insert(turn: &mut Turn<'_>, (name, id): (Name, GrantId), returning: Returning) {
    let phase = Phase::Returning(returning);
    let attempt = Attempt::new(id, name, Arc::new(Terms::of_an_end()), Requester::Nobody, Wait::No, phase);
    turn.ledger.insert(attempt, turn.server.links.reach());
}
