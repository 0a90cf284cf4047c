//! What is due: the one place that decides what the session's thread sends, and when.

use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Acquire, GrantId, Hears, Name, Op, Patience, Place, Token};

use super::attempt::{Asked, Attempt, Phase};
use super::batches::Batch;
use super::state::{State, Wake};
use super::terms::Wait;
use super::window::Kind;
use crate::store::Link;

/// Something to send.
pub(crate) enum Errand {
    Return { counter: u64, name: Name, op: Op, asked: Asked },
    Renew(Batch),
    Reserve(Reserving),
    Look { id: GrantId, name: Name, op: Op, asked: Asked },
    Settle { name: Name, asked: Asked },
}

pub(crate) struct Reserving {
    pub(crate) counter: u64,
    pub(crate) name: Name,
    /// The token of the grant.
    pub(crate) grant: Token,
    pub(crate) op: Op,
    pub(crate) asked: Asked,
}

/// What is due of one attempt.
#[expect(clippy::large_enum_variant, reason = "it lives for a moment, and a box would be an allocation for each")]
enum Due {
    Errand(Errand),
    /// It waits for its turn: those of the lowest rank come first. At `until_us` something else is due of it.
    Turn {
        kind: Kind,
        rank: u64,
        until_us: u64,
    },
}

impl State {
    /// Everything that is due, in the order of P11: what goes back, what is renewed (the earliest end first), who looks.
    pub(crate) fn errands(&mut self, now_us: u64) -> Vec<Errand> {
        let reach = self.reach();
        self.tell_impatient(now_us);
        self.arm_overdue(now_us);
        let (mut errands, mut others, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        while let Some((at_us, counter)) = self.alarms.pop(now_us) {
            // Of an attempt that is over, or has an earlier one since: kept, it would be set anew each time.
            let rings = |attempt: &&mut Attempt| attempt.alarm_us == at_us;
            let Some(attempt) = self.attempts.get_mut(&counter).filter(rings) else { continue };
            attempt.alarm_us = u64::MAX;
            if attempt.due_us(reach) <= now_us {
                match self.due(counter, now_us) {
                    Some(Due::Errand(errand)) => others.push(errand),
                    Some(Due::Turn { kind, rank, until_us }) => {
                        self.windows.wait(kind, rank, counter);
                        waiting.push((counter, until_us));
                        continue;
                    }
                    None => {}
                }
            }
            self.arm_after(counter, now_us);
        }
        self.look_where_a_watch_ended(now_us, &mut others);
        self.send_due(Kind::Return, now_us, |state, counter| {
            state.due_return(counter, now_us).map(|errand| errands.push(errand))
        });
        self.send_renewals(now_us, &mut errands);
        errands.append(&mut others);
        self.send_due(Kind::Look, now_us, |state, counter| {
            state.due_look(counter, now_us).map(|errand| errands.push(errand))
        });
        for (counter, until_us) in waiting {
            // Whose turn has come has its alarm, or that of its batch.
            let waits = |attempt: &Attempt| attempt.alarm_us == u64::MAX && attempt.asked.is_none();
            if until_us < u64::MAX && self.attempts.get(&counter).is_some_and(waits) {
                self.set_alarm(counter, until_us);
            }
        }
        errands
    }

    /// Sends what waits for its turn, as far as there is room. The rest waits for answers.
    fn send_due(&mut self, kind: Kind, now_us: u64, mut send: impl FnMut(&mut Self, u64) -> Option<()>) {
        let mut room = self.windows.room(kind);
        while room > 0 {
            let Some(counter) = self.windows.next(kind) else { return };
            if send(self, counter).is_some() {
                self.windows.sent(kind);
                room -= 1;
            }
            self.arm_after(counter, now_us);
        }
    }

    /// So many requests of this kind have their answers, or will have none.
    pub(crate) fn ended(&mut self, kind: Kind, count: usize) {
        self.windows.ended(kind, count);
        if self.windows.is_due() || self.windows.may_settle() {
            self.wake = Wake::Now;
        }
    }

    /// Sets the next alarm. What waits for a link has none: attaching wakes every attempt.
    pub(crate) fn arm_after(&mut self, counter: u64, now_us: u64) {
        let reach = self.reach();
        let Some(due_us) = self.attempts.get(&counter).map(|attempt| attempt.due_us(reach)) else { return };
        if due_us < u64::MAX {
            // What is still due could not be sent: not again in the same turn.
            self.set_alarm(counter, due_us.max(now_us + 1_000));
        }
    }

    fn set_alarm(&mut self, counter: u64, at_us: u64) {
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.alarm_us = at_us;
        self.alarms.set(at_us, counter);
    }

    fn due(&mut self, counter: u64, now_us: u64) -> Option<Due> {
        let overdue = |asked: &mut Asked| asked.until_us <= now_us;
        let unanswered = self.attempts.get_mut(&counter)?.asked.take_if(overdue);
        if let Some(asked) = unanswered {
            self.doubt(&asked.link);
            self.unanswered(counter, now_us);
        }
        let attempt = self.attempts.get(&counter)?;
        let renewal = |until_us| Some(Due::Turn { kind: Kind::Renewal, rank: until_us, until_us });
        match &attempt.phase {
            Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. } if attempt.patience_us() <= now_us => {
                self.give_up_waiting(counter, now_us);
                self.return_turn(counter, now_us)
            }
            Phase::Asking { .. } if attempt.wait == Wait::No && self.home().is_none() => {
                let error = self.away_for(attempt);
                self.fail(counter, error, now_us);
                None
            }
            Phase::Asking { .. } | Phase::Queued { .. } => self.look_turn(counter, now_us),
            Phase::Claiming { until_us, .. } if *until_us <= now_us => {
                self.lapse(counter, now_us);
                self.look_turn(counter, now_us)
            }
            Phase::Claiming { until_us, .. } => renewal(*until_us),
            Phase::Held(holding) if holding.hold.valid_until_us() <= now_us => {
                hit(Mark::ValidityOver);
                self.words.expired(&holding.hold, now_us);
                self.give_back(counter, now_us);
                self.return_turn(counter, now_us)
            }
            Phase::Held(holding) if holding.is_kept_no_longer(now_us) => {
                self.give_back(counter, now_us);
                self.return_turn(counter, now_us)
            }
            Phase::Held(holding) if holding.run.wants_more() && self.home().is_some() => {
                self.due_reserve(counter, now_us).map(Due::Errand)
            }
            Phase::Held(holding) => renewal(holding.hold.valid_until_us()),
            // The store has ended what was left: nothing goes back, unless an old acquire may yet be carried out.
            Phase::Ended { .. } => {
                self.give_back(counter, now_us);
                self.return_turn(counter, now_us)
            }
            Phase::Returning(_) => self.return_turn(counter, now_us),
        }
    }

    /// What looks waits in the order in which it fell due.
    fn look_turn(&self, counter: u64, now_us: u64) -> Option<Due> {
        let attempt = self.attempts.get(&counter)?;
        Some(Due::Turn { kind: Kind::Look, rank: now_us, until_us: attempt.patience_us() })
    }

    /// So does what goes back, until the store must have ended it by itself.
    fn return_turn(&mut self, counter: u64, now_us: u64) -> Option<Due> {
        let attempt = self.attempts.get_mut(&counter)?;
        let Phase::Returning(returning) = &mut attempt.phase else { return None };
        if returning.until_us <= now_us {
            hit(Mark::ReturnExpired);
            let caller = returning.caller.take();
            let error = self.silence().may_act();
            self.words.given_back(counter, caller, || Err(error));
            self.remove(counter);
            return None;
        }
        Some(Due::Turn { kind: Kind::Return, rank: now_us, until_us: returning.until_us })
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

    /// A pushed grant ended before we could claim it: back to the place in the queue.
    fn lapse(&mut self, counter: u64, now_us: u64) {
        hit(Mark::ClaimRanOut);
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.asked = None;
            attempt.phase = Phase::Queued { next_us: now_us };
        }
    }

    fn due_look(&mut self, counter: u64, now_us: u64) -> Option<Errand> {
        let link = self.home().cloned()?;
        let attempt = self.attempts.get(&counter)?;
        let (Phase::Asking { next_us, .. } | Phase::Queued { next_us }) = attempt.phase else { return None };
        let is_first = attempt.ticket.is_none();
        if attempt.asked.is_some() || next_us > now_us || (!is_first && is_on(Mutant::P15NoLook)) {
            return None;
        }
        let id = attempt.id;
        let (name, op, asked) = self.ask(counter, &link, now_us)?;
        self.attempts.get_mut(&counter)?.tries.left_to_thread();
        Some(Errand::Look { id, name, op, asked })
    }

    /// This look has left.
    pub(crate) fn has_looked(&mut self, counter: u64) {
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.tries.sent_by_thread();
        }
    }

    /// Notes an acquire that is about to be sent, and answers what to send.
    pub(crate) fn ask(&mut self, counter: u64, link: &Arc<dyn Link>, now_us: u64) -> Option<(Name, Op, Asked)> {
        let claim_ms = self.claim_ms();
        let terms = Arc::clone(&self.attempts.get(&counter)?.terms);
        let asked = self.asked(Arc::clone(link), &terms, now_us);
        let not_after_us = self.clock.not_after(now_us, u64::MAX);
        let attempt = self.attempts.get(&counter)?;
        let until_us = match (attempt.line, attempt.wait) {
            (Some(line), _) => self.told_limit_us(line),
            (None, Wait::Until { until_us }) => until_us,
            (None, Wait::No | Wait::ForEver) => u64::MAX,
        };
        let attempt = self.attempts.get_mut(&counter)?;
        let place = Place {
            claim_ms,
            limit_ms: (until_us != u64::MAX).then(|| until_us.saturating_sub(now_us) / 1000),
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
            range: attempt.range,
            not_after_us,
            patience: if attempt.wait == Wait::No { Patience::Try } else { Patience::Queue(place) },
            label: attempt.terms.label.to_string(),
        };
        attempt.tries.noted(link, not_after_us);
        attempt.asked = Some(asked.clone());
        Some((attempt.name.clone(), Op::Acquire(acquire), asked))
    }

    /// More tokens for a run. Nothing waits for its answer, so it is no request of the attempt: a renewal goes beside it.
    fn due_reserve(&mut self, counter: u64, now_us: u64) -> Option<Errand> {
        let link = self.home().cloned()?;
        let attempt = self.attempts.get_mut(&counter)?;
        let (id, name, terms) = (attempt.id, attempt.name.clone(), Arc::clone(&attempt.terms));
        let Phase::Held(holding) = &mut attempt.phase else { return None };
        let (grant, range) = (holding.run.grant(), holding.run.reserve());
        let op = Op::Reserve { id, token: grant, range };
        let asked = self.asked(link, &terms, now_us);
        Some(Errand::Reserve(Reserving { counter, name, grant, op, asked }))
    }

    fn due_return(&mut self, counter: u64, now_us: u64) -> Option<Errand> {
        let attempt = self.attempts.get(&counter)?;
        let Phase::Returning(returning) = &attempt.phase else { return None };
        if attempt.asked.is_some() || returning.next_us > now_us {
            return None;
        }
        // Behind the acquire that it ends, on the same connection: on another one it would overtake it.
        let follow = attempt.tries.follow().filter(|_| !is_on(Mutant::P11LeaveOvertakes));
        let link = Arc::clone(follow.or(self.home())?);
        let name = attempt.name.clone();
        let (op, asked) = self.ask_return(counter, link, now_us)?;
        Some(Errand::Return { counter, name, op, asked })
    }
}
