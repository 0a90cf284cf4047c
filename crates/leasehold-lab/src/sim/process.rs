//! One process: its clock, and whether it runs.

use super::exec::Part;
use super::timer::Timer;

#[derive(Default)]
pub(super) struct Process {
    pub(super) offset_us: u64,
    pub(super) rate_ppm: i64,
    pub(super) is_dead: bool,
    /// How many reasons there are for each part to stand still.
    pub(super) halts: [u32; 2],
    halted_since_us: u64,
    halted_us: u64,
    pub(super) sleeps: u32,
    asleep_since_us: u64,
    asleep_us: u64,
    /// Woken, and not running.
    pub(super) woken: Vec<u64>,
    /// Timers that came due while the machine slept.
    pub(super) overslept: Vec<Timer>,
}

impl Process {
    pub(super) fn new(offset_us: u64, rate_ppm: i64) -> Self {
        Self { offset_us, rate_ppm, ..Self::default() }
    }

    /// What its clock shows.
    pub(super) fn clock_us(&self, now_us: u64) -> u64 {
        self.offset_us + scale(now_us, self.rate_ppm)
    }

    /// For how long it could not run so far.
    pub(super) fn halted_us(&self, now_us: u64) -> u64 {
        self.halted_us + if self.runs() { 0 } else { now_us - self.halted_since_us }
    }

    pub(super) fn halt(&mut self, parts: &[Part], now_us: u64) {
        if self.runs() {
            self.halted_since_us = now_us;
        }
        parts.iter().for_each(|part| self.halts[*part as usize] += 1);
    }

    /// Answers who was woken meanwhile.
    pub(super) fn resume(&mut self, parts: &[Part], now_us: u64) -> Vec<u64> {
        parts.iter().for_each(|part| self.halts[*part as usize] -= 1);
        if self.runs() {
            self.halted_us += now_us - self.halted_since_us;
        }
        std::mem::take(&mut self.woken)
    }

    pub(super) fn fall_asleep(&mut self, now_us: u64) {
        self.sleeps += 1;
        if self.sleeps == 1 {
            self.asleep_since_us = now_us;
        }
    }

    /// Answers which timers came due meanwhile.
    pub(super) fn wake_up(&mut self, now_us: u64) -> Vec<Timer> {
        self.sleeps -= 1;
        if self.sleeps > 0 {
            return Vec::new();
        }
        self.asleep_us += now_us - self.asleep_since_us;
        std::mem::take(&mut self.overslept)
    }

    /// For how long its timers have stood still.
    pub(super) fn asleep_us(&self, now_us: u64) -> u64 {
        self.asleep_us + if self.sleeps > 0 { now_us - self.asleep_since_us } else { 0 }
    }

    fn runs(&self) -> bool {
        self.halts == [0, 0]
    }
}

/// A time by a clock of another rate.
pub(super) fn scale(us: u64, ppm: i64) -> u64 {
    let shift = i128::from(us) * i128::from(ppm) / 1_000_000;
    (i128::from(us) + shift) as u64
}
