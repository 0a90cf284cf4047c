//! What callers change: an attempt begins, is given up, or is given back.

use std::mem::take;
use std::sync::Arc;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, GrantId, Name, Op, Token};
use tokio::sync::oneshot;

use super::attempt::{Asked, Attempt, GivenBack, Phase, Renewal, Terms, Tries, Verdict, Wait};
use super::hold::Hold;
use super::state::{Stage, State, Wake};
use crate::error::{Error, Lost};
use crate::store::Link;

/// A request that the caller sends itself.
pub(crate) struct First {
    pub(crate) op: Op,
    pub(crate) asked: Asked,
    pub(crate) guess: Contention,
}

type Answer = oneshot::Receiver<Result<GivenBack, Error>>;

impl State {
    /// Registers an attempt, before anything is sent: the push may come before the answer. Answers what to send on
    /// `lane`; nothing when the thread has to send it, once the inbox is proved (P11).
    pub(crate) fn begin(
        &mut self,
        name: &Name,
        terms: &Arc<Terms>,
        wait: Wait,
        caller: oneshot::Sender<Verdict>,
        lane: Option<Arc<dyn Link>>,
        now_us: u64,
    ) -> (GrantId, Option<First>) {
        let id = self.new_id();
        let counter = id.counter;
        let may_send = self.home().is_some() || wait == Wait::No || is_on(Mutant::P11NoProof);
        let link = lane.or_else(|| self.home().cloned()).filter(|_| may_send);
        self.insert(Attempt {
            id,
            name: name.clone(),
            terms: Arc::clone(terms),
            wait,
            // Sent by the caller, right now; the thread looks when that found no answer.
            phase: Phase::Asking { next_us: if link.is_some() { u64::MAX } else { now_us } },
            tries: Tries::default(),
            latest: Token::NONE,
            ticket: None,
            caller: Some(caller),
            asked: None,
            damaged: 0,
            alarm_us: u64::MAX,
        });
        let first = link.and_then(|link| {
            let (_, op, asked) = self.ask(counter, &link, now_us)?;
            self.attempts.get_mut(&counter)?.tries.left_to_caller();
            Some(First { op, asked, guess: self.guess(name) })
        });
        if first.is_none() && wait == Wait::No {
            self.fail(counter, self.away(), now_us);
        }
        self.arm(counter);
        (id, first)
    }

    /// Nobody waits for the attempt any more: it is given up, whatever became of it (P16).
    pub(crate) fn abandon(&mut self, counter: u64) {
        hit(Mark::Abandoned);
        if is_on(Mutant::P16DropSilent) {
            self.remove(counter);
            return;
        }
        let (now_us, serial) = (self.world.now_us(), self.last_serial());
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.tries.sent_by_caller(serial);
        }
        self.give_back(counter, now_us);
    }

    /// The caller's own request will not be heard: the thread asks again where an answer is still wanted.
    pub(crate) fn left_alone(&mut self, counter: u64) {
        let (now_us, serial) = (self.world.now_us(), self.last_serial());
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.tries.sent_by_caller(serial);
        attempt.asked = None;
        if let Phase::Returning(returning) = &mut attempt.phase {
            returning.next_us = now_us;
        }
        self.arm(counter);
    }

    /// Begins to give a lease back. `None`: there is nothing of it left here.
    pub(crate) fn begin_release(
        &mut self,
        hold: &Hold,
        lane: Option<Arc<dyn Link>>,
        now_us: u64,
    ) -> Option<(Answer, Option<First>)> {
        let counter = hold.id.counter;
        let attempt = self.attempts.get(&counter).filter(|attempt| attempt.id == hold.id)?;
        if !matches!(attempt.phase, Phase::Held(_) | Phase::Ended { .. }) {
            return None;
        }
        // Known once the state is changed: the guard must not be valid while its release is under way.
        self.words.lost(hold, Lost::Released);
        self.begin_return(counter, now_us);
        let attempt = self.attempts.get(&counter)?;
        let (link, terms) = (attempt.tries.follow().cloned(), Arc::clone(&attempt.terms));
        let first = link.or(lane).or_else(|| self.home().cloned()).map(|link| self.asked(link, &terms, now_us));
        let attempt = self.attempts.get_mut(&counter)?;
        let Phase::Returning(returning) = &mut attempt.phase else { return None };
        let (tell, answer) = oneshot::channel();
        returning.caller = Some(tell);
        returning.unheard += u32::from(first.is_some());
        let op = returning.what.op(attempt.id);
        attempt.asked = first.clone();
        self.arm(counter);
        let guess = self.guess(&hold.name);
        Some((answer, first.map(|asked| First { op, asked, guess })))
    }

    /// A renewal under way asks for the old length: its answer makes this one due ([`State::heard_renew`]).
    pub(crate) fn lengthen(&mut self, hold: &Hold, lease_ms: u64) {
        let (counter, now_us) = (hold.id.counter, self.world.now_us());
        let Some(attempt) = self.attempts.get_mut(&counter).filter(|attempt| attempt.id == hold.id) else { return };
        if attempt.terms.renewal == Renewal::Never || lease_ms <= attempt.terms.lease_ms {
            return;
        }
        attempt.terms = Arc::new(Terms { lease_ms, ..Terms::clone(&attempt.terms) });
        self.set_next(counter, now_us);
        self.arm(counter);
    }

    /// Calls every attempt to look, renew or repeat, at once.
    pub(crate) fn look_at_everything(&mut self, now_us: u64) {
        let all: Vec<u64> = self.attempts.keys().copied().collect();
        for counter in all {
            self.set_next(counter, now_us);
            self.arm(counter);
        }
    }

    /// Rings at `at_us`; at once where nobody keeps the time any more.
    pub(crate) fn set_bell(&mut self, at_us: u64, bell: oneshot::Sender<()>) {
        if self.stage == Stage::Closed {
            self.words.ring(bell);
            return;
        }
        self.bells.push((at_us, bell));
        if at_us < self.planned_us {
            self.wake = Wake::Now;
        }
    }

    pub(crate) fn ring_bells(&mut self) {
        let now_us = self.world.now_us();
        let (rung, waiting) =
            take(&mut self.bells).into_iter().partition(|(at_us, bell)| *at_us <= now_us || bell.is_closed());
        self.bells = waiting;
        rung.into_iter().for_each(|(_, bell)| self.words.ring(bell));
    }

    /// No new work: callers hear it, and what is held goes back (P18).
    pub(crate) fn begin_close(&mut self, now_us: u64) {
        if self.stage != Stage::Open {
            return;
        }
        self.stage = Stage::Closing;
        let all: Vec<u64> = self.attempts.keys().copied().collect();
        if !all.is_empty() {
            hit(Mark::ClosedInUse);
        }
        for counter in all {
            let Some(attempt) = self.attempts.get_mut(&counter) else { continue };
            attempt.tell(&mut self.words, Verdict::Failed(Error::closed()));
            if let Phase::Held(holding) = &attempt.phase {
                self.words.lost(&holding.hold, Lost::Closed);
            }
            self.give_back(counter, now_us);
        }
        self.wake = Wake::Now;
    }

    /// The thread has ended: nobody renews or sends any more.
    pub(crate) fn end_all(&mut self) {
        self.stage = Stage::Closed;
        for attempt in self.attempts.values_mut() {
            attempt.tell(&mut self.words, Verdict::Failed(Error::closed()));
            match &mut attempt.phase {
                Phase::Held(holding) => self.words.lost(&holding.hold, Lost::Closed),
                Phase::Returning(returning) => self.words.given_back(returning.caller.take(), || Err(Error::closed())),
                _ => {}
            }
        }
        // Handles and guards may live on for long, and need no connection.
        self.close_lane();
        take(&mut self.mourners).into_iter().for_each(|mourner| self.words.ring(mourner));
        take(&mut self.bells).into_iter().for_each(|(_, bell)| self.words.ring(bell));
    }

    /// The names of everything that is not given back yet.
    pub(crate) fn unreturned(&self) -> Vec<Name> {
        self.attempts.values().map(|attempt| attempt.name.clone()).collect()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.attempts.is_empty()
    }
}
