//! The guard of a lock, for threads.

use std::fmt;
use std::time::Duration;

use leasehold_spec::Token;

use super::on_lost;
use super::wait::wait;
use crate::error::Result;
use crate::guard;
use crate::lost::{Lost, Released};

/// A held lock, like [`crate::Guard`]. Dropping it releases the lease in the background. [`Guard::release`] releases it
/// and returns the result. It is not bound to a thread.
#[must_use = "dropping the guard gives the lease back at once"]
pub struct Guard(guard::Guard);

impl Guard {
    pub(super) fn new(guard: guard::Guard) -> Self {
        Self(guard)
    }

    /// Returns the fencing token: see [`crate::Guard::token`].
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the token if the lease is certainly still held. No round trip. Use it with `?` before each effect.
    ///
    /// # Errors
    ///
    /// Which lock is lost, and why: see [`Lost`].
    pub fn check(&self) -> std::result::Result<Token, Lost> {
        self.0.check()
    }

    /// Returns whether the lease is certainly still held. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Returns for how long the lease is certainly held if it is not renewed: see [`crate::Guard::remaining`]. No round
    /// trip.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns for how long the store certainly keeps others out: see [`crate::Guard::grace`]. No round trip.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.0.grace()
    }

    /// Returns whether others were waiting: see [`crate::Guard::others_wait`]. No round trip.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        self.0.others_wait()
    }

    /// Releases the lease at once when this guard goes: see [`crate::Guard::waive_min_hold`]. No round trip.
    pub fn waive_min_hold(&self) {
        self.0.waive_min_hold();
    }

    /// Blocks until the lease is lost, for at most `at_most`. Returns `None` if it was not lost by then. No round trip.
    /// With zero it is a check that does not block.
    #[must_use]
    pub fn wait_lost(&self, at_most: Duration) -> Option<Lost> {
        wait(self.0.lost_within(at_most))
    }

    /// Calls `tell` once when the lease is lost, on a new thread. `tell` may block, lock and panic.
    ///
    /// If the lease is already lost, the call comes at once. If the lease is released, `tell` is never called. The call
    /// still comes after this guard was released, if other guards of the same owner hold the lease.
    ///
    /// Any number of calls may be registered, and a pending one costs no thread. If the system cannot start a thread at
    /// that moment, `tell` is not called. If you must not miss a loss, use [`Guard::check`] as well.
    pub fn on_lost(&self, tell: impl FnOnce(Lost) + Send + 'static) {
        on_lost::call(self.0.hold(), tell);
    }

    /// Releases the lease, and blocks until the store has confirmed that: one round trip.
    ///
    /// While the store is unreachable, this blocks for at most the lease and 2 s. Drop the guard instead to wait for
    /// nothing. See [`crate::Guard::release`].
    ///
    /// # Errors
    ///
    /// See [`crate::Guard::release`].
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
    }

    pub(super) async fn finish(self) {
        self.0.finish().await;
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
