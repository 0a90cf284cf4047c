//! A switch that ends a wait from another thread.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Ends waits in [`Mutex::lock_or_cancel`](super::Mutex::lock_or_cancel) and in the other methods in `_or_cancel` from
/// another thread.
///
/// A canceller ends all waits that use it or a clone of it: those that have begun and those that begin later. It cannot be
/// reset; create a new one instead.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    is_cancelled: AtomicBool,
    turned: Notify,
}

impl Canceller {
    /// Returns a canceller that has not canceled anything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all waits that use this canceller, now and later. It does not block, and may be called again.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        self.0.turned.notify_waiters();
    }

    /// Returns whether [`Canceller::cancel`] was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    pub(crate) async fn cancelled(&self) {
        let mut turned = pin!(self.0.turned.notified());
        // Enabled before the check, so that a call of `cancel` between the two is not missed.
        turned.as_mut().enable();
        if !self.is_cancelled() {
            turned.await;
        }
    }
}
