//! The tokio runtimes of a client process: faults block or end one of them, and the program goes on with the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::oneshot;

/// The worker threads of each runtime; 0 is a `current_thread` runtime.
const WORKERS: [usize; RUNTIMES] = [0, 1, 2];
/// How many runtimes a client process has.
pub(crate) const RUNTIMES: usize = 3;

/// All runtimes of the process except the one that receives the lab's orders.
#[derive(Debug)]
pub(super) struct Runtimes([Place; RUNTIMES]);

/// A place for a runtime. A runtime that has ended is replaced.
#[derive(Debug)]
struct Place {
    running: Mutex<Running>,
    /// How often the runtime of this place was blocked or ended.
    troubles: AtomicU64,
    /// How many sleeps block it now.
    blocked: AtomicU64,
}

#[derive(Debug)]
enum Running {
    /// Driven by a thread of its own until this is dropped.
    Current(Handle, oneshot::Sender<()>),
    Multi(Runtime),
}

impl Runtimes {
    pub(super) fn start() -> Arc<Self> {
        let place = |workers| Place {
            running: Mutex::new(Running::start(workers)),
            troubles: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
        };
        Arc::new(Self(WORKERS.map(place)))
    }

    pub(super) fn handle(&self, at: usize) -> Handle {
        match &*self.running(at) {
            Running::Current(handle, _) => handle.clone(),
            Running::Multi(runtime) => runtime.handle().clone(),
        }
    }

    /// Returns a number that changes whenever this runtime is blocked or ends; `None` while it is blocked.
    pub(super) fn undisturbed(&self, at: usize) -> Option<u64> {
        let place = &self.0[at];
        let troubles = place.troubles.load(Ordering::SeqCst);
        (place.blocked.load(Ordering::SeqCst) == 0).then_some(troubles)
    }

    /// Blocks every thread of this runtime, and calls `begun` once the last one is blocked.
    pub(super) fn block(self: &Arc<Self>, at: usize, time: Duration, begun: impl FnOnce() + Send + 'static) {
        let (place, handle) = (&self.0[at], self.handle(at));
        place.troubles.fetch_add(1, Ordering::SeqCst);
        let workers = WORKERS[at].max(1);
        place.blocked.fetch_add(workers as u64, Ordering::SeqCst);
        let ends: Vec<Unblocks> = (0..workers).map(|_| Unblocks(Arc::clone(self), at)).collect();
        let until = Instant::now() + time;
        // The threads are blocked one after the other, and from outside: a worker that took both tasks would sleep
        // twice.
        thread::spawn(move || {
            for ends in ends {
                let (sender, receiver) = mpsc::channel();
                handle.spawn(async move {
                    let _gone = sender.send(());
                    thread::sleep(until.saturating_duration_since(Instant::now()));
                    drop(ends);
                });
                if receiver.recv().is_err() {
                    return;
                }
            }
            if Instant::now() < until {
                begun();
            }
        });
    }

    /// Ends this runtime in the background, with all its tasks, and starts another in its place.
    pub(super) fn replace(&self, at: usize) {
        self.0[at].troubles.fetch_add(1, Ordering::SeqCst);
        match std::mem::replace(&mut *self.running(at), Running::start(WORKERS[at])) {
            Running::Current(_, end) => drop(end),
            Running::Multi(runtime) => runtime.shutdown_background(),
        }
    }

    fn running(&self, at: usize) -> MutexGuard<'_, Running> {
        self.0[at].running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn start(workers: usize) -> Self {
        const STARTS: &str = "a runtime can be started";
        if workers > 0 {
            let mut builder = Builder::new_multi_thread();
            return Self::Multi(builder.worker_threads(workers).enable_all().build().expect(STARTS));
        }
        let runtime = Builder::new_current_thread().enable_all().build().expect(STARTS);
        let (handle, (end, ended)) = (runtime.handle().clone(), oneshot::channel());
        thread::spawn(move || {
            let _dropped = runtime.block_on(ended);
            runtime.shutdown_background();
        });
        Self::Current(handle, end)
    }
}

/// Unblocks a thread. It is dropped when a sleep is over, or when its runtime ended before the sleep began.
struct Unblocks(Arc<Runtimes>, usize);

impl Drop for Unblocks {
    fn drop(&mut self) {
        self.0.0[self.1].blocked.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs work that blocks its thread for a moment. A `multi_thread` runtime goes on meanwhile.
pub(super) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn one_runtime_is_blocked_and_the_others_go_on() {
        let runtimes = Runtimes::start();
        for at in 0..RUNTIMES {
            let (sender, receiver) = mpsc::channel();
            runtimes.block(at, Duration::from_millis(300), {
                let sender = sender.clone();
                move || sender.send("blocked").expect("the test listens")
            });
            assert_eq!(receiver.recv_timeout(SOON), Ok("blocked"));
            for (there, word) in [(at, "blocked runtime"), ((at + 1) % RUNTIMES, "other runtime")] {
                let sender = sender.clone();
                runtimes.handle(there).spawn(async move { sender.send(word) });
            }
            assert!(runtimes.undisturbed(at).is_none() && runtimes.undisturbed((at + 1) % RUNTIMES).is_some());
            assert_eq!(receiver.recv_timeout(SOON), Ok("other runtime"));
            assert_eq!(receiver.recv_timeout(SOON), Ok("blocked runtime"));
        }
    }

    #[test]
    fn a_runtime_ends_with_its_tasks_and_is_replaced() {
        let runtimes = Runtimes::start();
        for at in 0..RUNTIMES {
            let before = runtimes.undisturbed(at);
            let (held, ended) = mpsc::channel::<()>();
            runtimes.handle(at).spawn(async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            runtimes.replace(at);
            assert_eq!(ended.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected));
            let (sender, receiver) = mpsc::channel();
            runtimes.handle(at).spawn(async move { sender.send(()) });
            assert_eq!(receiver.recv_timeout(SOON), Ok(()));
            assert_ne!(runtimes.undisturbed(at), before);
        }
    }
}
