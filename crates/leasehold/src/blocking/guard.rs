//! What a holder has in its hands.

use std::fmt;
use std::time::Duration;

use leasehold_spec::Token;

use super::{on_lost, wait};
use crate::error::{Lost, Result};
use crate::guard::Released;

/// A held lease, as [`crate::Guard`] is: dropping it gives the lease back in the background, [`Guard::release`] does so and
/// tells how it went. It is bound to no thread.
#[must_use = "dropping the guard gives the lease back at once"]
pub struct Guard(crate::Guard);

impl Guard {
    pub(super) fn new(guard: crate::Guard) -> Self {
        Self(guard)
    }

    /// The fencing token: see [`crate::Guard::token`].
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token()
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The token, if the lease is surely still ours. No round trip: use it with `?` before each effect.
    ///
    /// # Errors
    /// Why it is not: see [`Lost`].
    pub fn check(&self) -> std::result::Result<Token, Lost> {
        self.0.check()
    }

    /// Whether the lease is surely still ours. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// For how long the lease is surely still ours if it is not renewed: see [`crate::Guard::remaining`]. No round trip.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Whether others were waiting when the store was last heard. No round trip.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        self.0.others_wait()
    }

    /// Blocks until the lease is lost, at most for `at_most`: `None` when it was not. No round trip. With a time of zero it
    /// is a look, as [`Guard::check`].
    #[must_use]
    pub fn wait_lost(&self, at_most: Duration) -> Option<Lost> {
        wait(self.0.lost_within(at_most))
    }

    /// Calls `tell` when the lease is lost, once, on a thread of its own that is started then: it may block, lock and panic
    /// as it likes. It is called at once when the lease is lost already, and never for one that is given back. It does not
    /// go with this guard, where others of the same owner hold on.
    ///
    /// Any number of them may wait; one that waits costs no thread. Where the system gives no thread at that moment nobody
    /// is called: a loss that must not be missed is looked for, by [`Guard::check`].
    pub fn on_lost(&self, tell: impl FnOnce(Lost) + Send + 'static) {
        on_lost::call(self.0.hold(), tell);
    }

    /// Gives the lease back, and blocks until the store has said so: one round trip. While the store is away this waits for
    /// it, at most for the lease and 2 s; drop the guard to wait for nothing. See [`crate::Guard::release`].
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
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
