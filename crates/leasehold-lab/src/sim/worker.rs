//! A worker: a task of a client that uses locks. This file has what all acts of a worker need; the acts are in `acts/`.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Error, ErrorKind, Leasehold};
use tokio::sync::Notify;

use super::call::{Call, Method};
use super::exec::{Part, Pid};
use super::plan::MS;
use super::rng::Rng;
use super::stage::Sim;

#[derive(Clone)]
pub(super) struct Worker {
    pub(super) sim: Arc<Sim>,
    pub(super) pid: Pid,
    /// The part on which it is polled.
    pub(super) part: Part,
    pub(super) caller: String,
    pub(super) leasehold: Leasehold,
    pub(super) storm: Arc<Notify>,
    pub(super) rng: Rng,
    /// When to begin nothing new.
    pub(super) until_us: u64,
    /// Whether the last requested lock is renewed for as long as it is held.
    pub(super) is_renewed: bool,
    /// Whether the last requested lock is sticky: kept for a while when it is given back.
    pub(super) is_kept: bool,
    /// The last requested lease.
    pub(super) lease_us: u64,
}

impl Worker {
    pub(super) fn call(&self, what: &'static str) -> Call {
        Call::begins(&self.sim, what, &self.caller, (self.pid, self.part))
    }

    /// Judges a call that waits for one answer of the store: it returns in time, and soon if no fault interferes.
    pub(super) fn returned(&self, call: &Call, within_us: u64) {
        call.returned_within(&self.sim, within_us);
        call.returned_soon(&self.sim);
    }

    pub(super) fn check_result(&self, method: Method, error: Option<&Error>, call: &Call) {
        error.into_iter().for_each(|error| self.failed(method, error, call.program_stood_still(&self.sim)));
    }

    /// Handles a failed call. `has_stood` says whether its caller stood still meanwhile.
    pub(super) fn failed(&self, method: Method, error: &Error, has_stood: bool) {
        let Method { what, waits, may_lose } = method;
        self.sim.note(2, || format!("{}: {what}: {error}", self.caller));
        self.sim.book.count(error_label(error.kind()));
        let may = match error.kind() {
            ErrorKind::Unreachable | ErrorKind::Quorum => !waits && (has_stood || !self.sim.plan.is_well()),
            // Exactly the message of this store, and no other that it might report.
            ErrorKind::Store => error.to_string().contains("the memory of the store is full"),
            ErrorKind::Lost => may_lose,
            _ => false,
        };
        if !may {
            self.wrong(&format!("{what} failed: {error}"));
        }
    }

    pub(super) fn wrong(&self, what: &str) {
        self.sim.book.wrong(self.sim.exec.now_us(), &format!("{}: {what}", self.caller));
    }

    /// Picks the name of the next act.
    pub(super) fn name(&mut self) -> String {
        let names = &self.sim.plan.names;
        let is_hot = self.rng.below(10) < self.sim.plan.heat;
        if is_hot { names[0].clone() } else { self.rng.pick(names).clone() }
    }

    /// Picks a lease.
    pub(super) fn lease(&mut self) -> Duration {
        let lease_ms = *self.rng.pick(&self.sim.plan.leases_ms);
        self.lease_us = lease_ms * MS;
        Duration::from_millis(lease_ms)
    }

    /// Returns another part of the program, if it has one.
    pub(super) fn elsewhere(&mut self) -> Option<Part> {
        let runtimes = self.sim.exec.runtimes(self.pid).into_iter().map(Part::Runtime);
        let mut parts: Vec<Part> = runtimes.filter(|part| *part != self.part).collect();
        if self.part != Part::Thread && self.sim.plan.threads > 0 {
            parts.push(Part::Thread);
        }
        if parts.is_empty() { None } else { Some(*self.rng.pick(&parts)) }
    }

    /// Returns the same worker on another part.
    pub(super) fn deputy(&mut self, part: Part) -> Self {
        Self { part, rng: self.rng.fork(), ..self.clone() }
    }

    pub(super) fn sleep(&self, us: u64) -> leasehold::seam::Pending<()> {
        self.sim.exec.sleep(self.pid, Duration::from_micros(us))
    }
}

fn error_label(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Unreachable => "error: unreachable",
        ErrorKind::Quorum => "error: quorum",
        ErrorKind::Store => "error: store",
        ErrorKind::Lost => "error: lost",
        ErrorKind::Closed => "error: closed",
        _ => "error: otherwise",
    }
}
