//! Barriers: tasks arrive, stop waiting, and are dropped while they wait. These are acts beside those of the mutex.

use std::time::Duration;

use leasehold::ErrorKind;

use super::super::call::Method;
use super::super::plan::MS;
use super::super::worker::Worker;
use super::pool::patience;

const WAIT: Method = Method::asks("wait at a barrier");

pub(super) async fn act(worker: &mut Worker, name: &str) {
    // The simulated stores forget nothing for want of use while the others wait.
    let lease = Duration::from_millis(worker.rng.between(1_000, 30_000));
    let barrier = worker.leasehold.barrier(format!("{name}: step"), 2).lease(lease);
    let wait = patience(worker);
    let drops_after_us = if worker.rng.percent(20) { worker.rng.scaled(1, 5_000 * MS) } else { u64::MAX / 2 };
    let call = worker.call(WAIT.what);
    let result = tokio::select! {
        biased;
        result = barrier.wait_for(wait) => result,
        () = worker.sleep(drops_after_us) => return worker.sim.book.count("a dropped arrival"),
    };
    match result {
        Ok(Some(passed)) if passed.is_leader() => worker.sim.book.count("a round let through"),
        Ok(Some(_)) => worker.sim.book.count("another party let through"),
        Ok(None) => worker.sim.book.count("an arrival whose time was over"),
        Err(error) if error.kind() == ErrorKind::Broken => worker.sim.book.count("a broken round"),
        Err(error) => worker.check_result(WAIT, Some(&error), &call),
    }
}
