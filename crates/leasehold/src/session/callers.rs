//! What callers change: an attempt begins, is given up, or is given back.

use std::mem::take;
use std::sync::Arc;

use leasehold_spec::limits::{RANGE_MAX, RUN_PASSES};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Contention, GrantId, Name, Op};
use tokio::sync::oneshot;

use super::attempt::{Asked, Attempt, GivenBack, Phase, Verdict};
use super::hold::Hold;
use super::lane::Upkeep;
use super::lines::Line;
use super::state::{HandOver, Stage, State, Wake};
use super::terms::{Renewal, Terms, Wait};
use crate::error::{Error, LostReason};
use crate::store::Link;

/// A request that the caller sends itself.
pub(crate) struct First {
    pub(crate) op: Op,
    pub(crate) asked: Asked,
    pub(crate) guess: Contention,
    pub(crate) before: Before,
}

/// What goes back right before a caller's request, on the same link: the request would find it in its way.
pub(crate) enum Before {
    Nothing,
    /// The caller sends it.
    Sent(Box<(u64, Op, Asked)>),
    /// The thread is about to send it, and says so.
    Leaves(oneshot::Receiver<()>),
}

/// Who is behind an attempt.
pub(crate) enum Whose {
    /// One caller, who hears of it and waits for so long.
    Caller(oneshot::Sender<Verdict>, Wait),
    /// A line, which waits for ever: see `lines.rs`.
    Line(u64),
}

/// What becomes of a lease that its guard gives back.
pub(crate) enum LetGo {
    /// The next one here has it: there is nothing to wait for.
    Passed,
    /// There is nothing of it left here.
    NotHeld,
    /// What the caller sends, if it can: the release, and behind it what those ask for who still wait in line.
    Sent { sending: Box<Sending>, upkeep: Upkeep },
}

/// A release, and what goes with it.
pub(crate) struct Sending {
    pub(crate) answer: oneshot::Receiver<Result<GivenBack, Error>>,
    pub(crate) release: Option<First>,
    /// Whether the lease was surely ours until then.
    pub(crate) was_valid: bool,
    /// For whom the line asks next.
    pub(crate) next: Option<(GrantId, First)>,
}

/// How a guard went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Panicking {
    Yes,
    No,
}

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
        let link = match wait {
            Wait::No => lane.or_else(|| self.home().cloned()),
            _ => self.way_in(lane),
        };
        let (id, first) = self.begin_on(name, terms, Whose::Caller(caller, wait), link, now_us);
        if first.is_none() && wait == Wait::No {
            self.fail(id.counter, self.away(), now_us);
        }
        (id, first)
    }

    /// The link for an acquire that may queue, for its caller to send it: none while the inbox is not proved (P11).
    pub(crate) fn way_in(&self, lane: Option<Arc<dyn Link>>) -> Option<Arc<dyn Link>> {
        let is_proved = self.home().is_some() || is_on(Mutant::P11NoProof);
        lane.or_else(|| self.home().cloned()).filter(|_| is_proved)
    }

    /// Registers an attempt, and answers what its caller sends on `link`; without one the thread sends.
    pub(crate) fn begin_on(
        &mut self,
        name: &Name,
        terms: &Arc<Terms>,
        whose: Whose,
        link: Option<Arc<dyn Link>>,
        now_us: u64,
    ) -> (GrantId, Option<First>) {
        let id = self.new_id();
        let counter = id.counter;
        let (caller, line, wait) = match whose {
            Whose::Caller(caller, wait) => (Some(caller), None, wait),
            Whose::Line(line) => (None, Some(line), Wait::ForEver),
        };
        let (link, before) = self.clear_the_way(name, link, now_us);
        if let Some(line) = line {
            self.stands_for(line, counter);
        }
        // One who only tries is in no line, and may be the first of one all the same.
        let may_hand_on = line.is_some() || (wait == Wait::No && terms.may_stand());
        let range = if may_hand_on && self.hand_over == HandOver::Local { self.range_for(line, terms) } else { 1 };
        // Sent by the caller, right now; the thread looks when that found no answer.
        let next_us = if link.is_some() { u64::MAX } else { now_us };
        // Until then a caller whose deadline has passed waits for the answer, also to what the thread has still to send.
        let phase = Phase::Asking { next_us, usual_us: now_us + self.usual_us() };
        let attempt = Attempt::new(id, name.clone(), Arc::clone(terms), wait, phase);
        self.insert(Attempt { caller, line, range, ..attempt });
        let first = link.and_then(|link| {
            let (_, op, asked) = self.ask(counter, &link, now_us)?;
            self.attempts.get_mut(&counter)?.tries.left_to_caller(asked.serial);
            Some(First { op, asked, guess: self.guess(name), before })
        });
        self.arm(counter);
        (id, first)
    }

    /// How many tokens to ask for (P19). Who comes into a line while its first one holds has those that that one took.
    fn range_for(&self, line: Option<u64>, terms: &Terms) -> u64 {
        // What is kept is for those who come later.
        let will_pass = |line: &Line| line.waiters.len() > 1 || line.waiters.iter().any(|waiter| waiter.sticky_us > 0);
        let is_alone = terms.sticky_us == 0 && !line.and_then(|line| self.lines.get(&line)).is_some_and(will_pass);
        if is_alone && self.burns_ranges() { RUN_PASSES.into() } else { RANGE_MAX }
    }

    /// Gives an attempt up whose caller's future is dropped: the future sends nothing any more (P16).
    pub(crate) fn abandon(&mut self, counter: u64) {
        let serial = self.last_serial();
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.tries.sent_by_caller(serial);
        }
        self.forsake(counter);
    }

    /// Gives an attempt up that nobody waits for. A future that stands still may send its first request later. A leave that
    /// was sent before that request does not close the attempt (P14).
    pub(crate) fn forsake(&mut self, counter: u64) {
        hit(Mark::Abandoned);
        if is_on(Mutant::P16DropSilent) {
            self.remove(counter);
            return;
        }
        // The waiter that did not take the lease has passed it to the next waiter here.
        if !self.attempts.get(&counter).is_some_and(Attempt::is_passed_on) {
            self.give_back(counter, self.world.now_us());
        }
    }

    /// The caller's own acquire will not be heard: the thread asks again where an answer is still wanted.
    pub(crate) fn left_alone(&mut self, counter: u64) {
        let serial = self.last_serial();
        if let Some(attempt) = self.attempts.get_mut(&counter) {
            attempt.tries.sent_by_caller(serial);
        }
        self.go_unheard(counter);
    }

    /// The answer to a caller's own request will not be heard. (Whether its acquire has been sent, a release does not say.)
    pub(crate) fn go_unheard(&mut self, counter: u64) {
        let now_us = self.world.now_us();
        self.await_repetition(counter, now_us);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.asked = None;
        // Of what it asked for nothing is known, and the next request is the thread's.
        match &mut attempt.phase {
            Phase::Returning(returning) => returning.next_us = now_us,
            Phase::Asking { next_us, .. } => *next_us = now_us,
            _ => {}
        }
        self.arm(counter);
    }

    /// A guard gives its lease back: it goes to the next one here, or to the store.
    pub(crate) fn let_go(&mut self, hold: &Hold) -> LetGo {
        let now_us = self.world.now_us();
        if self.pass(hold, now_us) {
            return LetGo::Passed;
        }
        let (lane, upkeep) = self.lane_link(now_us);
        match self.begin_release(hold, lane, now_us) {
            Some(sending) => LetGo::Sent { sending: Box::new(sending), upkeep },
            None => LetGo::NotHeld,
        }
    }

    /// A guard goes without a word. In a panic the next one in line does not get what its section has left behind before
    /// the store has been asked: whoever waits elsewhere comes first.
    pub(crate) fn dropped(&mut self, hold: &Hold, panicking: Panicking) {
        let now_us = self.world.now_us();
        let may_pass = panicking == Panicking::No || is_on(Mutant::P20PassesPanic);
        if (may_pass && self.pass(hold, now_us)) || !self.is_out(hold) {
            return;
        }
        self.give_back(hold.id.counter, now_us);
    }

    /// Whether this guard's hold is what its attempt has out. One that was passed on is not, though its attempt still
    /// holds.
    fn is_out(&self, hold: &Hold) -> bool {
        let attempt = self.attempts.get(&hold.id.counter).filter(|attempt| attempt.id == hold.id);
        attempt.is_some_and(|attempt| match &attempt.phase {
            Phase::Held(holding) => holding.hold.token == hold.token && holding.is_in_use(),
            Phase::Ended { used, .. } => *used == hold.token,
            _ => false,
        })
    }

    /// Begins to give a lease back. `None`: there is nothing of it left here.
    fn begin_release(&mut self, hold: &Hold, lane: Option<Arc<dyn Link>>, now_us: u64) -> Option<Sending> {
        let counter = hold.id.counter;
        if !self.is_out(hold) {
            return None;
        }
        let was_valid = now_us < hold.valid_until_us();
        let line = self.detach(counter);
        // Known once the state is changed: the guard must not be valid while its release is under way.
        self.words.lost(hold, LostReason::Released);
        self.begin_return(counter, now_us);
        if let Some(line) = line.filter(|_| !self.attempts.contains_key(&counter)) {
            self.begin_for(line, None, now_us);
        }
        let tries = &self.attempts.get(&counter)?.tries;
        // Before an acquire of it that is about to be sent it would find nothing: then the thread sends it, in turn.
        let link = match tries.may_be_followed() {
            true => tries.follow().filter(|link| self.may_use(link)).cloned().or(lane).or_else(|| self.home().cloned()),
            false => None,
        };
        let first = link.and_then(|link| self.ask_return(counter, link, now_us));
        let Phase::Returning(returning) = &mut self.attempts.get_mut(&counter)?.phase else { return None };
        let (tell, answer) = oneshot::channel();
        returning.caller = Some(tell);
        returning.left = first.as_ref().map_or(0, |(_, asked)| asked.serial);
        self.arm(counter);
        let guess = self.guess(&hold.name);
        // Behind the release on its own link, and not before it on another. Without a proved inbox the thread sends.
        let link = first.as_ref().and_then(|(_, asked)| self.way_in(Some(Arc::clone(&asked.link))));
        let next = line.and_then(|line| self.begin_for(line, link, now_us));
        let release = first.map(|(op, asked)| First { op, asked, guess, before: Before::Nothing });
        Some(Sending { answer, was_valid, release, next })
    }

    /// A renewal under way asks for the old length: its answer makes this one due ([`State::heard_renew`]).
    pub(crate) fn lengthen(&mut self, hold: &Hold, lease_ms: u64) {
        let (counter, now_us) = (hold.id.counter, self.world.now_us());
        let Some(attempt) = self.attempts.get_mut(&counter).filter(|attempt| attempt.id == hold.id) else { return };
        if attempt.terms.renewal == Renewal::Never || lease_ms <= attempt.terms.lease_ms {
            return;
        }
        attempt.terms = Arc::new(Terms { lease_ms, ..Terms::clone(&attempt.terms) });
        if let Phase::Held(holding) = &mut attempt.phase {
            holding.run.seal();
        }
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

    /// Fires at `at_us`; at once where nobody keeps the time any more.
    pub(crate) fn set_timer(&mut self, at_us: u64, timer: oneshot::Sender<()>) {
        if self.stage == Stage::Closed {
            self.words.signal(timer);
            return;
        }
        self.timers.push((at_us, timer));
        if at_us < self.planned_us {
            self.wake = Wake::Now;
        }
    }

    pub(crate) fn fire_timers(&mut self) {
        let now_us = self.world.now_us();
        let (over, waiting) =
            take(&mut self.timers).into_iter().partition(|(at_us, timer)| *at_us <= now_us || timer.is_closed());
        self.timers = waiting;
        over.into_iter().for_each(|(_, timer)| self.words.signal(timer));
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
        self.tell_lines(&Error::closed());
        for counter in all {
            let Some(attempt) = self.attempts.get_mut(&counter) else { continue };
            attempt.tell(&mut self.words, Verdict::Failed(Error::closed()));
            if let Phase::Held(holding) = &attempt.phase {
                self.words.lost(&holding.hold, LostReason::Closed);
            }
            self.give_back(counter, now_us);
        }
        self.wake = Wake::Now;
    }

    /// The thread has ended: nobody renews or sends any more.
    pub(crate) fn end_all(&mut self) {
        self.stage = Stage::Closed;
        self.tell_lines(&Error::closed());
        for (counter, attempt) in &mut self.attempts {
            attempt.tell(&mut self.words, Verdict::Failed(Error::closed()));
            match &mut attempt.phase {
                Phase::Held(holding) => self.words.lost(&holding.hold, LostReason::Closed),
                Phase::Returning(returning) => {
                    self.words.given_back(*counter, returning.caller.take(), || Err(Error::closed()));
                }
                _ => {}
            }
        }
        // Handles and guards may live on for long, and need no connection.
        self.close_lane();
        take(&mut self.close_waiters).into_iter().for_each(|waiter| self.words.signal(waiter));
        take(&mut self.timers).into_iter().for_each(|(_, timer)| self.words.signal(timer));
    }

    /// The names of everything that is not given back yet.
    pub(crate) fn unreturned(&self) -> Vec<Name> {
        self.attempts.values().map(|attempt| attempt.name.clone()).collect()
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.attempts.is_empty()
    }
}
