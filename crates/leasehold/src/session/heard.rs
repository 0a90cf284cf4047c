//! What the session makes of the answers that it hears: of every answer, and of those to an acquire. (Of pushed grants and
//! renewals: `grants.rs`. Of releases and leaves: `returns.rs`.)
//!
//! Two statements about one id can arrive in either order: the reply that says QUEUED and the push that says GRANTED come
//! by different ways. Each carries the highest token granted when it was made, and the larger one is the later (P3); on a
//! tie the grant is, because it is that token.

use leasehold_spec::limits::{NOT_AFTER_MAX_US, QUEUE_MAX};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, GrantId, Joined, Name, Outcome, Rest};

use super::attempt::{Asked, Attempt, Claim, Phase, Verdict};
use super::bounds::RETRY_US;
use super::grants::Entering;
use super::state::State;
use super::terms::Wait;
use super::watch::Then;
use crate::clock::{Sample, Term};
use crate::error::{Error, ErrorKind, LostReason};
use crate::store::Fault;

/// What became of a request.
pub(crate) type Heard = Result<Answer, Fault>;

impl State {
    /// What every answer says, whatever it answers. Answers our moment from which on counts what it says to be left: that
    /// before its sending (P12), or an earlier one if the server's clock has been set forward since it was made.
    pub(crate) fn note(&mut self, name: &Name, answer: &Answer, sent_us: u64, heard_us: u64) -> u64 {
        let since_us = self.note_time(answer, sent_us, heard_us);
        if let Some(slot) = self.slots.get_mut(name) {
            slot.guess = answer.contention;
        }
        if let Some(claim_ms) = answer.handed_claim_ms {
            // Who handed over looks once when the claim has ended: the receiver may be frozen or dead (P7).
            self.watch(name, answer.highest, heard_us, claim_ms * 1000, Then::Look);
        }
        if answer.rest == Rest::More {
            self.watch(name, answer.highest, heard_us, 0, Then::Settle);
        }
        if let Outcome::Revoking { left_us } = answer.outcome {
            // The waiters that were notified may be gone by then. The client that revoked looks as well (P10).
            self.watch(name, answer.highest, heard_us, left_us, Then::Look);
            self.look_behind(name, heard_us, left_us);
        }
        since_us
    }

    /// The same for an answer that says nothing new about the name.
    pub(crate) fn note_time(&mut self, answer: &Answer, sent_us: u64, heard_us: u64) -> u64 {
        self.contact.replied(heard_us);
        let sample = Sample { sent_us, heard_us, server_us: answer.now_us };
        if answer.now_us != 0 {
            self.sample(sample);
        }
        sent_us.saturating_sub(self.clock.set_forward_since(&sample))
    }

    /// What a pair of clocks says: how long the way is, and whether the server's clock was set.
    pub(crate) fn sample(&mut self, sample: Sample) {
        // A stop of this process is no property of the way: one that slept for an hour would ask for claims of as long.
        let trip_us = sample.heard_us.saturating_sub(sample.sent_us).min(NOT_AFTER_MAX_US);
        self.rtt_us = if self.rtt_us == 0 { trip_us } else { (7 * self.rtt_us + trip_us) / 8 };
        let Some(jump_us) = self.clock.observe(sample) else { return };
        hit(Mark::JumpTakenOff);
        // The server's clock went ahead: every lease on it ends that much earlier. What is left is shortened now, and
        // asked for at once.
        for attempt in self.attempts.values_mut() {
            if let Phase::Held(holding) = &mut attempt.phase {
                holding.hold.shorten(jump_us);
                holding.run.shorten(jump_us);
                if holding.renew_us != u64::MAX {
                    holding.renew_us = 0;
                }
            }
        }
        let all: Vec<u64> = self.attempts.keys().copied().collect();
        all.into_iter().for_each(|counter| self.arm(counter));
    }

    /// The answer to an acquire, first or repeated.
    pub(crate) fn heard_acquire(&mut self, name: &Name, id: GrantId, asked: &Asked, heard: Heard) {
        let heard_us = self.world.now_us();
        let heard = self.hear(asked, heard).and_then(|answer| of_acquire(answer, asked));
        let (counter, last_serial) = (id.counter, self.last_serial());
        let Some(attempt) = self.attempts.get_mut(&counter).filter(|attempt| attempt.id == id) else {
            // It was closed, and carried out all the same: a script that the server had forgotten is sent a second time,
            // and that can come behind the leave.
            match heard {
                Ok(Answer { outcome: Outcome::Granted { left_us, .. }, .. }) => {
                    hit(Mark::GhostAnswer);
                    self.return_ghost(name.clone(), id, heard_us, left_us);
                }
                Ok(Answer { outcome: Outcome::Queued { .. }, .. }) => {
                    hit(Mark::GhostAnswer);
                    self.return_ghost(name.clone(), id, heard_us, self.claim_ms() * 1000);
                }
                _ => {}
            }
            return;
        };
        let is_latest = attempt.unask(asked);
        attempt.tries.heard(asked.serial, last_serial);
        if heard.is_ok() {
            attempt.damaged = 0;
        }
        match &heard {
            Err(Fault::Gone(_) | Fault::Damaged(_) | Fault::Undecided(_)) => attempt.tries.gone(),
            _ => attempt.tries.answered(),
        }
        match heard {
            Ok(answer) => {
                let since_us = self.note(name, &answer, asked.sent_us, heard_us);
                self.acquire_says(counter, since_us, heard_us, name, &answer);
            }
            // The lane may not have sent it, so this fault says nothing about the store: the session's link asks.
            Err(Fault::Undecided(_)) if is_latest && self.may_be_unsent(asked) => {
                self.left_alone(counter);
                self.give_lane_up();
            }
            Err(fault) if is_latest => self.acquire_failed(counter, heard_us, fault),
            Err(_) => {}
        }
        self.arm(counter);
    }

    fn acquire_says(&mut self, counter: u64, since_us: u64, heard_us: u64, name: &Name, answer: &Answer) {
        let Some(attempt) = self.attempts.get(&counter) else { return };
        if matches!(attempt.phase, Phase::Returning(_) | Phase::Ended { .. }) {
            hit(Mark::AnswerToReturning);
            // Given up meanwhile: whatever this grants, the leave behind it takes back.
            if matches!(answer.outcome, Outcome::Granted { .. } | Outcome::Queued { .. }) {
                self.there_behind_a_leave(counter, answer.now_us, heard_us);
            }
            return;
        }
        match answer.outcome {
            Outcome::Granted { token, .. } if token < attempt.latest => self.not_at_once(counter, heard_us),
            Outcome::Granted { .. } => self.granted(counter, since_us, heard_us, answer),
            Outcome::Queued { .. } if !attempt.believes(answer.highest) => self.not_at_once(counter, heard_us),
            Outcome::Queued { .. } => self.queued(counter, heard_us, name, answer),
            Outcome::Late => {
                hit(Mark::ToldLate);
                self.await_repetition(counter, heard_us);
                self.set_next(counter, heard_us); // Definite, and the clock is anchored anew: ask again.
            }
            // A look behind a grant that was pushed meanwhile. We have not given it back: somebody revoked it, without
            // grace, and the word of that has not come.
            Outcome::Gone if attempt.is_held() => {
                hit(Mark::ToldGone);
                self.end(counter, LostReason::Revoked, heard_us);
            }
            // No answer to one who queues. In a line the next attempt would begin at once, and hear the same.
            Outcome::Busy { .. }
                if attempt.wait != Wait::No && matches!(attempt.phase, Phase::Asking { .. } | Phase::Queued { .. }) =>
            {
                self.set_phase(counter, Phase::Queued { next_us: heard_us + RETRY_US });
            }
            Outcome::Busy { .. } => self.finish(counter, Verdict::Busy),
            Outcome::Gone => {
                hit(Mark::ToldGone);
                self.finish(counter, Verdict::Again);
            }
            Outcome::Full => self.finish(counter, Verdict::Failed(full())),
            // See `of_acquire`.
            _ => {}
        }
    }

    fn granted(&mut self, counter: u64, since_us: u64, heard_us: u64, answer: &Answer) {
        let Outcome::Granted { token, left_us, range } = answer.outcome else { return };
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        if matches!(attempt.phase, Phase::Queued { .. }) {
            hit(Mark::LookGranted);
        }
        let from_us = if is_on(Mutant::P12FromReceipt) { heard_us } else { since_us };
        let left_us = attempt.left_us(token, from_us, left_us);
        // Not a whole lease: a grant whose push or whose answer was lost.
        let claim = if left_us < attempt.terms.lease_us() { Claim::Due } else { Claim::Done };
        let (term, level, said_us) = (Term::of(from_us, left_us), answer.contention, answer.now_us);
        if claim == Claim::Due && !attempt.may_enter_on_a_claim(left_us) && !attempt.is_held() {
            self.claim_first(counter, heard_us, (token, range), from_us + left_us);
            return;
        }
        self.enter(counter, heard_us, Entering { token, range, term, claim, level, said_us });
    }

    fn queued(&mut self, counter: u64, heard_us: u64, name: &Name, answer: &Answer) {
        let Outcome::Queued { ticket, left_us, joined } = answer.outcome else { return };
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let re_entered = joined == Joined::Now && attempt.ticket.is_some();
        attempt.latest = answer.highest;
        attempt.ticket = Some(ticket);
        let lease_ms = attempt.terms.lease_ms;
        if let Phase::Held(holding) = &attempt.phase {
            hit(Mark::QueuedWhileHeld);
            // The grant lapsed, and a late look of ours put the same id into the queue again.
            self.words.lost(&holding.hold, LostReason::Superseded);
            attempt.phase = Phase::Queued { next_us: heard_us };
            self.give_back(counter, heard_us);
            return;
        }
        let next_us = match self.is_told_short(counter) {
            true => heard_us,
            false => self.next_look_us(lease_ms, heard_us),
        };
        self.set_phase(counter, Phase::Queued { next_us });
        if re_entered {
            hit(Mark::LookReentered);
            self.look_at_once(name, counter, heard_us);
        }
        if let Some(slot) = self.slots.get_mut(name) {
            slot.waiter = counter;
        }
        self.watch(name, answer.highest, heard_us, left_us, Then::Look);
    }

    fn acquire_failed(&mut self, counter: u64, now_us: u64, fault: Fault) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let is_waiting = matches!(attempt.phase, Phase::Queued { .. });
        match (fault, attempt.wait, &attempt.phase) {
            (_, _, Phase::Held(_) | Phase::Ended { .. } | Phase::Claiming { .. } | Phase::Returning(_)) => {}
            (Fault::Gone(error) | Fault::Undecided(error), Wait::No, _) => self.fail(counter, error.may_act(), now_us),
            // The nodes that answer are there, and those that do not are connected again: in a moment.
            (Fault::Undecided(_), ..) => self.set_next(counter, now_us + RETRY_US),
            (Fault::Gone(_), ..) => self.set_next(counter, now_us),
            (Fault::Damaged(error), Wait::No, _) => self.fail(counter, error.may_act(), now_us),
            (Fault::Damaged(error), ..) => match attempt.damaged_again() {
                Some(pause_us) => self.set_next(counter, now_us + pause_us),
                None => self.fail(counter, error.may_act(), now_us),
            },
            (Fault::NoMemory(_), ..) if is_waiting => {
                hit(Mark::MemoryFullSettle);
                // New entries are refused then, hand-overs never: a settle makes the hand-over that this look wanted.
                let (name, lease_ms) = (attempt.name.clone(), attempt.terms.lease_ms);
                let token = attempt.latest;
                let next_us = self.next_look_us(lease_ms, now_us);
                self.set_phase(counter, Phase::Queued { next_us });
                self.watch(&name, token, now_us, 0, Then::Settle);
            }
            (Fault::NoMemory(error), ..) => {
                hit(Mark::MemoryFullRefused);
                self.fail(counter, error, now_us);
            }
            (Fault::Refused(error), ..) => self.fail(counter, error, now_us),
        }
    }

    /// A look that had to re-enter the queue means that the store dropped us: the others of that name look too (P15).
    fn look_at_once(&mut self, name: &Name, except: u64, now_us: u64) {
        match self.slots.get_mut(name) {
            // Nobody else: after a failover each of ten thousand names re-enters, and none is worth a look at all of them.
            Some(slot) if slot.attempts <= 1 => return,
            // The others, looking because of this one, find the same: once is enough.
            Some(slot) if slot.rallied_us + RALLY_US < now_us => slot.rallied_us = now_us,
            _ => return,
        }
        let others: Vec<u64> = self
            .attempts
            .iter()
            .filter(|(counter, a)| **counter != except && a.name == *name && matches!(a.phase, Phase::Queued { .. }))
            .map(|(counter, _)| *counter)
            .collect();
        hit(Mark::Rallied);
        for counter in others {
            self.set_next(counter, now_us);
            self.arm(counter);
        }
    }

    /// An answer that is not believed, being older than what was heard since, leaves its waiter where it was. Were that
    /// "due", as with a store whose tokens have fallen, it would ask again in the same breath, and again.
    fn not_at_once(&mut self, counter: u64, now_us: u64) {
        hit(Mark::OlderAnswer);
        if let Some(Attempt { phase: Phase::Queued { next_us }, .. }) = self.attempts.get_mut(&counter) {
            *next_us = (*next_us).max(now_us + RETRY_US);
        }
    }
}

/// Between two calls to all waiters of a name to look.
const RALLY_US: u64 = 100_000;

pub(crate) fn full() -> Error {
    let message =
        format!("the queue is full ({QUEUE_MAX} waiters), and nothing was queued: try again later, or split the name");
    Error::new(ErrorKind::Full, message)
}

/// The answer to something else: one got lost on the way, and each request on this link hears that of the one behind it
/// from now on. None of them can be believed, this one least; it is asked again on another link.
fn of_acquire(answer: Answer, asked: &Asked) -> Result<Answer, Fault> {
    let is_one = matches!(
        answer.outcome,
        Outcome::Granted { .. }
            | Outcome::Queued { .. }
            | Outcome::Busy { .. }
            | Outcome::Gone
            | Outcome::Late
            | Outcome::Full
    );
    if is_one {
        return Ok(answer);
    }
    asked.link.close();
    let message =
        "the store answered a request that was not made: is a proxy in between that drops or repeats answers?";
    Err(Fault::Gone(Error::new(ErrorKind::Unreachable, message)))
}
