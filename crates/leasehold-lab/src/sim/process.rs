//! One process: its clock, its parts, and the parts that run.

use std::collections::BTreeMap;

use super::timer::Timer;

/// The part of a process that a task belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The client's own thread.
    Session,
    /// A thread of the program that has no runtime.
    Thread,
    /// A runtime of the program. Each number is used once.
    Runtime(usize),
    /// An executor of its own (`block_on`) on a thread of that runtime. It polls nothing else meanwhile.
    Inside(usize),
}

/// The part of a process that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// The whole process.
    All,
    /// One part; the others continue.
    Only(Part),
}

#[derive(Default)]
pub(super) struct Process {
    pub(super) offset_us: u64,
    pub(super) rate_ppm: i64,
    pub(super) is_dead: bool,
    parts: BTreeMap<Part, State>,
    /// For how many reasons the whole process stands still.
    halts: u32,
    runtimes: usize,
    pub(super) sleeps: u32,
    asleep_since_us: u64,
    asleep_us: u64,
    /// Tasks that were woken and do not run yet.
    pub(super) woken: Vec<u64>,
    /// Timers that came due while the machine slept.
    pub(super) overslept: Vec<Timer>,
    /// Timers that came due while their part stood still: they take effect when it continues.
    pub(super) late_timers: Vec<Timer>,
}

/// One part.
#[derive(Default)]
struct State {
    /// For how many reasons this part alone stands still.
    halts: u32,
    has_ended: bool,
    since_us: u64,
    halted_us: u64,
}

impl Process {
    pub(super) fn new(offset_us: u64, rate_ppm: i64) -> Self {
        let parts = [Part::Session, Part::Thread].map(|part| (part, State::default()));
        Self { offset_us, rate_ppm, parts: BTreeMap::from(parts), ..Self::default() }
    }

    /// Adds a runtime, with the part that may block it. Returns its number.
    pub(super) fn start_runtime(&mut self, now_us: u64) -> usize {
        let number = self.runtimes;
        self.runtimes += 1;
        for part in [Part::Runtime(number), Part::Inside(number)] {
            self.parts.insert(part, State { since_us: now_us, ..State::default() });
        }
        number
    }

    /// Ends a runtime. Returns whether it existed.
    pub(super) fn end_runtime(&mut self, number: usize) -> bool {
        let state = self.parts.get_mut(&Part::Runtime(number));
        state.is_some_and(|state| !std::mem::replace(&mut state.has_ended, true))
    }

    /// Returns the runtimes that exist.
    pub(super) fn runtimes(&self) -> Vec<usize> {
        (0..self.runtimes).filter(|number| !self.has_ended(Part::Runtime(*number))).collect()
    }

    pub(super) fn has_ended(&self, part: Part) -> bool {
        self.parts.get(&part).is_some_and(|state| state.has_ended)
    }

    pub(super) fn stands_still(&self, part: Part) -> bool {
        self.halts > 0 || self.parts.get(&part).is_some_and(|state| state.halts > 0)
    }

    /// Returns the time of its clock.
    pub(super) fn clock_us(&self, now_us: u64) -> u64 {
        self.offset_us + scale(now_us, self.rate_ppm)
    }

    /// Returns for how long a part could not run so far.
    pub(super) fn halted_us(&self, part: Part, now_us: u64) -> u64 {
        let now_too = |state: &State| if self.stands_still(part) { now_us - state.since_us } else { 0 };
        self.parts.get(&part).map_or(0, |state| state.halted_us + now_too(state))
    }

    /// Returns for how long its parts could not run so far, added up.
    pub(super) fn halted_in_all_us(&self, now_us: u64) -> u64 {
        self.parts.keys().map(|part| self.halted_us(*part, now_us)).sum()
    }

    pub(super) fn halt(&mut self, what: Halt, now_us: u64) {
        self.change(now_us, |process| *process.reasons(what) += 1);
    }

    /// Returns the tasks that were woken meanwhile, and the timers that came due.
    pub(super) fn resume(&mut self, what: Halt, now_us: u64) -> (Vec<u64>, Vec<Timer>) {
        self.change(now_us, |process| *process.reasons(what) -= 1);
        (std::mem::take(&mut self.woken), std::mem::take(&mut self.late_timers))
    }

    fn reasons(&mut self, what: Halt) -> &mut u32 {
        match what {
            Halt::All => &mut self.halts,
            Halt::Only(part) => &mut self.parts.entry(part).or_default().halts,
        }
    }

    /// Updates the halted time of each part before and after a part stops or continues.
    fn change(&mut self, now_us: u64, change: impl FnOnce(&mut Self)) {
        let parts: Vec<Part> = self.parts.keys().copied().collect();
        let were: Vec<bool> = parts.iter().map(|part| self.stands_still(*part)).collect();
        change(self);
        for (part, was) in parts.into_iter().zip(were) {
            let is = self.stands_still(part);
            let Some(state) = self.parts.get_mut(&part) else { continue };
            match (was, is) {
                (false, true) => state.since_us = now_us,
                (true, false) => state.halted_us += now_us - state.since_us,
                _ => {}
            }
        }
    }

    pub(super) fn fall_asleep(&mut self, now_us: u64) {
        self.sleeps += 1;
        if self.sleeps == 1 {
            self.asleep_since_us = now_us;
        }
    }

    /// Returns the timers that came due meanwhile.
    pub(super) fn wake_up(&mut self, now_us: u64) -> Vec<Timer> {
        self.sleeps -= 1;
        if self.sleeps > 0 {
            return Vec::new();
        }
        self.asleep_us += now_us - self.asleep_since_us;
        std::mem::take(&mut self.overslept)
    }

    /// Returns for how long its timers have stood still.
    pub(super) fn asleep_us(&self, now_us: u64) -> u64 {
        self.asleep_us + if self.sleeps > 0 { now_us - self.asleep_since_us } else { 0 }
    }
}

/// Returns a time by a clock of another rate.
pub(super) fn scale(us: u64, ppm: i64) -> u64 {
    let shift = i128::from(us) * i128::from(ppm) / 1_000_000;
    (i128::from(us) + shift) as u64
}
