//! What ends a wait from outside.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Ends the waits of [`Mutex::lock_or_cancel`](super::Mutex::lock_or_cancel) from another thread: all that use it or a
/// clone of it, those that have begun and those that begin later. It cannot be taken back: make a new one.
#[derive(Clone, Debug, Default)]
pub struct Canceller(Arc<Switch>);

#[derive(Debug, Default)]
struct Switch {
    is_cancelled: AtomicBool,
    turned: Notify,
}

impl Canceller {
    /// One that has cancelled nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every wait that uses it, before its beginning or during it. Blocks nobody, and may be called again.
    pub fn cancel(&self) {
        self.0.is_cancelled.store(true, Ordering::SeqCst);
        self.0.turned.notify_waiters();
    }

    /// Whether it was called.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled.load(Ordering::SeqCst)
    }

    pub(crate) async fn cancelled(&self) {
        let mut turned = pin!(self.0.turned.notified());
        // Listed before the look: a call between the two would be heard by nobody.
        turned.as_mut().enable();
        if !self.is_cancelled() {
            turned.await;
        }
    }
}
