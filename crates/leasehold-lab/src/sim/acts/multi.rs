//! Multi-locks over two mutexes, which belong to no other act. These are acts beside those of the mutex.

use super::super::call::Method;
use super::super::plan::MS;
use super::super::worker::Worker;
use super::pool::random_wait;

const LOCK: Method = Method::asks("lock of several");

pub(super) async fn act(worker: &mut Worker, name: &str) {
    let lease = worker.lease();
    let mutex = |part: &str| worker.leasehold.mutex(format!("{name}: {part}")).lease(lease);
    let both = leasehold::all([mutex("left"), mutex("right")]);
    let wait = random_wait(worker);
    let drops_after_us = if worker.rng.percent(20) { worker.rng.scaled(1, 2_000 * MS) } else { u64::MAX / 2 };
    let call = worker.call(LOCK.what);
    let result = tokio::select! {
        biased;
        result = both.try_lock_for(wait) => result,
        () = worker.sleep(drops_after_us) => return worker.sim.book.count("a dropped lock of several"),
    };
    match result {
        Ok(Some(guard)) => {
            worker.sim.book.count("several locked");
            let hold_us = worker.rng.scaled(1, 500 * MS);
            worker.sleep(hold_us).await;
            let end = if guard.check().is_ok() { "several held to the end" } else { "several lost" };
            worker.sim.book.count(end);
            drop(guard);
        }
        Ok(None) => worker.sim.book.count("several not locked"),
        Err(error) => worker.check_result(LOCK, Some(&error), &call),
    }
}
