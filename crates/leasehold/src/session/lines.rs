//! Lines: who waits for one name in this process, and is handed it without a round trip (P21).
//!
//! A line stands at the store as one attempt, whoever of its waiters began it. That attempt has no caller: what it is
//! granted goes to the first waiter then alive, and from guard to guard for as long as a [`Run`](super::run::Run) goes.
//! There is one line for each length of lease that is asked for, nearly always one: a lease cannot be two lengths at
//! once.
//!
//! What must never be is a line that nobody sees to: its waiters sleep, and no answer or alarm is of any of them. So,
//! asserted behind every change: *who waits in a line waits for a guard that is out, or for an attempt that the session
//! asks about until it is over.* Whatever ends the attempt goes through [`State::detach`], and where somebody is left the
//! next one begins in the same moment: a lease that is lost is not waited for until its guard goes.
//!
//! Nobody is forgotten on the other side either. A waiter whose future is dropped leaves the line; one that had been
//! granted the lease at that moment, and never took it, hands it on like a guard (`calls.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use leasehold_spec::limits::QUEUE_MAX;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{GrantId, Name};
use tokio::sync::oneshot;

use super::attempt::{Holding, Phase, Verdict};
use super::callers::{First, Whose};
use super::heard::full;
use super::lane::Upkeep;
use super::patience::Deadlines;
use super::state::{HandOver, Stage, State};
use super::terms::{Terms, Wait};
use crate::error::Error;
use crate::store::Link;

pub(crate) struct Line {
    name: Name,
    terms: Arc<Terms>,
    /// The attempt that stands for it; 0 while there is none.
    counter: u64,
    pub(super) waiters: VecDeque<Waiter>,
    pub(super) deadlines: Deadlines,
}

pub(crate) struct Waiter {
    pub(crate) number: u64,
    /// `u64::MAX`: for ever.
    until_us: u64,
    pub(crate) sticky_us: u64,
    pub(crate) caller: oneshot::Sender<Verdict>,
}

/// Which waiter of which line.
#[derive(Clone, Copy)]
pub(crate) struct WaiterId {
    pub(crate) line: u64,
    pub(crate) number: u64,
}

/// What comes of asking for a place in a line.
pub(crate) enum Stood {
    /// The verdict, at once.
    Told(Verdict),
    /// The line is not for this one: it asks the store for itself.
    Apart(oneshot::Sender<Verdict>),
    /// In line, as the first where there is something to send.
    InLine { waiter: WaiterId, first: Option<Box<(GrantId, First)>>, upkeep: Upkeep },
}

impl Line {
    /// Takes out who is next and still there.
    pub(crate) fn next(&mut self) -> Option<Waiter> {
        loop {
            let waiter = self.waiters.pop_front()?;
            self.deadlines.remove(waiter.until_us, waiter.number);
            if !waiter.caller.is_closed() {
                return Some(waiter);
            }
            hit(Mark::NextHadGone);
        }
    }

    /// The attempt that stands for it; 0 while there is none.
    pub(crate) fn counter(&self) -> u64 {
        self.counter
    }

    /// Takes out this one.
    pub(super) fn take(&mut self, number: u64) -> Option<Waiter> {
        let at = self.waiters.binary_search_by_key(&number, |waiter| waiter.number).ok()?;
        let waiter = self.waiters.remove(at)?;
        self.deadlines.remove(waiter.until_us, waiter.number);
        Some(waiter)
    }
}

impl State {
    /// Asks for a place in the line for this name and lease: the way of every lock that may be handed on here.
    pub(crate) fn stand(
        &mut self,
        name: &Name,
        terms: &Arc<Terms>,
        wait: Wait,
        caller: oneshot::Sender<Verdict>,
    ) -> Stood {
        if self.stage != Stage::Open {
            return Stood::Told(Verdict::Failed(Error::closed()));
        }
        if self.hand_over == HandOver::Remote {
            return Stood::Apart(caller);
        }
        let known = self.known_line(name, terms);
        if let Some(line) = known {
            // Where somebody waits nothing is kept.
            let may_be_kept = self.lines.get(&line).is_some_and(|line| line.waiters.is_empty());
            if may_be_kept && let Some(hold) = self.enter_kept(line, terms) {
                return Stood::Told(Verdict::Granted(hold));
            }
            if wait == Wait::No && self.is_taken(line) {
                return Stood::Told(Verdict::Busy);
            }
        }
        let until_us = match wait {
            Wait::No => return Stood::Apart(caller),
            Wait::Until { until_us } => until_us,
            Wait::ForEver => u64::MAX,
        };
        // Where what was kept went back just now, the line went with it.
        let line = known.filter(|line| self.lines.contains_key(line)).unwrap_or_else(|| self.open_line(name, terms));
        let number = self.next_number();
        let mut counter = 0;
        if let Some(line) = self.lines.get_mut(&line) {
            if line.waiters.len() >= QUEUE_MAX {
                return Stood::Told(Verdict::Failed(full()));
            }
            counter = line.counter;
            line.waiters.push_back(Waiter { number, until_us, sticky_us: terms.sticky_us, caller });
            line.deadlines.insert(until_us, number);
        }
        let (mut first, mut upkeep) = (None, Upkeep::Fine);
        if counter == 0 {
            let now_us = self.world.now_us();
            let (lane, care) = self.lane_link(now_us);
            let link = self.way_in(lane);
            (first, upkeep) = (self.begin_for(line, link, now_us).map(Box::new), care);
        } else {
            self.outlast(line, until_us);
        }
        self.arm_line(line);
        Stood::InLine { waiter: WaiterId { line, number }, first, upkeep }
    }

    /// The line for this name and lease, found by its number where these terms know that.
    fn known_line(&self, name: &Name, terms: &Terms) -> Option<u64> {
        let known = terms.line.get();
        let is_it = |line: &Line| line.terms.lease_ms == terms.lease_ms && line.name == *name;
        if self.lines.get(&known).is_some_and(is_it) {
            return Some(known);
        }
        self.line_of(name, terms.lease_ms).inspect(|&line| terms.line.set(line))
    }

    pub(super) fn line_of(&self, name: &Name, lease_ms: u64) -> Option<u64> {
        let slot = self.slots.get(name)?;
        slot.lines.iter().find(|(length_ms, _)| *length_ms == lease_ms).map(|(_, line)| *line)
    }

    pub(super) fn open_line(&mut self, name: &Name, terms: &Arc<Terms>) -> u64 {
        let id = self.next_number();
        self.slots.entry(name.clone()).or_default().lines.push((terms.lease_ms, id));
        let (name, terms) = (name.clone(), Arc::clone(terms));
        let (waiters, deadlines) = (VecDeque::new(), Deadlines::new());
        self.lines.insert(id, Line { name, terms, counter: 0, waiters, deadlines });
        id
    }

    pub(super) fn attempt_of(&self, line: u64) -> u64 {
        self.lines.get(&line).map_or(0, |line| line.counter)
    }

    pub(super) fn holding(&mut self, line: u64) -> Option<&mut Holding> {
        match &mut self.attempts.get_mut(&self.lines.get(&line)?.counter)?.phase {
            Phase::Held(holding) => Some(holding),
            _ => None,
        }
    }

    /// Whether a line makes it needless to ask the store: we hold the name ourselves, or others stand before.
    fn is_taken(&mut self, line: u64) -> bool {
        let now_us = self.world.now_us();
        self.lines.get(&line).is_some_and(|line| !line.waiters.is_empty())
            || self.holding(line).is_some_and(|holding| now_us < holding.hold.valid_until_us())
    }

    /// Begins the attempt that stands for a line. Answers what its caller sends on `link`; without one the thread sends.
    pub(crate) fn begin_for(
        &mut self,
        line: u64,
        link: Option<Arc<dyn Link>>,
        now_us: u64,
    ) -> Option<(GrantId, First)> {
        let known = self.lines.get(&line)?;
        let (name, terms) = (known.name.clone(), Arc::clone(&known.terms));
        let (id, first) = self.begin_on(&name, &terms, Whose::Line(line), link, now_us);
        first.map(|first| (id, first))
    }

    pub(crate) fn stands_for(&mut self, line: u64, counter: u64) {
        if let Some(line) = self.lines.get_mut(&line) {
            line.counter = counter;
        }
    }

    /// The attempt does not stand for its line any more. Answers the line, where somebody is left in it.
    pub(crate) fn detach(&mut self, counter: u64) -> Option<u64> {
        let line = self.attempts.get_mut(&counter)?.line.take()?;
        let known = self.lines.get_mut(&line)?;
        known.counter = 0;
        if known.waiters.is_empty() {
            self.close_line(line);
            return None;
        }
        match self.attempts.get(&counter).map(|attempt| &attempt.phase) {
            Some(Phase::Held(holding)) => hit(holding.run.why_over(holding.hold.token, self.world.now_us())),
            Some(Phase::Ended { .. }) => hit(Mark::LineWentOn),
            _ => {}
        }
        Some(line)
    }

    /// The same, and whoever is left there goes on with another attempt, sent by the thread.
    pub(crate) fn go_on(&mut self, counter: u64, now_us: u64) {
        if is_on(Mutant::P21WaitsForGuard)
            && self.attempts.get(&counter).is_some_and(super::attempt::Attempt::has_ended)
        {
            return;
        }
        if let Some(line) = self.detach(counter) {
            self.begin_for(line, None, now_us);
        }
    }

    fn close_line(&mut self, id: u64) {
        let Some(line) = self.lines.remove(&id) else { return };
        if let Some(slot) = self.slots.get_mut(&line.name) {
            slot.lines.retain(|(_, other)| *other != id);
        }
        self.sweep(&line.name);
    }

    /// This one waits no longer. Answers what was in line for it: otherwise the verdict is said, or about to be. It is not
    /// to be dropped under the lock: its end wakes whoever polled the future, or drops that waker.
    pub(crate) fn leave_line(&mut self, waiter: WaiterId) -> Option<Waiter> {
        let line = self.lines.get_mut(&waiter.line)?;
        let (waiter, counter) = (line.take(waiter.number)?, line.counter);
        if line.waiters.is_empty() && !is_on(Mutant::P21EntryStays) {
            self.desert(counter);
        }
        Some(waiter)
    }

    /// The last one has left a line: its attempt is given up, unless it holds, and a guard is out.
    pub(super) fn desert(&mut self, counter: u64) {
        if self.attempts.get(&counter).is_some_and(|attempt| !attempt.is_held()) {
            hit(Mark::LineDeserted);
            self.forsake(counter);
        }
    }

    /// Tells everybody in a line the same.
    pub(crate) fn tell_line(&mut self, line: u64, error: &Error) {
        let Some(line) = self.lines.get_mut(&line) else { return };
        line.deadlines.clear();
        for waiter in std::mem::take(&mut line.waiters) {
            self.words.verdict(waiter.number, Some(waiter.caller), Verdict::Failed(error.share()));
        }
    }

    pub(crate) fn tell_lines(&mut self, error: &Error) {
        let all: Vec<u64> = self.lines.keys().copied().collect();
        all.into_iter().for_each(|line| self.tell_line(line, error));
    }

    /// P21: who waits in a line waits for a guard that is out, or for an attempt that the session asks about.
    #[cfg(debug_assertions)]
    pub(crate) fn assert_lines(&self) {
        if self.stage == Stage::Closed {
            return; // They were told, and the thread that saw to their attempts has ended.
        }
        // With more it would be the longest part of every change.
        for line in self.lines.values().take(64) {
            let phase = self.attempts.get(&line.counter).map(|attempt| &attempt.phase);
            let is_seen_to = match phase {
                Some(Phase::Held(holding)) => holding.is_in_use() || line.waiters.is_empty(),
                Some(Phase::Asking { .. } | Phase::Queued { .. } | Phase::Claiming { .. }) => !line.waiters.is_empty(),
                Some(Phase::Ended { .. } | Phase::Returning(_)) | None => false,
            };
            assert!(is_seen_to, "P21: nobody sees to who waits for \"{}\"", line.name);
        }
    }
}
