//! Latches: tasks create, count down, wait and delete. They are acts beside those of the mutex.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex as Lock};
use std::time::Duration;

use leasehold::ErrorKind;

use super::super::call::Method;
use super::super::exec::lock;
use super::super::plan::MS;
use super::super::worker::Worker;
use super::pool::random_wait;

const CREATE: Method = Method::asks("create of a latch");
const COUNT: Method = Method::asks("count_down");
const WAIT: Method = Method::asks("wait for a latch");
const DELETE: Method = Method::asks("delete of a latch");

/// How many count-downs open a latch.
const COUNTS: u32 = 2;

/// The count-downs of a run.
#[derive(Default)]
pub(super) struct Counts(Lock<Vec<Count>>);

struct Count {
    name: String,
    /// The part that counts once; `None` counts by itself.
    part: Option<String>,
    /// Open until its call returns. A request whose future was dropped may arrive at any time.
    until_us: Option<u64>,
}

impl Counts {
    fn begin(&self, name: &str, part: Option<&str>) -> usize {
        let mut counts = lock(&self.0);
        counts.push(Count { name: name.to_owned(), part: part.map(str::to_owned), until_us: None });
        counts.len() - 1
    }

    fn end(&self, number: usize, now_us: u64) {
        lock(&self.0)[number].until_us = Some(now_us);
    }

    /// A latch was deleted by a call that began then. An earlier count-down cannot count for a later latch.
    fn deleted(&self, name: &str, began_us: u64) {
        // The numbers of the others must stay.
        let counts = &mut *lock(&self.0);
        for count in counts.iter_mut().filter(|count| count.name == name) {
            if count.until_us.is_some_and(|until_us| until_us < began_us) {
                count.name.clear();
            }
        }
    }

    /// Whether there were enough count-downs to open a latch of this name.
    fn may_open(&self, name: &str) -> bool {
        let counts = lock(&self.0);
        let parts = counts.iter().filter(|count| count.name == name).map(|count| count.part.as_deref());
        let (mut alone, mut named) = (0, BTreeSet::new());
        for part in parts {
            match part {
                Some(part) => drop(named.insert(part)),
                None => alone += 1,
            }
        }
        alone + named.len() >= COUNTS as usize
    }
}

pub(super) async fn act(worker: &mut Worker, name: &str) {
    let name = &format!("{name}: done");
    let latch = worker.leasehold.latch(name).keep(Duration::from_secs(30));
    let (sim, call) = (Arc::clone(&worker.sim), worker.call("a call of a latch"));
    let counts = &sim.ledgers.counts;
    let (kind, wait) = (worker.rng.below(10), random_wait(worker));
    let (method, result) = match kind {
        0..3 => (CREATE, latch.create(COUNTS).await),
        3..5 => {
            let number = counts.begin(name, Some(&worker.caller));
            let counted = latch.count_down_as(&worker.caller).await;
            counts.end(number, sim.exec.now_us());
            (COUNT, counted)
        }
        5..7 => {
            // The request is repeated whatever becomes of its future.
            let after_us = worker.rng.scaled(1, 2_000 * MS);
            let number = counts.begin(name, None);
            tokio::select! {
                biased;
                counted = latch.count_down() => {
                    counts.end(number, sim.exec.now_us());
                    (COUNT, counted)
                }
                () = worker.sleep(after_us) => return worker.sim.book.count("a dropped count-down"),
            }
        }
        7..9 => {
            let waited = latch.wait_for(wait).await;
            if matches!(waited, Ok(true)) && sim.plan.remembers() && !counts.may_open(name) {
                worker.wrong("P44: a latch is open, and too few have counted down");
            }
            (WAIT, waited.map(drop))
        }
        _ => {
            let deleted = latch.delete().await;
            if deleted.is_ok() {
                counts.deleted(name, call.began_us);
            }
            (DELETE, deleted)
        }
    };
    match result {
        Ok(()) => worker.sim.book.count("an act of a latch"),
        Err(error) if error.kind() == ErrorKind::Absent => worker.sim.book.count("a latch that is absent"),
        Err(error) => worker.check_result(method, Some(&error), &call),
    }
}
