//! The guard of a lock, for threads.

use std::fmt;

use super::methods::blocking_guard_methods;
use crate::condvar::condvar_guard;
use crate::lease::{Lease, guard_methods};

/// A held lock, like [`crate::Guard`]. Dropping it releases the lease in the background. [`Guard::release`] releases it
/// and returns the result. It is not bound to a thread.
#[must_use = "dropping the guard releases the lease at once"]
pub struct Guard(Lease);

impl Guard {
    pub(super) fn new(lease: Lease) -> Self {
        Self(lease)
    }

    blocking_guard_methods!();

    /// Waives the `min_hold`: as soon as this guard is released or dropped, others can be granted the lock. See
    /// [`crate::Guard::waive_min_hold`]. No round trip.
    pub fn waive_min_hold(&self) {
        self.0.waive_min_hold();
    }

    pub(super) async fn finish(self) {
        self.0.finish().await;
    }
}

condvar_guard!(Guard);

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("Guard", f)
    }
}
