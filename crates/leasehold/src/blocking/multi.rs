//! The multi-lock, for threads.

use std::time::Duration;

use leasehold_spec::Token;

use super::methods::{blocking_calls, blocking_or_cancel};
use super::wait::wait;
use crate::error::Result;
use crate::lost::{Lost, Released};
use crate::member::Member;

/// Several locks that are held together: see [`crate::all`].
#[derive(Clone, Debug)]
#[must_use = "a multi-lock does nothing until it is locked"]
pub struct All(crate::multi::All);

/// The guard of all members of a multi-lock, like [`crate::AllGuard`]. Dropping it releases all of them in the background.
#[derive(Debug)]
#[must_use = "dropping the guard releases all leases at once"]
pub struct AllGuard(crate::multi::AllGuard);

/// Returns the multi-lock of these members: see [`crate::all`].
pub fn all<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> All {
    All(crate::multi::all(members))
}

impl All {
    blocking_calls! { "crate::All":
        wait lock() -> AllGuard;
        limited try_lock() -> AllGuard;
        limited try_lock_for(wait: Duration) -> AllGuard;
    }

    blocking_or_cancel! { "crate::All":
        lock_or_cancel = lock() -> AllGuard;
    }
}

#[expect(clippy::missing_errors_doc, reason = "they are those of `crate::AllGuard`")]
impl AllGuard {
    fn of(guard: crate::multi::AllGuard) -> Self {
        Self(guard)
    }

    blocking_calls! { "crate::AllGuard":
        plain tokens() -> Vec<Token>;
        plain is_valid() -> bool;
        plain remaining() -> Duration;
        plain grace() -> Duration;
        plain others_wait() -> bool;
    }

    /// See [`crate::AllGuard::check`].
    pub fn check(&self) -> std::result::Result<(), Lost> {
        self.0.check()
    }

    /// See [`crate::AllGuard::waive_min_hold`].
    pub fn waive_min_hold(&self) {
        self.0.waive_min_hold();
    }

    /// Blocks until the first member is lost, for at most `at_most`. Returns `None` if none was lost by then.
    #[must_use]
    pub fn wait_lost(&self, at_most: Duration) -> Option<Lost> {
        wait(self.0.lost_within(at_most))
    }

    /// See [`crate::AllGuard::release`]. It blocks until each store has confirmed the release.
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
    }
}
