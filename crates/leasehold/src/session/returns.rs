//! Giving back: what was held, waited for, or may yet be granted.
//!
//! A lease that nobody needs any more must not stay at the store until it runs out: others wait. So whatever ends an
//! attempt here (a guard, a dropped future, a refusal, the end of the session) goes through [`State::give_back`], and what
//! that begins is repeated until the store has answered, or could not have kept the lease for any longer (P13).
//!
//! Three schedules make that more than one request:
//! - an acquire without an answer may be carried out *after* the leave: that leave was not the last word (P14);
//! - a push, or an answer, for an attempt that is closed: a ghost. It is never believed, and given back;
//! - a failover brings back what was released: it is said again to the new run.

use std::sync::Arc;

use leasehold_spec::limits::{CLAIM_MIN_MS, LEASE_DEFAULT_MS, LEASE_MAX_MS, LOOK_MAX_MS, NOT_AFTER_MAX_US};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Answer, GrantId, Name, Op, Order, Outcome, Token, Was};

use super::attempt::{Asked, Attempt, GivenBack, Phase, Returning, Verdict};
use super::bounds::RETRY_US;
use super::ending::What;
use super::heard::Heard;
use super::state::State;
use super::terms::{Entry, KnownLine, Renewal, Terms, Wait};
use crate::error::{Error, LostReason};
use crate::store::{Fault, Link};

/// A lease that the store has said to be given back, until it must have ended anyway.
pub(crate) struct GivenUp {
    pub(crate) name: Name,
    pub(crate) id: GrantId,
    pub(crate) what: What,
    pub(crate) until_us: u64,
}

/// How many releases a session remembers.
const RELEASES: usize = 1024;
/// How many attempts a session may have for it to still chase ghosts: a rogue publisher must not fill the memory. It is as
/// many as may wait for one name; each is half a kilobyte.
const GHOSTS: usize = leasehold_spec::limits::QUEUE_MAX;

impl State {
    /// Ends an attempt that neither waits nor holds.
    pub(crate) fn finish(&mut self, counter: u64, verdict: Verdict) {
        let now_us = self.world.now_us();
        self.tell(counter, verdict);
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.ticket = None;
        }
        self.give_back(counter, now_us);
    }

    /// Ends an attempt by an error, and gives back whatever there may be of it.
    pub(crate) fn fail(&mut self, counter: u64, error: Error, now_us: u64) {
        self.tell(counter, Verdict::Failed(error));
        self.give_back(counter, now_us);
    }

    /// Tells whoever is behind an attempt: its caller, or all who wait in its line what is wrong. That it has to be asked
    /// for again they need not hear: the line does so.
    fn tell(&mut self, counter: u64, verdict: Verdict) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        match (attempt.line, verdict) {
            (Some(line), Verdict::Failed(error)) => self.tell_line(line, &error),
            (Some(_), _) => {}
            (None, verdict) => attempt.tell(&mut self.words, verdict),
        }
    }

    /// Makes an attempt one to give back, whatever it was.
    pub(crate) fn give_back(&mut self, counter: u64, now_us: u64) {
        self.begin_return(counter, now_us);
        self.arm(counter);
    }

    /// The same without its alarm, for a caller that sends the release itself: an alarm that is due now wakes the thread,
    /// and at each release that costs more than the release.
    pub(crate) fn begin_return(&mut self, counter: u64, now_us: u64) {
        self.go_on(counter, now_us);
        let is_whole = !self.has_parts();
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let mut cools_until_us = 0;
        let (token, used) = match &attempt.phase {
            Phase::Returning(_) => return,
            // The store has ended it already, all of it. Its alarm may not have rung yet.
            Phase::Ended { token, used, until_us } if *until_us <= now_us && attempt.tries.is_settled() && is_whole => {
                let (token, used) = (*token, *used);
                self.ended_there(counter, token, used, now_us);
                return;
            }
            Phase::Held(holding) => {
                let is_lost = holding.hold.why_lost().is_some_and(|why| why.is_expiry());
                self.words.lost(&holding.hold, LostReason::Released);
                let min_hold_us = attempt.terms.min_hold_us;
                if min_hold_us > 0 && !is_lost && holding.hold.keeps_min_hold() && !is_on(Mutant::P23ReleasesAtOnce) {
                    cools_until_us = holding.granted_us.saturating_add(min_hold_us);
                }
                (Some(holding.run.grant()), holding.hold.token)
            }
            Phase::Claiming { token, .. } => (Some(*token), *token),
            Phase::Ended { token, used, .. } => (Some(*token), *used),
            Phase::Asking { .. } | Phase::Queued { .. } => (None, Token::NONE),
        };
        let used = if is_on(Mutant::P19ForgetsUsed) { token.unwrap_or(used) } else { used };
        // While an acquire of it is unanswered the grant may have lapsed and been made anew, with a token that nobody here
        // has heard of. A release of the old one would find nothing and close the attempt.
        let what = match token {
            _ if cools_until_us > now_us => What::CoolDown { used, until_us: cools_until_us },
            Some(token) if attempt.tries.is_settled() => What::Release { token, used },
            Some(_) => {
                hit(Mark::LeaveForRelease);
                What::Leave { used }
            }
            None => What::Leave { used },
        };
        let nothing_is_there = token.is_none() && attempt.ticket.is_none() && attempt.tries.is_settled();
        if nothing_is_there {
            self.remove(counter);
            return;
        }
        // The longest that the store can keep it: a request carried out at its last moment, and a whole lease.
        let until_us = now_us + attempt.terms.lease_us() + NOT_AFTER_MAX_US;
        attempt.asked = None;
        attempt.phase = Phase::Returning(Returning::new(what, until_us, now_us));
        if let Some(token) = token {
            let name = attempt.name.clone();
            self.goes_back(&name, counter, token);
        }
    }

    /// Notes who stands in the way of this session's next request for a name ([`State::clear_the_way`]).
    fn goes_back(&mut self, name: &Name, counter: u64, token: Token) {
        let Some(slot) = self.slots.get_mut(name) else { return };
        let known = self.attempts.get(&slot.going_back).map(|attempt| attempt.latest);
        if known.is_none_or(|known| token > known) {
            slot.going_back = counter;
        }
    }

    /// Notes a release or a leave as sent, and answers what to send.
    pub(super) fn ask_return(&mut self, counter: u64, link: Arc<dyn Link>, now_us: u64) -> Option<(Op, Asked)> {
        let terms = Arc::clone(&self.attempts.get(&counter)?.terms);
        let asked = self.asked(link, &terms, now_us);
        let attempt = self.attempts.get_mut(&counter)?;
        let Phase::Returning(returning) = &mut attempt.phase else { return None };
        returning.unheard += 1;
        attempt.asked = Some(asked.clone());
        Some((returning.what.op(attempt.id, now_us), asked))
    }

    /// This request to give back has left: what is sent on its link from now on comes behind it.
    pub(crate) fn has_left(&mut self, counter: u64, asked: &Asked) {
        if let Some(Attempt { phase: Phase::Returning(returning), .. }) = self.attempts.get_mut(&counter) {
            returning.left = returning.left.max(asked.serial);
            returning.behind.drain(..).for_each(|behind| self.words.signal(behind));
        }
    }

    /// The store has ended the lease. A failover can bring it back all the same: a revocation may be among what it lost.
    pub(crate) fn ended_there(&mut self, counter: u64, token: Token, used: Token, now_us: u64) {
        let Some(attempt) = self.remove(counter) else { return };
        let until_us = now_us + attempt.terms.lease_us() + NOT_AFTER_MAX_US;
        let (name, id, what) = (attempt.name, attempt.id, What::Release { token, used });
        self.remember_release(GivenUp { name, id, what, until_us }, now_us);
    }

    /// The answer to a release or a leave.
    pub(crate) fn heard_return(&mut self, counter: u64, asked: &Asked, heard: Heard) {
        let heard_us = self.world.now_us();
        let heard = self.hear(asked, heard);
        if matches!(heard, Err(Fault::Undecided(_))) && self.may_be_unsent(asked) {
            return self.give_lane_up(); // As with an acquire: the session's link asks.
        }
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let is_latest = attempt.unask(asked);
        let name = attempt.name.clone();
        let Phase::Returning(returning) = &mut attempt.phase else { return };
        let answer = match heard {
            Ok(answer) => answer,
            Err(fault) if is_latest => return self.return_failed(counter, fault, heard_us),
            Err(_) => return,
        };
        returning.unheard = returning.unheard.saturating_sub(1);
        // Behind one that was never answered it proves nothing: that one may have given the lease back, and the record
        // remembers only the last who did (P3).
        let given_back = match answer.outcome {
            Outcome::NotHeld if returning.unheard == 0 => GivenBack::NotHeld,
            // A guard's: whoever leaves without one does not ask.
            Outcome::Left { was: Was::Absent } if returning.unheard == 0 => GivenBack::NotHeld,
            _ => GivenBack::Released,
        };
        self.words.given_back(counter, returning.caller.take(), || Ok(given_back));
        self.returned(counter, asked, heard_us, &answer);
        self.note(&name, &answer, asked.sent_us, heard_us);
        self.arm(counter);
    }

    /// A release or a leave without an answer is asked again, until the store must have ended the lease by itself.
    fn return_failed(&mut self, counter: u64, fault: Fault, now_us: u64) {
        if matches!(fault, Fault::Gone(_)) && is_on(Mutant::P13ReleaseOnce) {
            self.remove(counter);
            return;
        }
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let (told, pause_us) = match fault {
            Fault::Gone(_) => {
                hit(Mark::ReturnRepeated);
                (None, 0)
            }
            Fault::Damaged(error) => match attempt.damaged_again() {
                Some(pause_us) => (None, pause_us),
                // Damaged. It may yet be mended, or deleted: seldom, and without its caller.
                None => (Some(error.may_act()), LOOK_MAX_MS * 1000),
            },
            Fault::Undecided(_) => {
                hit(Mark::ReturnRepeated);
                (None, RETRY_US)
            }
            Fault::Refused(error) | Fault::NoMemory(error) => (Some(error), RETRY_US),
        };
        let Phase::Returning(returning) = &mut attempt.phase else { return };
        if let Some(error) = told {
            self.words.given_back(counter, returning.caller.take(), || Err(error));
        }
        self.set_next(counter, now_us + pause_us);
        self.arm(counter);
    }

    /// Closes an attempt that was given back, unless an older request of it may yet be carried out (P14).
    fn returned(&mut self, counter: u64, asked: &Asked, now_us: u64, answer: &Answer) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let (id, name, was_granted) = (attempt.id, attempt.name.clone(), attempt.latest > Token::NONE);
        let Phase::Returning(returning) = &mut attempt.phase else { return };
        let closed = match returning.what {
            // The usual release does not say the time: it closes what went before it on its own link.
            What::Release { .. } => attempt.tries.closed_by(asked, 0),
            What::Leave { .. } | What::CoolDown { .. } => {
                attempt.tries.closed_by(asked, answer.now_us) || is_on(Mutant::P14FirstLeave)
            }
        };
        // A leave that hands a grant on is a release by another name. So may be one that was never answered, where the next
        // one finds nothing: nobody knows which of the two has ended what there was. And a grant that we have heard of and
        // that is not there was ended by somebody else: by a revocation, which a failover can lose, too.
        let (what, until_us) = (returning.what, returning.until_us);
        let is_release = match answer.outcome {
            Outcome::Left { was: Was::Granted } => true,
            Outcome::Left { was: Was::Absent } => returning.unheard > 0 || was_granted,
            _ => matches!(what, What::Release { .. }),
        };
        let released = is_release.then_some(GivenUp { name, id, what, until_us });
        if !closed {
            hit(Mark::LeaveAgain);
            let wait_us = attempt.tries.until_us.saturating_sub(answer.now_us).min(NOT_AFTER_MAX_US);
            returning.what = what.of_any_grant();
            returning.next_us = match returning.note_answered(answer.now_us) {
                true => now_us,
                false => now_us + wait_us + 1_000,
            };
        } else {
            self.remove(counter);
        }
        // Closed or not: a failover can bring it back from now on.
        if let Some(released) = released {
            self.remember_release(released, now_us);
        }
    }

    /// Leaves again at once if the store says that an attempt which was given up waits or holds. Its acquire may have been
    /// carried out after the leave, on another link. Nobody enters by that attempt, and all others would wait for it.
    pub(crate) fn there_behind_a_leave(&mut self, counter: u64, said_us: u64, now_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let Phase::Returning(returning) = &mut attempt.phase else { return };
        // A request that is under way is judged by its answer.
        if returning.note_present(said_us) && attempt.asked.is_none() {
            returning.next_us = now_us;
        }
    }

    fn remember_release(&mut self, released: GivenUp, now_us: u64) {
        while self.released.front().is_some_and(|old| old.until_us <= now_us) || self.released.len() >= RELEASES {
            self.released.pop_front();
        }
        self.released.push_back(released);
    }

    pub(crate) fn return_ghost(&mut self, name: Name, id: GrantId, now_us: u64, left_us: u64) {
        if self.attempts.contains_key(&id.counter) || self.attempts.len() >= GHOSTS {
            return; // Its end ends it.
        }
        // While the store cannot be reached it is kept for as long as the grant can last; within bounds, as anybody can
        // publish.
        let left_us = left_us.clamp(CLAIM_MIN_MS * 1000, LEASE_MAX_MS * 1000);
        // It may have been held here once, and was given up because no answer came: how much of its range was used then is
        // forgotten with it.
        let what = What::Leave { used: Token::HIGHEST };
        self.insert_return(name, id, what, now_us + left_us + NOT_AFTER_MAX_US);
    }

    /// A release that was answered by a server that may not remember it: it is sent again (P13).
    pub(crate) fn return_again(&mut self, old: GivenUp) {
        hit(Mark::ReleaseSaidAgain);
        self.insert_return(old.name, old.id, old.what, old.until_us);
    }

    fn insert_return(&mut self, name: Name, id: GrantId, what: What, until_us: u64) {
        let terms = Terms {
            lease_ms: LEASE_DEFAULT_MS,
            renewal: Renewal::Never,
            order: Order::Relaxed,
            entry: Entry::OnClaim,
            sticky_us: 0,
            min_hold_us: 0,
            label: "".into(),
            line: KnownLine::default(),
        };
        let phase = Phase::Returning(Returning::new(what, until_us, 0));
        self.insert(Attempt::new(id, name, Arc::new(terms), Wait::No, phase));
    }
}
