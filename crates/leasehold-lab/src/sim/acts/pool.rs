//! The acts of read-write locks and of semaphores: a task waits, tries, waits for a while, or gives up.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Result;

use super::super::call::Method;
use super::super::plan::MS;
use super::super::roam::tried;
use super::super::worker::Worker;
use crate::lease::Lease;

/// Waits. Returns whether it was granted.
pub(super) async fn wait<L: Lease>(
    worker: &mut Worker,
    method: Method,
    name: &str,
    asking: impl Future<Output = Result<L>>,
) -> bool {
    let call = worker.call(method.what);
    match asking.await {
        Ok(guard) => {
            worker.judge_latency(&guard, name);
            worker.section(guard, name, call.began_us).await;
            true
        }
        Err(error) => {
            worker.check_result(method, Some(&error), &call);
            false
        }
    }
}

/// Tries.
pub(super) async fn try_once<L: Lease>(
    worker: &mut Worker,
    method: Method,
    name: &str,
    asking: impl Future<Output = Result<Option<L>>>,
) {
    let call = worker.call(method.what);
    let result = asking.await;
    // A first request that came too late is followed by another.
    worker.returned(&call, 4_000 * MS);
    tried(worker, method, result, &call, name).await;
}

/// Returns for how long a caller waits: often for less time than a store takes.
pub(super) fn random_wait(worker: &mut Worker) -> Duration {
    let is_short = worker.rng.percent(30);
    Duration::from_micros(if is_short { worker.rng.between(0, 50 * MS) } else { worker.rng.scaled(MS, 10_000 * MS) })
}

/// Waits for a while.
pub(super) async fn try_for<L: Lease>(
    worker: &mut Worker,
    (method, wait): (Method, Duration),
    name: &str,
    asking: impl Future<Output = Result<Option<L>>>,
) {
    let call = worker.call(method.what);
    let result = asking.await;
    call.returned_within(&worker.sim, wait.as_micros() as u64 + 2_000 * MS);
    tried(worker, method, result, &call, name).await;
}

/// Waits, and drops the future after a while.
pub(super) async fn give_up<L: Lease>(
    worker: &mut Worker,
    method: Method,
    name: &str,
    asking: impl Future<Output = Result<L>>,
) {
    let (call, after_us) = (worker.call(method.what), worker.rng.scaled(1, 4_000 * MS));
    let storm = Arc::clone(&worker.storm);
    let granted = tokio::select! {
        biased;
        granted = asking => Some(granted),
        () = storm.notified() => None,
        () = worker.sleep(after_us) => None,
    };
    match granted {
        Some(Ok(guard)) => worker.section(guard, name, call.began_us).await,
        Some(Err(error)) => worker.check_result(method, Some(&error), &call),
        None => worker.sim.book.count("a dropped future"),
    }
}
