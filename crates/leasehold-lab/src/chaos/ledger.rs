//! The record of the faults that struck. Clones share it, because some faults strike on threads of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_testkit::{Recorder, boottime_us};

use super::calm::{Calm, Follow};
use super::kind::Kind;
use super::line::{Line, Place};

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    struck: BTreeMap<Kind, u64>,
    /// The log of this round.
    log: Vec<String>,
    begun_us: u64,
    recorder: Recorder,
    /// A time at which each killed client was surely dead, by label.
    deaths: BTreeMap<String, u64>,
    calm: Calm,
    line: Line,
}

impl Default for Inner {
    fn default() -> Self {
        let (recorder, begun_us) = (Recorder::in_memory(), boottime_us());
        Self {
            struck: BTreeMap::new(),
            log: Vec::new(),
            begun_us,
            recorder,
            deaths: BTreeMap::new(),
            calm: Calm::default(),
            line: Line::default(),
        }
    }
}

impl Ledger {
    /// Begins a round.
    pub(crate) fn begin(&self) {
        let mut inner = self.inner();
        let struck = std::mem::take(&mut inner.struck);
        *inner = Inner { struck, ..Inner::default() };
    }

    /// Returns the recorder for the lab's own part of the round's history.
    pub(crate) fn recorder(&self) -> Recorder {
        self.inner().recorder.clone()
    }

    /// Records that a fault has struck.
    pub(crate) fn struck(&self, kind: Kind) {
        *self.inner().struck.entry(kind).or_default() += 1;
    }

    /// Logs an action; its times are those of the histories.
    pub(crate) fn note(&self, kind: Kind, what: &str) {
        let mut inner = self.inner();
        let at_us = boottime_us();
        let into_s = at_us.saturating_sub(inner.begun_us) as f64 / 1e6;
        inner.log.push(format!("{into_s:>7.3} s  {at_us} µs  {kind:?}: {what}"));
    }

    /// Records that a client was killed.
    pub(crate) fn died(&self, label: String) {
        self.inner().deaths.insert(label, boottime_us());
    }

    /// Returns the clients killed in this round, and the times.
    pub(crate) fn deaths(&self) -> BTreeMap<String, u64> {
        self.inner().deaths.clone()
    }

    /// Records that the store was not broken between these times, so every call must succeed.
    pub(crate) fn calm(&self, from_us: u64, to_us: u64) {
        self.inner().calm.times.push((from_us, to_us));
    }

    /// Extends the last calm time until then.
    pub(crate) fn calm_until(&self, to_us: u64) {
        if let Some(last) = self.inner().calm.times.last_mut() {
            last.1 = to_us;
        }
    }

    /// Records that another client must follow a holder.
    pub(crate) fn follow(&self, follow: Follow) {
        self.inner().calm.follows.push(follow);
    }

    /// Returns the promises that are judged in this round.
    pub(crate) fn promised(&self) -> Calm {
        self.inner().calm.clone()
    }

    /// Records that a client was seen in a queue.
    pub(crate) fn stands(&self, place: Place) {
        self.inner().line.places.push(place);
    }

    /// Records that a holder of the queue was killed.
    pub(crate) fn line_is_behind_a_death(&self) {
        self.inner().line.is_behind_a_death = true;
    }

    /// Returns the queue of this round.
    pub(crate) fn line(&self) -> Line {
        self.inner().line.clone()
    }

    pub(crate) fn counts(&self) -> BTreeMap<Kind, u64> {
        self.inner().struck.clone()
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.inner().log.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
