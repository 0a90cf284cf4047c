//! Calls that do not stay on one runtime: futures that begin on one runtime and are awaited on another, and callers that
//! block their runtime with an executor of their own.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use leasehold::Result;
use leasehold::seam::Pending;
use tokio::sync::oneshot;

use super::call::{Call, Method};
use super::exec::{Exec, Halt, Part, Pid};
use super::plan::MS;
use super::worker::Worker;
use crate::lease::Lease;

/// A blocked runtime, until this is dropped.
struct Blocked {
    exec: Arc<Exec>,
    pid: Pid,
    part: Part,
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.exec.resume(self.pid, Halt::Only(self.part));
    }
}

/// A call that returns a guard, or nothing while another client holds.
pub(super) struct Asking<L> {
    pub(super) method: Method,
    pub(super) result: Pending<Result<Option<L>>>,
    pub(super) within_us: u64,
}

/// Begins a call on one part, and awaits it on another.
pub(super) async fn wander<L: Lease>(worker: &mut Worker, there: Part, asking: Asking<L>, name: &str) {
    let Asking { method, mut result, within_us } = asking;
    let what = "a call from elsewhere";
    let call = Call::begins(&worker.sim, what, &worker.caller, (worker.pid, there));
    let tried = match poll_fn(|context| Poll::Ready(result.as_mut().poll(context))).await {
        Poll::Ready(tried) => tried,
        Poll::Pending => {
            worker.sim.book.count("a future that continues on another runtime");
            let sim = Arc::clone(&worker.sim);
            let asking = async move {
                let tried = result.await;
                // The runtime on which the call began may have its request: the session has to find that out.
                call.returned_within(&sim, within_us + 500 * MS);
                (tried, call)
            };
            let Some(done) = worker.sim.exec.on(worker.pid, there, "a future from elsewhere", asking).await else {
                return;
            };
            return arrived(worker, method, done, name).await;
        }
    };
    self::tried(worker, method, tried, &call, name).await;
}

/// Waits by an executor of its own, on the thread of its runtime, which polls nothing else meanwhile.
pub(super) async fn block<L: Lease>(worker: &mut Worker, number: usize, asking: Asking<L>, name: &str) {
    let Asking { method, result, within_us } = asking;
    let (what, part) = ("a call that blocks its runtime", Part::Inside(number));
    let call = Call::begins(&worker.sim, what, &worker.caller, (worker.pid, part));
    let sim = Arc::clone(&worker.sim);
    let tried = blocked(worker, number, async move {
        let tried = result.await;
        call.returned_within(&sim, within_us);
        (tried, call)
    });
    if let Some(done) = tried.await {
        arrived(worker, method, done, name).await;
    }
}

/// Handles the result of a try.
pub(super) async fn tried<L: Lease>(
    worker: &mut Worker,
    method: Method,
    tried: Result<Option<L>>,
    call: &Call,
    name: &str,
) {
    match tried {
        Ok(Some(guard)) => worker.section(guard, name, call.began_us).await,
        Ok(None) => {}
        // A caller that prevents its own answer gets an error.
        Err(error) => worker.failed(method, &error, call.is_blocked() || call.program_stood_still(&worker.sim)),
    }
}

/// Handles the result of a try on another part. This part may have stood still since, and the lease may be over.
async fn arrived<L: Lease>(worker: &mut Worker, method: Method, (tried, call): (Result<Option<L>>, Call), name: &str) {
    match tried {
        Ok(Some(guard)) if guard.check().is_err() => drop(guard),
        tried => self::tried(worker, method, tried, &call, name).await,
    }
}

/// Runs a future on the thread of a runtime, which polls nothing else until it is done.
async fn blocked<T: Send + 'static>(
    worker: &Worker,
    number: usize,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (exec, pid, part) = (Arc::clone(&worker.sim.exec), worker.pid, Part::Runtime(number));
    worker.sim.book.count("a runtime that its caller blocks");
    exec.halt(pid, Halt::Only(part));
    let blocked = Blocked { exec: Arc::clone(&exec), pid, part };
    let (sender, receiver) = oneshot::channel();
    let work = async move {
        let done = work.await;
        drop(sender.send(done));
        drop(blocked);
    };
    exec.spawn(pid, Part::Inside(number), "a call that blocks its runtime", Box::pin(work));
    receiver.await.ok()
}
