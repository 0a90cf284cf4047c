//! For how long callers wait, and what they hear when that is over.
//!
//! "Somebody else has it" is said only where that is known (P30): it was the store's last word, or we have the name
//! ourselves. Otherwise nobody knows, and that is what they hear.
//!
//! A caller with an attempt of its own has its deadline there. Those in a line share an attempt and have a deadline each,
//! and the line's entry stays at the store for as long as the last of them waits. The store is told until when, and drops
//! the entry then: whoever comes later and waits for longer has it told anew.

use std::collections::BTreeSet;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::attempt::{Attempt, Phase, Verdict, wait_ends_us};
use super::lines::{Line, Waiter};
use super::state::{State, Wake};

/// The deadlines of those in a line.
pub(crate) struct Deadlines {
    /// Until when each waits that does not wait for ever, and which it is.
    each: BTreeSet<(u64, u64)>,
    /// The earliest alarm that is set.
    alarm_us: u64,
    /// Until when the store keeps the entry, as it was told last.
    told_us: u64,
}

impl Deadlines {
    pub(super) fn new() -> Self {
        Self { each: BTreeSet::new(), alarm_us: u64::MAX, told_us: 0 }
    }

    pub(super) fn insert(&mut self, until_us: u64, number: u64) {
        if until_us != u64::MAX {
            self.each.insert((until_us, number));
        }
    }

    pub(super) fn remove(&mut self, until_us: u64, number: u64) {
        if until_us != u64::MAX {
            self.each.remove(&(until_us, number));
        }
    }

    pub(super) fn clear(&mut self) {
        self.each.clear();
    }
}

impl Line {
    /// Until when the last of them waits.
    fn until_us(&self) -> u64 {
        let each = &self.deadlines.each;
        let timed = each.last().map_or(0, |(until_us, _)| *until_us);
        if each.len() < self.waiters.len() { u64::MAX } else { timed }
    }

    /// Takes out one whose time is over.
    fn take_overdue(&mut self, is_over: impl Fn(u64) -> bool) -> Option<Waiter> {
        let (_, number) = self.deadlines.each.first().copied().filter(|(until_us, _)| is_over(*until_us))?;
        self.take(number)
    }
}

impl State {
    /// For how long the entry of a line is to stay at the store (its last waiter's patience), and notes it as told.
    pub(crate) fn told_limit_us(&mut self, line: u64) -> u64 {
        self.lines.get_mut(&line).map_or(u64::MAX, |line| {
            line.deadlines.told_us = line.until_us();
            line.deadlines.told_us
        })
    }

    /// Somebody waits for longer than the store was told: the entry looks at once, and says so. The store would drop it
    /// otherwise, and it would come back only when it looks.
    pub(super) fn outlast(&mut self, line: u64, until_us: u64) {
        let Some(known) = self.lines.get(&line) else { return };
        let counter = known.counter();
        let is_queued = |phase: &Phase| matches!(phase, Phase::Asking { .. } | Phase::Queued { .. });
        if until_us <= known.deadlines.told_us
            || is_on(Mutant::P21ShortLimit)
            || !self.attempts.get(&counter).is_some_and(|attempt| is_queued(&attempt.phase))
        {
            return;
        }
        hit(Mark::LineOutlasted);
        let now_us = self.world.now_us();
        self.set_next(counter, now_us);
        self.arm(counter);
    }

    /// Whether somebody came who waits for longer, while the store was being asked.
    pub(crate) fn is_told_short(&self, counter: u64) -> bool {
        let line = self.attempts.get(&counter).and_then(|attempt| self.lines.get(&attempt.line?));
        line.is_some_and(|line| line.deadlines.told_us < line.until_us()) && !is_on(Mutant::P21ShortLimit)
    }

    /// Sets the alarm for who runs out of patience first.
    pub(crate) fn arm_line(&mut self, id: u64) {
        let Some(line) = self.lines.get_mut(&id) else { return };
        let Some((first_us, _)) = line.deadlines.each.first().copied() else { return };
        // Who has no time at all still waits for one answer.
        let answer_us = self.attempts.get(&line.counter()).map_or(0, |attempt| attempt.first_answer_us());
        let due_us = wait_ends_us(first_us, answer_us);
        if due_us < line.deadlines.alarm_us && !is_on(Mutant::P21WaitsOn) {
            line.deadlines.alarm_us = due_us;
            self.line_alarms.set(due_us, id);
            if due_us < self.planned_us {
                self.wake = Wake::Now;
            }
        }
    }

    /// Tells those in lines whose patience is over.
    pub(crate) fn tell_impatient(&mut self, now_us: u64) {
        while let Some((_, id)) = self.line_alarms.pop(now_us) {
            let Some(line) = self.lines.get_mut(&id) else { continue };
            line.deadlines.alarm_us = u64::MAX;
            let counter = line.counter();
            let answer_us = self.attempts.get(&counter).map_or(0, |attempt| attempt.first_answer_us());
            let is_over = |until_us: u64| wait_ends_us(until_us, answer_us) <= now_us;
            while let Some(waiter) = self.lines.get_mut(&id).and_then(|line| line.take_overdue(is_over)) {
                let verdict = self.verdict_at_deadline(counter, now_us);
                self.words.verdict(waiter.number, Some(waiter.caller), verdict);
            }
            if self.lines.get(&id).is_some_and(|line| line.waiters.is_empty()) {
                self.desert(counter);
            }
            self.arm_line(id);
        }
    }

    /// The first request of an attempt is about to be repeated. A caller whose deadline has passed waits for that answer as
    /// for the first one: the store is there, and would not be asked otherwise.
    pub(crate) fn await_repetition(&mut self, counter: u64, now_us: u64) {
        let answered_us = now_us + self.usual_us();
        if let Some(Attempt { phase: Phase::Asking { usual_us, .. }, .. }) = self.attempts.get_mut(&counter)
            && !is_on(Mutant::P30EndsUnheard)
        {
            *usual_us = answered_us;
        }
    }

    /// Tells the caller of an attempt that its patience is over, and gives the attempt up.
    pub(super) fn give_up_waiting(&mut self, counter: u64, now_us: u64) {
        hit(Mark::PatienceOver);
        let verdict = self.verdict_at_deadline(counter, now_us);
        let Some(attempt) = self.attempts.get_mut(&counter) else { return };
        attempt.tell(&mut self.words, verdict);
        self.give_back(counter, now_us);
    }

    /// What is known to those who wait for this attempt.
    fn verdict_at_deadline(&self, counter: u64, now_us: u64) -> Verdict {
        let Some(attempt) = self.attempts.get(&counter) else { return Verdict::Busy };
        match &attempt.phase {
            Phase::Queued { .. } => Verdict::Busy,
            Phase::Held(holding) if now_us < holding.hold.valid_until_us() => Verdict::Busy,
            // The store's last word was that we hold, and whether we still do it has not said.
            Phase::Held(_) | Phase::Claiming { .. } => Verdict::Failed(self.away().may_act()),
            Phase::Asking { .. } | Phase::Ended { .. } | Phase::Returning(_) => Verdict::Failed(self.away_for(attempt)),
        }
    }
}
