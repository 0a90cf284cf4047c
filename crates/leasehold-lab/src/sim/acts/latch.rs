//! Latches: tasks create, count down, wait and delete. They are acts beside those of the mutex.

use std::time::Duration;

use leasehold::{Error, ErrorKind};

use super::super::call::Method;
use super::super::plan::MS;
use super::super::worker::Worker;
use super::pool::patience;

const CREATE: Method = Method::asks("create of a latch");
const COUNT: Method = Method::asks("count_down");
const WAIT: Method = Method::waits("wait for a latch");
const DELETE: Method = Method::asks("delete of a latch");

pub(super) async fn act(worker: &mut Worker, name: &str) {
    let latch = worker.leasehold.latch(format!("{name}: done")).keep(Duration::from_secs(30));
    let (kind, wait) = (worker.rng.below(10), patience(worker));
    let (method, result) = match kind {
        0..3 => (CREATE, latch.create(2).await),
        3..5 => (COUNT, latch.count_down_as(&worker.caller).await),
        5..7 => {
            // The request is repeated whatever becomes of its future.
            let after_us = worker.rng.scaled(1, 2_000 * MS);
            tokio::select! {
                biased;
                counted = latch.count_down() => (COUNT, counted),
                () = worker.sleep(after_us) => return worker.sim.book.count("a dropped count-down"),
            }
        }
        7..9 => (WAIT, latch.wait_for(wait).await.map(drop)),
        _ => (DELETE, latch.delete().await),
    };
    match result {
        Ok(()) => worker.sim.book.count("an act of a latch"),
        Err(error) if error.kind() == ErrorKind::Absent => worker.sim.book.count("a latch that is absent"),
        Err(error) => failed(worker, method, &error),
    }
}

fn failed(worker: &Worker, method: Method, error: &Error) {
    let call = worker.call(method.what);
    // A wait with a limit may end without a reply.
    let method = Method { waits: false, ..method };
    worker.check_result(method, Some(error), &call);
}
