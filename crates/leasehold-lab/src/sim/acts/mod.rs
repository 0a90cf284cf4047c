//! The acts of workers. Each primitive has a file of its own with its acts, and a row in [`PRIMITIVES`]. The parts that all
//! primitives share are beside this folder: calls and the times that they promise (`call.rs`), sections and their effects
//! (`under.rs`), calls that change their runtime (`roam.rs`).

mod barrier;
mod condvar;
mod election;
mod latch;
mod multi;
mod mutex;
mod pool;
mod rwlock;
mod semaphore;
mod table;

pub(super) use election::name as election;

use super::plan::MS;
use super::worker::Worker;
use table::Primitive;

/// The records that the acts of a run share, apart from the history of grants.
#[derive(Default)]
pub(super) struct Ledgers {
    waits: condvar::Waits,
    rounds: barrier::Rounds,
    counts: latch::Counts,
    values: election::Values,
}

const PRIMITIVES: &[Primitive] = &[mutex::PRIMITIVE, rwlock::PRIMITIVE, semaphore::PRIMITIVE];

/// How often a worker asks at the end, when a memory may just have been full.
const LAST_TRIES: usize = 3;

/// Returns the primitive of a name.
pub(super) fn of(name: &str) -> &'static Primitive {
    let its = PRIMITIVES.iter().find(|primitive| name.starts_with(primitive.word));
    its.unwrap_or_else(|| panic!("{name} belongs to no primitive"))
}

/// Does one act after the other, until the worker's time is over.
pub(super) async fn work(mut worker: Worker) {
    while worker.sim.exec.now_us() < worker.until_us {
        let think_us = worker.rng.scaled(1000, worker.sim.plan.think_us);
        worker.sleep(think_us).await;
        let name = worker.name();
        (of(&name).act)(&mut worker, &name).await;
    }
    // Any caller that asks now is served, whatever has happened.
    let name = worker.sim.plan.names[0].clone();
    let lease = worker.lease();
    for _ in 0..LAST_TRIES {
        if (of(&name).ask)(&mut worker, &name, lease).await {
            return;
        }
        worker.sleep(1_000 * MS).await;
    }
    if worker.until_us == worker.sim.plan.chaos_us {
        worker.wrong("a caller that asks at the end is refused");
    }
}
