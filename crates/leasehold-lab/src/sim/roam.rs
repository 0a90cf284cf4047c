//! Calls that do not stay on one runtime: guards that are given back on another runtime than the one on which they were
//! acquired, futures that begin on one runtime and are awaited on another, and callers that block their runtime with an
//! executor of their own.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::{Guard, Mutex, Result};
use tokio::sync::oneshot;

use super::book::Grant;
use super::call::Call;
use super::exec::{Exec, Halt, Part, Pid};
use super::worker::{MS, Worker};

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

impl Worker {
    /// Returns another part of the program, if it has one.
    fn elsewhere(&mut self) -> Option<Part> {
        let runtimes = self.sim.exec.runtimes(self.pid).into_iter().map(Part::Runtime);
        let mut parts: Vec<Part> = runtimes.filter(|part| *part != self.part).collect();
        if self.part != Part::Thread && self.sim.plan.threads > 0 {
            parts.push(Part::Thread);
        }
        if parts.is_empty() { None } else { Some(*self.rng.pick(&parts)) }
    }

    /// Returns the same worker on another part.
    fn deputy(&mut self, part: Part) -> Self {
        Self { part, rng: self.rng.fork(), ..self.clone() }
    }

    /// Gives a guard back: here, or on another part of the program.
    pub(super) async fn give_back(&mut self, guard: Guard, grant: &Grant) {
        let there = if self.rng.percent(self.sim.plan.abroad) { self.elsewhere() } else { None };
        let Some(there) = there else { return self.release(guard, grant).await };
        self.sim.book.count("a release on another runtime");
        let (mut deputy, grant) = (self.deputy(there), grant.clone());
        let release = async move { deputy.release(guard, &grant).await };
        // If that part ends meanwhile, the session continues with the release.
        let _released_or_ended = self.sim.exec.on(self.pid, there, "a release elsewhere", release).await;
    }

    /// Begins a call on one part, and awaits it on another.
    pub(super) async fn wander(&mut self, mutex: &Mutex, name: &str) {
        let Some(there) = self.elsewhere() else { return self.try_lock_for(mutex, name).await };
        let (wait_us, mutex) = (self.rng.scaled(MS, 10_000 * MS), mutex.clone());
        let call = Call::begins(&self.sim, "try_lock_for, from elsewhere", &self.caller, (self.pid, there));
        let mut asking = Box::pin(async move { mutex.try_lock_for(Duration::from_micros(wait_us)).await });
        let tried = match poll_fn(|context| Poll::Ready(asking.as_mut().poll(context))).await {
            Poll::Ready(tried) => tried,
            Poll::Pending => {
                self.sim.book.count("a future that continues on another runtime");
                let sim = Arc::clone(&self.sim);
                let asking = async move {
                    let tried = asking.await;
                    // The runtime on which the call began may have its request: the session has to find that out.
                    call.returned_within(&sim, wait_us + 2_500 * MS);
                    (tried, call)
                };
                let Some(done) = self.sim.exec.on(self.pid, there, "a future from elsewhere", asking).await else {
                    return;
                };
                return self.arrived(done, name).await;
            }
        };
        self.tried(tried, &call, name).await;
    }

    /// Waits by an executor of its own, on the thread of its runtime, which polls nothing else meanwhile.
    pub(super) async fn block(&mut self, mutex: &Mutex, name: &str) {
        let Part::Runtime(number) = self.part else { return self.try_lock(mutex, name).await };
        let wait_us = self.rng.scaled(MS, 2_000 * MS);
        let waits = self.rng.percent(70);
        let call =
            Call::begins(&self.sim, "a call that blocks its runtime", &self.caller, (self.pid, Part::Inside(number)));
        let (sim, mutex) = (Arc::clone(&self.sim), mutex.clone());
        let tried = self.blocked(number, async move {
            let tried = match waits {
                true => mutex.try_lock_for(Duration::from_micros(wait_us)).await,
                false => mutex.try_lock().await,
            };
            call.returned_within(&sim, if waits { wait_us + 2_000 * MS } else { 4_000 * MS });
            (tried, call)
        });
        if let Some(done) = tried.await {
            self.arrived(done, name).await;
        }
    }

    /// Handles the result of a try.
    pub(super) async fn tried(&mut self, tried: Result<Option<Guard>>, call: &Call, name: &str) {
        match tried {
            Ok(Some(guard)) => self.section(guard, name, call.began_us).await,
            Ok(None) => {}
            // A caller that prevents its own answer gets an error.
            Err(error) => self.failed("try_lock", &error, call.is_blocked() || call.program_stood_still(&self.sim)),
        }
    }

    /// Handles the result of a try on another part. This part may have stood still since, and the lease may be over.
    async fn arrived(&mut self, (tried, call): (Result<Option<Guard>>, Call), name: &str) {
        match tried {
            Ok(Some(guard)) if guard.check().is_err() => drop(guard),
            tried => self.tried(tried, &call, name).await,
        }
    }

    /// Runs a future on the thread of a runtime, which polls nothing else until it is done.
    async fn blocked<T: Send + 'static>(
        &self,
        number: usize,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (exec, pid, part) = (Arc::clone(&self.sim.exec), self.pid, Part::Runtime(number));
        self.sim.book.count("a runtime that its caller blocks");
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
}
