//! What is due: the one place that decides what the session's thread sends, and when.

use std::sync::Arc;

use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Acquire, From, GrantId, Hears, Name, Op, Patience, Place, Renew};

use super::attempt::{Asked, Attempt, Claim, Holding, Phase, Renewal, Verdict, Wait};
use super::bounds::ANSWER_MAX_US;
use super::clock::margin_us;
use super::state::State;
use super::watch::Then;
use crate::error::Lost;
use crate::store::Link;

/// Something to send.
pub(crate) enum Errand {
    Return { counter: u64, name: Name, op: Op, asked: Asked },
    Renew(Vec<Renewing>),
    Look { id: GrantId, name: Name, op: Op, asked: Asked },
    Settle { name: Name, asked: Asked },
}

pub(crate) struct Renewing {
    pub(crate) counter: u64,
    pub(crate) name: Name,
    pub(crate) renew: Renew,
    pub(crate) asked: Asked,
}

impl State {
    /// Everything that is due, in the order of P11: what goes back, what is renewed (the earliest end first), who looks.
    pub(crate) fn errands(&mut self, now_us: u64) -> Vec<Errand> {
        let reach = self.reach();
        let (mut returns, mut renewals, mut looks) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(counter) = self.alarms.pop(now_us) {
            let Some(attempt) = self.attempts.get_mut(&counter) else { continue };
            attempt.alarm_us = u64::MAX;
            if attempt.due_us(reach) <= now_us {
                match self.due(counter, now_us) {
                    Some(errand @ Errand::Return { .. }) => returns.push(errand),
                    Some(Errand::Renew(mut one)) => renewals.append(&mut one),
                    Some(errand) => looks.push(errand),
                    None => {}
                }
            }
            self.arm_after(counter, now_us);
        }
        renewals.sort_by_key(|one| one.renew.not_after_us);
        let mut errands = returns;
        while !renewals.is_empty() {
            let rest = renewals.split_off(renewals.len().min(RENEW_BATCH));
            errands.push(Errand::Renew(std::mem::replace(&mut renewals, rest)));
        }
        errands.append(&mut looks);
        let Some(home) = self.home().cloned() else { return errands };
        for (name, then) in self.ended_watches(now_us) {
            let look = if then == Then::Look { self.look_for(&name, now_us) } else { None };
            hit(if look.is_some() { Mark::WatchLooked } else { Mark::WatchSettled });
            errands.push(look.unwrap_or_else(|| {
                let asked = self.asked_within(Arc::clone(&home), ANSWER_MAX_US, now_us);
                Errand::Settle { name, asked }
            }));
        }
        errands
    }

    /// A look by one of our waiters for this name, if there is one with none under way.
    fn look_for(&mut self, name: &Name, now_us: u64) -> Option<Errand> {
        let waits = |a: &Attempt| matches!(a.phase, Phase::Queued { .. }) && a.asked.is_none() && a.name == *name;
        let known = self.slots.get(name)?.waiter;
        let counter = match self.attempts.get(&known).filter(|attempt| waits(attempt)) {
            Some(_) => known,
            // It went: seldom, so that looking at all of them is cheap enough.
            None => *self.attempts.iter().find(|(_, attempt)| waits(attempt))?.0,
        };
        self.set_next(counter, now_us);
        let look = self.due_look(counter, now_us);
        self.arm(counter);
        look
    }

    /// Sets the next alarm. What waits for a link has none: attaching wakes every attempt.
    fn arm_after(&mut self, counter: u64, now_us: u64) {
        let reach = self.reach();
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        let due_us = attempt.due_us(reach);
        if due_us < u64::MAX {
            // What is still due could not be sent: not again in the same turn.
            attempt.alarm_us = due_us.max(now_us + 1_000);
            self.alarms.set(attempt.alarm_us, counter);
        }
    }

    fn due(&mut self, counter: u64, now_us: u64) -> Option<Errand> {
        let overdue = |asked: &mut Asked| asked.until_us <= now_us;
        let unanswered = self.attempts.get_mut(&counter)?.asked.take_if(overdue);
        if let Some(asked) = unanswered {
            self.doubt(&asked.link);
            self.unanswered(counter, now_us);
        }
        let attempt = self.attempts.get(&counter)?;
        match &attempt.phase {
            Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. } if attempt.patience_us() <= now_us => {
                self.give_up_waiting(counter, now_us);
                self.due_return(counter, now_us)
            }
            Phase::Asking { .. } if attempt.wait == Wait::No && self.home().is_none() => {
                let error = self.away_for(attempt);
                self.fail(counter, error, now_us);
                None
            }
            Phase::Asking { .. } | Phase::Queued { .. } => self.due_look(counter, now_us),
            Phase::Claiming { until_us, .. } if *until_us <= now_us => {
                self.lapse(counter, now_us);
                self.due_look(counter, now_us)
            }
            Phase::Claiming { .. } => self.due_renewal(counter, now_us),
            Phase::Held(holding) if holding.hold.valid_until_us() <= now_us => {
                hit(Mark::ValidityOver);
                self.words.lost(&holding.hold, Lost::Expired);
                self.give_back(counter, now_us);
                self.due_return(counter, now_us)
            }
            Phase::Held(_) => self.due_renewal(counter, now_us),
            Phase::Ended { .. } => {
                self.forget(counter, now_us);
                None
            }
            Phase::Returning(_) => self.due_return(counter, now_us),
        }
    }

    /// A request found no answer in time: what it asked for counts as not given, and it is asked again.
    fn unanswered(&mut self, counter: u64, now_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        match attempt.phase {
            Phase::Asking { .. } if attempt.wait == Wait::No => {
                let error = self.silence().may_act();
                self.fail(counter, error, now_us);
            }
            _ => self.set_next(counter, now_us),
        }
    }

    fn give_up_waiting(&mut self, counter: u64, now_us: u64) {
        let Some(attempt) = self.attempts.get(&counter) else { return };
        hit(Mark::PatienceOver);
        // "Somebody else has it" only when the store's last word was that; otherwise nobody knows.
        let verdict = match attempt.phase {
            Phase::Asking { .. } => Verdict::Failed(self.away_for(attempt)),
            // Its last word was that we hold, and whether we still do it has not said.
            Phase::Claiming { .. } => Verdict::Failed(self.away().may_act()),
            _ => Verdict::Busy,
        };
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.tell(&mut self.words, verdict);
        self.give_back(counter, now_us);
    }

    /// A pushed grant ended before we could claim it: back to the place in the queue.
    fn lapse(&mut self, counter: u64, now_us: u64) {
        hit(Mark::ClaimRanOut);
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.asked = None;
            attempt.phase = Phase::Queued { next_us: now_us };
        }
    }

    /// The store has ended what was left: nothing goes back, unless an old acquire may yet be carried out.
    fn forget(&mut self, counter: u64, now_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        if let (Phase::Ended { token, .. }, true) = (&attempt.phase, attempt.tries.is_settled()) {
            let token = *token;
            self.ended_there(counter, token, now_us);
            return;
        }
        attempt.phase = Phase::Queued { next_us: now_us };
        self.give_back(counter, now_us);
    }

    fn due_look(&mut self, counter: u64, now_us: u64) -> Option<Errand> {
        let link = self.home().cloned()?;
        let attempt = self.attempts.get(&counter)?;
        let (Phase::Asking { next_us } | Phase::Queued { next_us }) = attempt.phase else { return None };
        let is_first = attempt.ticket.is_none();
        if attempt.asked.is_some() || next_us > now_us || (!is_first && is_on(Mutant::P15NoLook)) {
            return None;
        }
        let id = attempt.id;
        let (name, op, asked) = self.ask(counter, &link, now_us)?;
        Some(Errand::Look { id, name, op, asked })
    }

    /// Notes an acquire as sent, and answers what to send.
    pub(crate) fn ask(&mut self, counter: u64, link: &Arc<dyn Link>, now_us: u64) -> Option<(Name, Op, Asked)> {
        let claim_ms = self.claim_ms();
        let terms = Arc::clone(&self.attempts.get(&counter)?.terms);
        let asked = self.asked(Arc::clone(link), &terms, now_us);
        let not_after_us = self.clock.not_after(now_us, u64::MAX);
        let attempt = self.attempts.get_mut(&counter)?;
        let limit_ms = |until_us: u64| until_us.saturating_sub(now_us) / 1000;
        let place = Place {
            claim_ms,
            limit_ms: match attempt.wait {
                Wait::Until { until_us } => Some(limit_ms(until_us)),
                Wait::No | Wait::ForEver => None,
            },
            ticket: attempt.ticket,
            hears: Hears::Listens,
            order: attempt.terms.order,
        };
        if is_on(Mutant::P3NewIdOnRetry) && !attempt.tries.is_settled() {
            attempt.id.nonce = attempt.id.nonce.wrapping_add(1);
        }
        let acquire = Acquire {
            id: attempt.id,
            lease_ms: attempt.terms.lease_ms,
            not_after_us,
            patience: if attempt.wait == Wait::No { Patience::Try } else { Patience::Queue(place) },
            label: attempt.terms.label.to_string(),
        };
        attempt.tries.sent(link, not_after_us);
        attempt.asked = Some(asked.clone());
        Some((attempt.name.clone(), Op::Acquire(acquire), asked))
    }

    fn due_renewal(&mut self, counter: u64, now_us: u64) -> Option<Errand> {
        let link = self.home().cloned()?;
        let attempt = self.attempts.get(&counter)?;
        if attempt.asked.is_some() {
            return None;
        }
        let (token, until_us, claim, next_us, held_us) = match &attempt.phase {
            Phase::Claiming { token, until_us, next_us } => (*token, *until_us, Claim::Due, *next_us, 0),
            Phase::Held(Holding { hold, granted_us, renew_us, claim }) => {
                (hold.token, hold.valid_until_us(), *claim, *renew_us, now_us.saturating_sub(*granted_us))
            }
            _ => return None,
        };
        if next_us > now_us {
            return None;
        }
        let lease_ms = match attempt.terms.renewal {
            Renewal::Always => attempt.terms.lease_ms,
            Renewal::Never if claim == Claim::Due => attempt.terms.lease_ms,
            Renewal::Never => return self.stop_renewing(counter),
            Renewal::For { hold_us } => {
                let left_ms = hold_us.saturating_sub(held_us) / 1000;
                let lease_ms = attempt.terms.lease_ms.min(left_ms);
                // The last piece. A renewal must never shorten what is already granted; and one that wins no more than the
                // margins of two is for nothing: each third of what is left would be renewed once more, down to the
                // last millisecond.
                if now_us + lease_ms * 1000 <= until_us + 2 * margin_us(attempt.terms.lease_us()) {
                    return self.stop_renewing(counter);
                }
                lease_ms
            }
        };
        let from = if attempt.terms.renewal == Renewal::Never { From::Grant } else { From::Now };
        let not_after_us = self.clock.server_at(until_us, now_us).unwrap_or(0);
        let renew = Renew { id: attempt.id, token, from, lease_ms, not_after_us };
        let (name, terms) = (attempt.name.clone(), Arc::clone(&attempt.terms));
        let asked = self.asked(link, &terms, now_us);
        self.attempts.get_mut(&counter)?.asked = Some(asked.clone());
        Some(Errand::Renew(vec![Renewing { counter, name, renew, asked }]))
    }

    fn stop_renewing(&mut self, counter: u64) -> Option<Errand> {
        if let Phase::Held(holding) = &mut self.attempts.get_mut(&counter)?.phase {
            holding.renew_us = u64::MAX;
        }
        None
    }

    fn due_return(&mut self, counter: u64, now_us: u64) -> Option<Errand> {
        let attempt = self.attempts.get_mut(&counter)?;
        let Phase::Returning(returning) = &mut attempt.phase else { return None };
        if returning.until_us <= now_us {
            hit(Mark::ReturnExpired);
            let caller = returning.caller.take();
            let error = self.silence().may_act();
            self.words.given_back(caller, || Err(error));
            self.remove(counter);
            return None;
        }
        if attempt.asked.is_some() || returning.next_us > now_us {
            return None;
        }
        let attempt = self.attempts.get(&counter)?;
        let Phase::Returning(returning) = &attempt.phase else { return None };
        // Behind the acquire that it ends, on the same connection: on another one it would overtake it.
        let follow = attempt.tries.follow().filter(|_| !is_on(Mutant::P11LeaveOvertakes));
        let link = Arc::clone(follow.or(self.home())?);
        let op = returning.what.op(attempt.id);
        let (name, terms) = (attempt.name.clone(), Arc::clone(&attempt.terms));
        let asked = self.asked(link, &terms, now_us);
        let attempt = self.attempts.get_mut(&counter)?;
        attempt.asked = Some(asked.clone());
        if let Phase::Returning(returning) = &mut attempt.phase {
            returning.unheard += 1;
        }
        Some(Errand::Return { counter, name, op, asked })
    }
}
