//! Renew: lengthening leases, many in one script, and claiming grants that a message brought.

use std::sync::Arc;

use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, From, Kind, LostHow, Name, Outcome, Renew};

use super::attempt::{Attempt, Phase};
use super::connections::Reply;
use super::effects::Verdict;
use super::grant::{Entering, Others, enter, lose, note_others};
use super::holding::{Claim, Holding};
use super::order::InFlight;
use super::release::finish;
use super::replies::note;
use super::turn::Turn;
use crate::clock::{Term, margin_us};
use crate::observe::Event;
use crate::session::agenda::window;
use crate::session::hold::Hold;
use crate::session::terms::{Renewal, Terms};

/// Renewals that are sent together.
pub(crate) struct Batch {
    number: u64,
    /// The kind of all its names.
    pub(crate) kind: Kind,
    /// The renewals, as the store gets them.
    pub(crate) renewals: Vec<(Name, Renew)>,
    /// Their attempts, in the same order.
    by: Vec<(u64, InFlight)>,
}

/// Makes the lease of a hold longer, if it is renewed. A renewal in flight asks for the old length, and its reply makes
/// another one due.
pub(crate) fn lengthen(turn: &mut Turn<'_>, hold: &Hold, lease_ms: u64) {
    let counter = hold.id.counter;
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.id == hold.id) else { return };
    if attempt.terms.renewal == Renewal::Never || lease_ms <= attempt.terms.lease_ms {
        return;
    }
    attempt.terms = Arc::new(Terms { lease_ms, ..Terms::clone(&attempt.terms) });
    if let Phase::Held(holding) = &mut attempt.phase {
        holding.budget.seal();
    }
    attempt.set_next(turn.now.us());
    turn.arm(counter);
}

/// Returns the renewals whose turn it is, as far as the window has room.
pub(crate) fn due_requests(turn: &mut Turn<'_>) -> Vec<Batch> {
    let mut batches = Vec::new();
    // A store has other scripts for mutexes than for pools.
    let mut open: Vec<OpenBatch> = Vec::new();
    let mut room = turn.ledger.agenda.windows.room(window::Kind::Renewal);
    while room > 0 {
        let Some(counter) = turn.ledger.agenda.windows.next(window::Kind::Renewal) else { break };
        let Some((renewal, request)) = due_request(turn, counter) else {
            turn.ledger.arm_after(counter, turn.server.links.reach(), turn.now.us());
            continue;
        };
        turn.ledger.agenda.windows.sent(window::Kind::Renewal);
        room -= 1;
        let kind = turn.ledger.names.guess(&renewal.0).kind;
        let at = open.iter().position(|batch| batch.kind == kind).unwrap_or(open.len());
        if at == open.len() {
            open.push(OpenBatch {
                kind,
                renewals: Vec::with_capacity(RENEW_BATCH),
                by: Vec::with_capacity(RENEW_BATCH),
            });
        }
        open[at].renewals.push(renewal);
        open[at].by.push((counter, request));
        if open[at].by.len() == RENEW_BATCH {
            batches.push(begin_batch(turn, open.swap_remove(at)));
        }
    }
    batches.extend(open.into_iter().map(|batch| begin_batch(turn, batch)));
    batches
}

/// Renewals of names of one kind, which become a batch.
struct OpenBatch {
    kind: Kind,
    renewals: Vec<(Name, Renew)>,
    by: Vec<(u64, InFlight)>,
}

fn begin_batch(turn: &mut Turn<'_>, OpenBatch { kind, renewals, by }: OpenBatch) -> Batch {
    let reach = turn.server.links.reach();
    let counters: Vec<u64> = by.iter().map(|(counter, _)| *counter).collect();
    let due_us = counters.iter().filter_map(|counter| Some(turn.ledger.attempts.get(counter)?.due_us(reach))).min();
    let number = turn.ledger.agenda.batches.begin(counters, due_us.unwrap_or(0));
    Batch { number, kind, renewals, by }
}

fn due_request(turn: &mut Turn<'_>, counter: u64) -> Option<((Name, Renew), InFlight)> {
    let link = Arc::clone(turn.server.links.home()?);
    let attempt = turn.ledger.attempts.get_mut(&counter).filter(|attempt| attempt.in_flight.is_none())?;
    let (token, until_us, next_us) = match &attempt.phase {
        Phase::Claiming { token, until_us, next_us, .. } => (*token, *until_us, *next_us),
        Phase::Held(holding) => (holding.budget.grant(), holding.hold.valid_until_us(), holding.renew_us),
        _ => return None,
    };
    if next_us > turn.now.us() {
        return None;
    }
    let Some(lease_ms) = length_ms(attempt, until_us, turn.now.us()) else {
        if let Phase::Held(holding) = &mut attempt.phase {
            holding.renew_us = u64::MAX;
        }
        return None;
    };
    let from = if attempt.terms.renewal == Renewal::Never { From::Grant } else { From::Now };
    let not_after_us = turn.server.clock.server_at(until_us, turn.now.us()).unwrap_or(0);
    let renew = Renew { id: attempt.id, token, from, lease_ms, not_after_us };
    let request = turn.server.request(link, attempt.terms.answer_within_us(), turn.ledger.ids.serial(), turn.now.us());
    attempt.in_flight = Some(request.clone());
    Some(((attempt.name.clone(), renew), request))
}

/// Returns the length to renew for; `None`: not at all any more.
fn length_ms(attempt: &Attempt, until_us: u64, now_us: u64) -> Option<u64> {
    let (lease_ms, granted_us) = match &attempt.phase {
        Phase::Held(Holding { claim: Claim::Done, .. }) if attempt.terms.renewal == Renewal::Never => return None,
        Phase::Held(holding) => (attempt.terms.lease_ms, holding.granted_us),
        _ => (attempt.terms.lease_ms, now_us),
    };
    let Renewal::For { hold_us } = attempt.terms.renewal else { return Some(lease_ms) };
    let left_ms = hold_us.saturating_sub(now_us.saturating_sub(granted_us)) / 1000;
    let lease_ms = lease_ms.min(left_ms);
    // The last piece of a longest hold. A renewal must never shorten what is granted, and one that gains no more than two
    // margins is useless: each third of the rest would be renewed once more, down to the last millisecond.
    let gains = now_us + lease_ms * 1000 > until_us + 2 * margin_us(attempt.terms.lease_us());
    gains.then_some(lease_ms)
}

/// Accepts the replies to a batch, one for each renewal.
pub(crate) fn accept_replies(turn: &mut Turn<'_>, batch: &Batch, replies: Vec<Reply>) {
    turn.ledger.agenda.batches.end(batch.number);
    turn.ledger.agenda.end_requests(window::Kind::Renewal, batch.by.len());
    for ((renewal, (counter, request)), reply) in batch.renewals.iter().zip(&batch.by).zip(replies) {
        accept_reply(turn, *counter, (renewal, request), reply);
    }
}

fn accept_reply(
    turn: &mut Turn<'_>,
    counter: u64,
    ((name, renew), request): (&(Name, Renew), &InFlight),
    reply: Reply,
) {
    let reply = turn.server.judge(&mut turn.ledger.agenda, request, reply, turn.now.us());
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    attempt.end_wait(request);
    if let Ok(answer) = &reply {
        attempt.order.passed(answer.now_us);
    }
    // A re-check behind the claim of a grant that had lapsed may have been granted anew: the fate of the first grant says
    // nothing about the second.
    let is_of_this_grant = attempt.token() == Some(renew.token);
    if !is_of_this_grant {
        hit(Mark::RenewalOfAnother);
    }
    // The usual renewal says nothing new about its name: no table has to be searched for it.
    let is_known = reply.as_ref().is_ok_and(|answer| attempt.knows(answer));
    match reply {
        Ok(answer) => {
            let since_us = match is_known {
                true => turn.server.note_time(turn.ledger, &answer, request.sent_us, turn.now.us()),
                false => note(turn, name, &answer, request.sent_us),
            };
            if is_of_this_grant {
                accept_answer(turn, counter, renew.lease_ms, (&answer, since_us));
            }
        }
        Err(_) if !is_of_this_grant => {}
        // Unknown is not lost: the renewal is repeated until the validity ends.
        Err(fault) => {
            hit(Mark::RenewalUnanswered);
            let failed = || Event::RenewalFailed { name: name.clone(), error: fault.error().to_string() };
            turn.ledger.effects.event(failed);
            let pause_us = match is_on(Mutant::P13RenewsOnce) {
                true => attempt.terms.lease_us(),
                false => attempt.terms.answer_within_us() / 2,
            };
            attempt.set_next(turn.now.us() + pause_us);
        }
    }
    turn.ask_again_if_missed(counter, request);
    let reach = turn.server.links.reach();
    if is_known && turn.ledger.attempts.get(&counter).is_some_and(Attempt::is_held) {
        turn.ledger.arm_alone(counter, reach);
    } else {
        turn.ledger.arm(counter, reach);
    }
}

fn accept_answer(turn: &mut Turn<'_>, counter: u64, asked_ms: u64, (answer, since_us): (&Answer, u64)) {
    let Some(attempt) = turn.ledger.attempts.get_mut(&counter) else { return };
    let Some(token) = attempt.token() else { return };
    let lease_us = attempt.terms.lease_us();
    let from_us = if is_on(Mutant::P12FromReceipt) { turn.now.us() } else { since_us };
    let said_us = if let Outcome::Renewed { left_us } = answer.outcome { left_us } else { 0 };
    let term = Term::of(from_us, attempt.left_us(token, from_us, said_us));
    let others = Others { level: answer.contention, said_us: answer.now_us };
    match (&mut attempt.phase, &answer.outcome) {
        (Phase::Held(holding), Outcome::Renewed { .. }) => {
            attempt.is_of_earlier_run = false;
            holding.hold.extend(&term);
            holding.budget.renewed(&term, lease_us, turn.server.rtt_us());
            holding.claim = Claim::Done;
            holding.renew_us = match attempt.terms.renewal {
                Renewal::Never => u64::MAX,
                // The lease was lengthened meanwhile, or this is the last piece of a longest hold: the next try knows.
                _ if asked_ms < attempt.terms.lease_ms => turn.now.us(),
                _ if !holding.is_in_use() => term.renew_us.min(holding.budget.refresh_us()),
                _ => turn.ledger.agenda.pace.plan(turn.now.us(), term.renew_us),
            };
            note_others(turn, counter, others);
        }
        (Phase::Claiming { range, .. }, Outcome::Renewed { .. }) => {
            let entering = Entering { token, range: *range, term, claim: Claim::Done, others };
            enter(turn, counter, entering);
        }
        (Phase::Held(_), Outcome::Lost { how }) => {
            hit(Mark::RenewalLost);
            lose(turn, counter, *how, answer.highest);
        }
        (Phase::Claiming { .. }, Outcome::Lost { how: LostHow::Revoked }) => {
            finish(turn, counter, Verdict::Again);
        }
        (Phase::Claiming { .. }, Outcome::Lost { .. }) => {
            hit(Mark::ClaimLost);
            attempt.latest = attempt.latest.max(answer.highest);
            attempt.phase = Phase::Queued { next_us: turn.now.us() };
        }
        (Phase::Held(_) | Phase::Claiming { .. }, Outcome::Late) => attempt.set_next(turn.now.us()),
        _ => {}
    }
}
