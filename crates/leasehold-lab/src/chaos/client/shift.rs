//! A round in the view of one process: its records, what its tasks do now, and when it is over.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_spec::mark::{self, Mark};
use leasehold_testkit::{Recorder, boottime_us};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::super::names::Names;
use super::super::notes::Notes;
use super::super::options::Store;
use super::super::report::PATH;
use super::runtimes::Runtimes;

/// A round in the view of one process.
pub(super) struct Shift {
    pub(super) names: Names,
    pub(super) store: Store,
    pub(super) recorder: Recorder,
    pub(super) notes: Notes,
    pub(super) is_over: watch::Receiver<bool>,
    pub(super) runtimes: Arc<Runtimes>,
    /// The runtime with the timers: it never ends.
    clock: Handle,
    doings: Mutex<BTreeMap<String, Doing>>,
    is_shut: AtomicBool,
    tally: Mutex<BTreeMap<String, u64>>,
    /// The paths that this process had taken before the round.
    marks_before: Vec<(Mark, u64)>,
}

/// The current activity of a task.
#[derive(Clone, Debug)]
pub(super) struct Doing {
    pub(super) client: String,
    pub(super) what: &'static str,
    pub(super) name: String,
    pub(super) since_us: u64,
}

impl Shift {
    pub(super) fn new(
        (names, store, runtimes): (Names, Store, Arc<Runtimes>),
        recorder: Recorder,
        notes: Notes,
        is_over: watch::Receiver<bool>,
    ) -> Self {
        let (doings, tally, marks_before) = (Mutex::default(), Mutex::default(), mark::everywhere());
        let is_shut = AtomicBool::new(false);
        let clock = Handle::current();
        Self { names, store, recorder, notes, is_over, runtimes, clock, doings, is_shut, tally, marks_before }
    }

    pub(super) fn over(&self) -> bool {
        *self.is_over.borrow()
    }

    /// Sleeps, but not beyond the end of the round. A timer of a runtime that is ending would panic if it were polled
    /// just then.
    pub(super) async fn sleep(&self, time: Duration) {
        let mut is_over = self.is_over.clone();
        let slept = {
            let _entered = self.clock.enter();
            tokio::time::sleep(time)
        };
        tokio::select! {
            _ = is_over.wait_for(|over| *over) => {}
            () = slept => {}
        }
    }

    /// Returns the activities that are not finished.
    pub(super) fn doings(&self) -> Vec<Doing> {
        self.doings.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Returns the counts of events, and of the library's paths, as JSON.
    pub(super) fn tally(&self) -> String {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((mark, times), (_, before)) in mark::everywhere().into_iter().zip(&self.marks_before) {
            tally.insert(format!("{PATH}{}", mark.name()), times - before);
        }
        serde_json::to_string(&tally).expect("plain numbers")
    }

    pub(super) fn count(&self, what: &str) {
        *self.tally.lock().unwrap_or_else(PoisonError::into_inner).entry(what.into()).or_default() += 1;
    }

    pub(super) fn doing(&self, client: &str, what: &'static str, name: &str) {
        let doing = Doing { client: client.into(), what, name: name.into(), since_us: boottime_us() };
        self.doings.lock().unwrap_or_else(PoisonError::into_inner).insert(client.into(), doing);
    }

    pub(super) fn idle(&self, client: &str) {
        self.doings.lock().unwrap_or_else(PoisonError::into_inner).remove(client);
    }

    /// Declares that the round no longer waits for tasks: tasks that are dropped from now on are not counted.
    pub(super) fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }

    /// Records that a task was dropped together with its wait or its lock. Returns whether it had any.
    pub(super) fn ended(&self, task: &str) -> bool {
        if self.is_shut.load(Ordering::SeqCst) {
            return false;
        }
        let mut doings = self.doings.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of =
            |client: &str| client.strip_prefix(task).is_some_and(|turn| turn.is_empty() || turn.starts_with('.'));
        let ended: Vec<Doing> = doings.values().filter(|doing| is_of(&doing.client)).cloned().collect();
        doings.retain(|client, _| !is_of(client));
        drop(doings);
        for doing in &ended {
            self.recorder.died(&doing.client);
            self.count(&format!("its runtime ended: {}", doing.what));
        }
        !ended.is_empty()
    }
}
