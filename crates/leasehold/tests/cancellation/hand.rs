//! Futures that a test drives by hand: it decides when they are polled, and where they are dropped.
//!
//! No runtime polls them, so that tokio's budget of 128 steps does not make them pending.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold_testkit::wait_until;

const SOON: Duration = Duration::from_secs(20);

/// A future, and how often it was woken since the last poll.
pub(crate) struct Driven<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    wakes: Arc<Wakes>,
}

struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl<T> Driven<T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self { future: Box::pin(future), wakes: Arc::new(Wakes(AtomicU64::new(0))) }
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        self.wakes.0.store(0, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.wakes));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.wakes.0.load(Ordering::SeqCst) > 0
    }

    /// Polls the future whenever it is woken, until it is ready.
    pub(crate) fn finish(mut self, what: &str) -> T {
        let mut ready = None;
        let mut poll = || match self.poll() {
            Poll::Ready(output) => ready = Some(output),
            Poll::Pending => {}
        };
        poll();
        wait_until(what, SOON, || {
            if ready.is_none() && self.is_woken() {
                match self.poll() {
                    Poll::Ready(output) => ready = Some(output),
                    Poll::Pending => {}
                }
            }
            ready.is_some()
        });
        ready.expect("it was awaited")
    }
}

/// Polls each future once, and expects that none is ready.
#[track_caller]
pub(crate) fn poll_all<T>(futures: &mut [Driven<T>]) {
    for (number, future) in futures.iter_mut().enumerate() {
        assert!(future.poll().is_pending(), "future {number} was ready too early");
    }
}

/// Polls the futures that were woken, until `done` returns true.
#[track_caller]
pub(crate) fn drive<T>(what: &str, futures: &mut [Driven<T>], mut done: impl FnMut() -> bool) {
    wait_until(what, SOON, || {
        for (number, future) in futures.iter_mut().enumerate() {
            if future.is_woken() {
                assert!(future.poll().is_pending(), "future {number} was ready too early");
            }
        }
        done()
    });
}

#[track_caller]
pub(crate) fn until(what: &str, done: impl FnMut() -> bool) {
    wait_until(what, SOON, done);
}
