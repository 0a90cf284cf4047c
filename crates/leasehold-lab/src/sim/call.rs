//! Calls, checked against the time that their documentation promises: the time counts while the caller's own runtime is
//! polled, whatever happens to the program's other runtimes.

use super::exec::{Part, Pid};
use super::plan::MS;
use super::stage::Sim;

/// A method of the product, and the errors that it may return.
#[derive(Clone, Copy)]
pub(super) struct Method {
    pub(super) what: &'static str,
    /// It waits for as long as the store cannot be reached.
    pub(super) waits: bool,
    /// It may report that a lease is lost.
    pub(super) may_lose: bool,
}

impl Method {
    /// Returns a method that returns an error if the store cannot be reached.
    pub(super) const fn asks(what: &'static str) -> Self {
        Self { what, waits: false, may_lose: false }
    }

    /// Returns a method that waits for as long as the store cannot be reached.
    pub(super) const fn waits(what: &'static str) -> Self {
        Self { what, waits: true, may_lose: false }
    }

    pub(super) const fn may_lose(self) -> Self {
        Self { may_lose: true, ..self }
    }
}

/// A call that has begun.
pub(super) struct Call {
    what: &'static str,
    caller: String,
    pid: Pid,
    /// The part on which it is polled.
    part: Part,
    pub(super) began_us: u64,
    halted_us: u64,
    halted_in_all_us: u64,
}

impl Call {
    pub(super) fn begins(sim: &Sim, what: &'static str, caller: &str, (pid, part): (Pid, Part)) -> Self {
        let (began_us, halted_us) = (sim.exec.now_us(), sim.exec.halted_us(pid, part));
        let halted_in_all_us = sim.exec.halted_in_all_us(pid);
        sim.note(3, || format!("{caller} on {part:?}: {what}"));
        Self { what, caller: caller.to_owned(), pid, part, began_us, halted_us, halted_in_all_us }
    }

    /// Returns for how long the caller could not run since the call began.
    pub(super) fn halted_us(&self, sim: &Sim) -> u64 {
        sim.exec.halted_us(self.pid, self.part) - self.halted_us
    }

    /// Returns whether any part of its program has stood still since it began. A waiter in a local queue depends on the
    /// task that leads the queue's request, and that task may run on another part.
    pub(super) fn program_stood_still(&self, sim: &Sim) -> bool {
        sim.exec.halted_in_all_us(self.pid) > self.halted_in_all_us
    }

    /// Returns whether it was polled on a runtime that it blocks.
    pub(super) fn is_blocked(&self) -> bool {
        matches!(self.part, Part::Inside(_))
    }

    /// Returns how long it took, without the time in which the caller could not run.
    fn took_us(&self, sim: &Sim) -> u64 {
        (sim.exec.now_us() - self.began_us).saturating_sub(self.halted_us(sim))
    }

    /// Judges a call that returns now and was promised to return within this time.
    pub(super) fn returned_within(&self, sim: &Sim, within_us: u64) {
        let took_us = self.took_us(sim);
        // A caller that polls its own executor on a runtime that it blocks has half a second more.
        let blocked_us = if self.is_blocked() { 500 * MS } else { 0 };
        if took_us > within_us + blocked_us + 300 * MS + 4 * sim.plan.trip_us() {
            self.wrong(sim, &format!("took {took_us} µs, but {within_us} µs were promised"));
        }
    }

    /// Judges a call that returns now and had nothing to wait for: if no fault touches the store, it takes a few
    /// messages.
    pub(super) fn returned_soon(&self, sim: &Sim) {
        let (took_us, soon_us) = (self.took_us(sim), sim.plan.answers_us());
        let is_blocked = self.is_blocked() || self.halted_us(sim) > 0;
        if sim.plan.is_well() && !is_blocked && took_us > soon_us {
            self.wrong(sim, &format!("took {took_us} µs, but the store is healthy and {soon_us} µs are enough"));
        }
    }

    fn wrong(&self, sim: &Sim, what: &str) {
        let Self { what: call, caller, part, .. } = self;
        sim.book.wrong(sim.exec.now_us(), &format!("{call} of {caller} on {part:?} {what}"));
    }
}
