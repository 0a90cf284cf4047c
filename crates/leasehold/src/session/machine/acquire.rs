//! Acquire: from the first request of an attempt to its grant or its refusal.
//!
//! Two statements about one ID can arrive in either order, because the reply that says QUEUED and the message that says
//! GRANTED come by different connections. Each carries the highest token that existed when it was made, and the larger one
//! is the later (P3). On a tie the grant is the later one, because it is that token.

use std::sync::Arc;

use leasehold_spec::limits::{RANGE_MAX, RUN_PASSES};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Acquire, Answer, GrantId, Hears, Joined, Name, Op, Outcome, Patience, Place, Rest};
use tokio::sync::oneshot;

use super::attempt::{Attempt, Phase, Requester};
use super::connections::{Reply, Route};
use super::effects::Verdict;
use super::grant::{Entering, Others, claim_first, end, enter};
use super::holding::Claim;
use super::lane::Upkeep;
use super::ledger::HandOver;
use super::names::WatchAction;
use super::order::InFlight;
use super::precede::{Predecessors, clear_the_way};
use super::recheck::rally;
use super::refusals::{full, refused};
use super::release::{fail, finish, give_back, note_present, return_ghost};
use super::replies::{await_repetition, give_lane_up, leave_to_thread, note, to_acquire};
use super::turn::Turn;
use super::{arrival, close, condition, upgrade};
use crate::clock::Term;
use crate::error::{Error, Result};
use crate::lost::LostReason;
use crate::observe::Event;
use crate::session::bounds::RETRY_US;
use crate::session::terms::{Terms, Wait};
use crate::store::{Fault, Guess, Link};

/// An acquire that its caller sends. It is boxed, to keep the futures that hold it small.
pub(crate) struct Outgoing {
    pub(crate) id: GrantId,
    pub(crate) op: Op,
    pub(crate) request: InFlight,
    pub(crate) guess: Guess,
    pub(crate) before: Predecessors,
}

/// Begins an attempt for one caller. Returns its counter, and the request for the caller to send, if it can.
pub(crate) fn begin_for_caller(
    turn: &mut Turn<'_>,
    of: (&Name, &Arc<Terms>),
    (wait, caller): (Wait, oneshot::Sender<Verdict>),
) -> Result<(u64, Option<Box<Outgoing>>, Upkeep)> {
    close::check_open(turn)?;
    let (route, upkeep) = turn.route();
    let link = match wait {
        Wait::No => route.lane.clone().or_else(|| turn.server.links.home().cloned()),
        _ => turn.server.links.way_in(route.lane.clone()),
    };
    let (counter, first) = begin(turn, of, (Requester::Caller(caller), wait), (link, &route));
    if first.is_none() && wait == Wait::No {
        fail(turn, counter, turn.server.links.away());
    }
    Ok((counter, first, upkeep))
}

/// Begins an attempt. It is registered before anything is sent, because its grant may come before the reply. Returns its
/// counter, and what its caller sends on `link`. Without a connection the thread sends, after the inbox is proved (P11).
pub(crate) fn begin(
    turn: &mut Turn<'_>,
    (name, terms): (&Name, &Arc<Terms>),
    (requester, wait): (Requester, Wait),
    (link, route): (Option<Arc<dyn Link>>, &Route),
) -> (u64, Option<Box<Outgoing>>) {
    let id = turn.ledger.ids.grant_id();
    let counter = id.counter;
    let (link, before) = clear_the_way(turn, name, (link, route));
    let queue = if let Requester::Queue(queue) = requester { Some(queue) } else { None };
    // A `try_lock` is in no local queue, but its lease may be handed on: later callers can queue behind it.
    let may_hand_on = queue.is_some() || (wait == Wait::No && terms.may_share());
    let is_local = may_hand_on && turn.ledger.hand_over == HandOver::Local;
    let range = if is_local { range_for(turn, queue, terms) } else { 1 };
    // The caller sends now, and the thread looks after the request only if it gets no reply.
    let next_us = if link.is_some() { u64::MAX } else { turn.now.us() };
    let phase = Phase::Asking { next_us, usual_us: turn.now.us() + turn.server.usual_us() };
    let attempt = Attempt::new(id, name.clone(), Arc::clone(terms), requester, wait, phase);
    if let Some(queue) = queue {
        turn.ledger.attach(counter, queue);
    }
    // Each waiter of a local queue keeps the inbox for itself.
    let keeper = if queue.is_some() { None } else { turn.keep_inbox(terms) };
    turn.ledger.insert(Attempt { range, _keeps_inbox: keeper, ..attempt }, turn.server.links.reach());
    upgrade::begin(turn, counter, terms);
    let outgoing = link.and_then(|link| {
        let (op, request) = request(turn, counter, &link)?;
        turn.ledger.attempts.get_mut(&counter)?.order.leave_to_caller(request.serial);
        Some(Box::new(Outgoing { id, op, request, guess: turn.ledger.names.guess(name), before }))
    });
    turn.arm(counter);
    (counter, outgoing)
}

/// Begins the attempt of a local queue. Returns what its caller sends on `link`; without a connection the thread sends.
pub(crate) fn begin_for_queue(
    turn: &mut Turn<'_>,
    number: u64,
    (link, route): (Option<Arc<dyn Link>>, &Route),
) -> Option<Box<Outgoing>> {
    let queue = turn.ledger.queues.get(number)?;
    let (name, terms) = (queue.name.clone(), Arc::clone(&queue.terms));
    let requester = (Requester::Queue(number), Wait::ForEver);
    begin(turn, (&name, &terms), requester, (link, route)).1
}

/// Returns how many tokens to ask for (P19). A caller that joins a queue whose first waiter holds gets the tokens of that
/// lease. A lease that is kept is for later callers.
fn range_for(turn: &Turn<'_>, queue: Option<u64>, terms: &Terms) -> u64 {
    let queue = queue.and_then(|queue| turn.ledger.queues.get(queue));
    let is_alone = terms.sticky_us == 0 && !queue.is_some_and(|queue| queue.expects_others());
    if is_alone && turn.server.links.profile().burns_unused_tokens { RUN_PASSES.into() } else { RANGE_MAX }
}

/// Notes an acquire as sent, and returns it.
fn request(turn: &mut Turn<'_>, counter: u64, link: &Arc<dyn Link>) -> Option<(Op, InFlight)> {
    let attempt = turn.ledger.attempts.get_mut(&counter)?;
    let reply_within_us = attempt.terms.answer_within_us();
    let request = turn.server.request(Arc::clone(link), reply_within_us, turn.ledger.ids.serial(), turn.now.us());
    let arrival_within_us = arrival::may_arrive_within_us(attempt, turn.now.us());
    let not_after_us = turn.server.clock.not_after(turn.now.us(), arrival_within_us);
    let until_us = match (attempt.queue(), attempt.wait) {
        (Some(queue), _) => turn.ledger.queues.get_mut(queue).map_or(u64::MAX, |queue| queue.note_sent_deadline_us()),
        (None, Wait::Until { until_us }) => until_us,
        (None, Wait::No | Wait::ForEver) => u64::MAX,
    };
    let place = Place {
        claim_ms: turn.server.claim_ms(),
        limit_ms: (until_us != u64::MAX).then(|| until_us.saturating_sub(turn.now.us()) / 1000),
        ticket: attempt.ticket,
        hears: Hears::Listens,
        order: attempt.terms.order,
    };
    if is_on(Mutant::P3NewIdOnRetry) && !attempt.order.is_settled() {
        attempt.id.nonce = attempt.id.nonce.wrapping_add(1);
    }
    let acquire = Acquire {
        id: attempt.id,
        take: attempt.terms.take,
        lease_ms: attempt.terms.lease_ms,
        range: attempt.range,
        not_after_us,
        patience: if attempt.wait == Wait::No { Patience::Try } else { Patience::Queue(place) },
        label: Arc::clone(&attempt.terms.label),
    };
    attempt.order.note_acquire(link, not_after_us);
    attempt.in_flight = Some(request.clone());
    Some((Op::Acquire(acquire), request))
}

/// Returns the acquire that the thread has to send now, if any: the first one, or a re-check.
pub(crate) fn due_request(turn: &mut Turn<'_>, counter: u64) -> Option<(GrantId, Name, Op, InFlight)> {
    let link = Arc::clone(turn.server.links.home()?);
    let attempt = turn.ledger.attempts.get(&counter)?;
    let (Phase::Asking { next_us, .. } | Phase::Queued { next_us }) = attempt.phase else { return None };
    let is_recheck = attempt.ticket.is_some();
    if attempt.in_flight.is_some() || next_us > turn.now.us() || (is_recheck && is_on(Mutant::P15NoRecheck)) {
        return None;
    }
    if arrival::is_too_late(attempt, turn.now.us()) {
        finish(turn, counter, Verdict::Failed(Error::broken().may_act()));
        return None;
    }
    if let Some(until_us) = arrival::waits_until_us(attempt, turn.now.us()) {
        turn.ledger.set_next(counter, until_us);
        turn.arm(counter);
        return None;
    }
    let (id, name) = (attempt.id, attempt.name.clone());
    let (op, request) = request(turn, counter, &link)?;
    turn.ledger.attempts.get_mut(&counter)?.order.leave_to_thread();
    Some((id, name, op, request))
}

/// Accepts the reply to an acquire, first or repeated.
pub(crate) fn accept_reply(turn: &mut Turn<'_>, (name, id): (&Name, GrantId), request: &InFlight, reply: Reply) {
    let reply = turn.server.judge(&mut turn.ledger.agenda, request, reply, turn.now.us());
    let reply = reply.and_then(|answer| to_acquire(answer, request));
    let (counter, last_serial) = (id.counter, turn.ledger.ids.last_serial());
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.id == id) else {
        return accept_ghost(turn, (name, id), &reply);
    };
    let is_latest = attempt.end_wait(request);
    attempt.order.note_fate(request.serial, last_serial);
    if reply.is_ok() {
        attempt.damaged = None;
    }
    match &reply {
        Err(Fault::Gone(_) | Fault::Damaged(_) | Fault::Undecided(_)) => attempt.order.gone(),
        _ => attempt.order.answered(request.serial),
    }
    let is_old_try = !is_latest && attempt.only_tries_to_upgrade();
    let asks_last = attempt.asks_last;
    match reply {
        // Busy is not final: a later try is in flight or due, and an acquire from before may have queued after this try.
        Ok(answer) if is_old_try && matches!(answer.outcome, Outcome::Busy { .. }) => {
            note(turn, name, &answer, request.sent_us);
        }
        // The reply to the last request is on its way.
        Ok(answer) if asks_last && matches!(answer.outcome, Outcome::Queued { .. }) => {
            note(turn, name, &answer, request.sent_us);
        }
        Ok(answer) => {
            attempt.note_contradiction(&answer, request.serial, last_serial);
            let since_us = note(turn, name, &answer, request.sent_us);
            accept_answer(turn, counter, (&answer, since_us));
        }
        // The lane may not have sent it, so this fault says nothing about the store: the session's connection asks.
        Err(Fault::Undecided(_)) if is_latest && turn.server.links.may_be_unsent(request) => {
            leave_to_thread(turn, counter);
            give_lane_up(turn);
        }
        Err(fault) if is_latest => retry(turn, counter, fault),
        Err(_) => {}
    }
    turn.arm_after_reply(counter, request);
}

/// An acquire of a closed attempt was carried out all the same: a script that the server had forgotten is sent a second
/// time, and that can come after the leave.
fn accept_ghost(turn: &mut Turn<'_>, of: (&Name, GrantId), reply: &Reply) {
    let left_us = match reply {
        Ok(Answer { outcome: Outcome::Granted { left_us, .. }, .. }) => *left_us,
        Ok(Answer { outcome: Outcome::Queued { .. }, .. }) => turn.server.claim_ms() * 1000,
        _ => return,
    };
    hit(Mark::GhostAnswer);
    return_ghost(turn, of, left_us);
}

fn accept_answer(turn: &mut Turn<'_>, counter: u64, (answer, since_us): (&Answer, u64)) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    if matches!(attempt.phase, Phase::Returning(_) | Phase::Ended { .. }) {
        hit(Mark::AnswerToReturning);
        // It was given up meanwhile: the leave behind this request takes back what it was granted.
        if matches!(answer.outcome, Outcome::Granted { .. } | Outcome::Queued { .. }) {
            note_present(turn.ledger, counter, answer.now_us, turn.now.us());
        }
        return;
    }
    let is_waiting = matches!(attempt.phase, Phase::Asking { .. } | Phase::Queued { .. });
    match answer.outcome {
        Outcome::Granted { token, .. } if token < attempt.latest => put_off(attempt, turn.now.us()),
        Outcome::Granted { .. } => accept_granted_reply(turn, counter, (answer, since_us)),
        Outcome::Queued { .. } if !attempt.believes(answer.highest) => put_off(attempt, turn.now.us()),
        Outcome::Queued { .. } => accept_place(turn, counter, answer),
        Outcome::Late => {
            hit(Mark::LateReply);
            await_repetition(turn, counter);
            turn.ledger.set_next(counter, turn.now.us()); // Nothing was done, and the clock is known anew: ask again.
        }
        // This re-check was sent before a message brought the grant. The client has not released the grant, so somebody
        // revoked it without grace, and the message about that has not arrived.
        Outcome::Gone if attempt.is_held() => {
            hit(Mark::GoneReply);
            end(turn, counter, LostReason::Revoked, turn.now.us());
        }
        // A store must not answer this to a request that queues. The next attempt of a local queue would begin at once, and
        // get the same answer.
        Outcome::Busy { .. } if attempt.wait != Wait::No && is_waiting => {
            attempt.phase = Phase::Queued { next_us: turn.now.us() + RETRY_US };
        }
        Outcome::Busy { .. } if upgrade::tries_again(attempt, answer.now_us, turn.now.us()) => {}
        Outcome::Busy { .. } => finish(turn, counter, Verdict::Busy),
        Outcome::Gone => {
            hit(Mark::GoneReply);
            finish(turn, counter, Verdict::Again);
        }
        Outcome::Full => finish(turn, counter, Verdict::Failed(full())),
        Outcome::Refused(refusal) if is_waiting => refused(turn, counter, refusal, answer.highest),
        _ => {} // See `to_acquire`. A refused re-check of a grant means nothing: the next renewal says the same.
    }
}

fn accept_granted_reply(turn: &mut Turn<'_>, counter: u64, (answer, since_us): (&Answer, u64)) {
    let Outcome::Granted { token, left_us, range } = answer.outcome else { return };
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    if matches!(attempt.phase, Phase::Queued { .. }) {
        hit(Mark::RecheckGranted);
    }
    let from_us = if is_on(Mutant::P12FromReceipt) { turn.now.us() } else { since_us };
    let left_us = attempt.left_us(token, from_us, left_us);
    // Less than a whole lease: the message or the reply that brought the grant was lost.
    let claim = if left_us < attempt.terms.lease_us() { Claim::Due } else { Claim::Done };
    if claim == Claim::Due && !attempt.may_enter_on_a_claim(left_us) && !attempt.is_held() {
        return claim_first(turn, counter, (token, range), from_us + left_us);
    }
    let others = Others { level: answer.contention, said_us: answer.now_us };
    enter(turn, counter, Entering { token, range, term: Term::of(from_us, left_us), claim, others });
}

fn accept_place(turn: &mut Turn<'_>, counter: u64, answer: &Answer) {
    let Outcome::Queued { ticket, left_us, joined } = answer.outcome else { return };
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let is_first = attempt.ticket.is_none();
    let is_back = joined == Joined::Now && !is_first;
    if condition::is_unsure(attempt, ticket, joined) {
        attempt.in_flight = None;
        return condition::wake_unsure(turn, counter);
    }
    attempt.latest = answer.highest;
    attempt.ticket = Some(ticket);
    let (lease_ms, name, queue) = (attempt.terms.lease_ms, attempt.name.clone(), attempt.queue());
    let has_holder = attempt.terms.take.kind.has_holders();
    if attempt.only_tries_to_upgrade() && !attempt.is_held() {
        // The reply to an acquire from before.
        attempt.in_flight = None;
        attempt.phase = Phase::Asking { next_us: turn.now.us(), usual_us: turn.now.us() };
        return;
    }
    if let Phase::Held(holding) = &attempt.phase {
        hit(Mark::QueuedWhileHeld);
        // The grant lapsed, and a late re-check put the same ID into the queue again.
        turn.ledger.effects.end_hold(&holding.hold, LostReason::Superseded);
        attempt.phase = Phase::Queued { next_us: turn.now.us() };
        return give_back(turn, counter);
    }
    // A caller that waits for longer may have come while the store was asked.
    let outlives_sent_deadline =
        queue.and_then(|queue| turn.ledger.queues.get(queue)).is_some_and(|queue| queue.outlives_sent_deadline());
    let next_us = match outlives_sent_deadline && !is_on(Mutant::P21ShortLimit) {
        true => turn.now.us(),
        false => turn.ledger.next_recheck_us(lease_ms, turn.now.us()),
    };
    turn.ledger.set_phase(counter, Phase::Queued { next_us });
    if is_first {
        turn.ledger.effects.event(|| Event::Waits { name: name.clone() });
        condition::tell_queued(turn, counter);
    }
    if is_back {
        hit(Mark::RecheckReentered);
        rally(turn, &name, counter);
    }
    if let Some(state) = turn.ledger.names.get_mut(&name) {
        state.waiter = counter;
    }
    // The store has more to settle (P34): a re-check settles as well. The end of the first lease may be an hour away.
    let is_more = answer.rest == Rest::More && !is_on(Mutant::P34WaiterForgetsMore);
    let left_us = if is_more { 0 } else { left_us };
    if is_more || left_us > 0 || has_holder {
        turn.ledger.watch(&name, answer.highest, turn.now.us(), left_us, WatchAction::Recheck);
    }
}

/// Leaves a waiter where it is after an answer that is older than what is known. If the next re-check were due, a store
/// whose tokens have fallen would be asked again and again without a pause.
fn put_off(attempt: &mut Attempt, now_us: u64) {
    hit(Mark::OlderAnswer);
    if let Phase::Queued { next_us } = &mut attempt.phase {
        *next_us = (*next_us).max(now_us + RETRY_US);
    }
}

/// Repeats an acquire without an answer, or fails.
fn retry(turn: &mut Turn<'_>, counter: u64, fault: Fault) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let is_queued = match attempt.phase {
        Phase::Asking { .. } => false,
        Phase::Queued { .. } => true,
        Phase::Held(_) | Phase::Ended { .. } | Phase::Claiming { .. } | Phase::Returning(_) => return,
    };
    match (fault, attempt.wait) {
        (Fault::Gone(error) | Fault::Undecided(error) | Fault::Damaged(error), Wait::No) => {
            fail(turn, counter, error.may_act());
        }
        // The nodes that reply are there, and the others are connected again in a moment.
        (Fault::Undecided(_), _) => attempt.set_next(turn.now.us() + RETRY_US),
        (Fault::Gone(_), _) => attempt.set_next(turn.now.us()),
        (Fault::Damaged(error), _) => match attempt.note_damaged(&error) {
            Some(pause_us) => attempt.set_next(turn.now.us() + pause_us),
            None => fail(turn, counter, error.may_act()),
        },
        // A full server refuses new entries, but never a hand-over: a settle makes the one that this re-check wanted.
        (Fault::NoMemory(_), _) if is_queued => {
            hit(Mark::MemoryFullSettle);
            let (name, token, lease_ms) = (attempt.name.clone(), attempt.latest, attempt.terms.lease_ms);
            let next_us = turn.ledger.next_recheck_us(lease_ms, turn.now.us());
            turn.ledger.set_next(counter, next_us);
            turn.ledger.watch(&name, token, turn.now.us(), 0, WatchAction::Settle);
        }
        (Fault::NoMemory(error), _) => {
            hit(Mark::MemoryFullRefused);
            fail(turn, counter, error);
        }
        (Fault::Refused(error), _) => fail(turn, counter, error),
    }
}
