//! The methods that every guard has, for threads.

/// Writes the methods, for a type of this module whose first field is a [`Lease`](crate::lease::Lease).
macro_rules! blocking_guard_methods {
    () => {
        guard_methods!(state);

        /// Blocks until the lease is lost, for at most `at_most`. Returns `None` if it was not lost by then. No round trip.
        /// With zero it is a check that does not block.
        #[must_use]
        pub fn wait_lost(&self, at_most: std::time::Duration) -> Option<crate::lost::Lost> {
            super::wait::wait(self.0.lost_within(at_most))
        }

        /// Calls `callback` once when the lease is lost, on a new thread. `callback` may block, lock and panic.
        ///
        /// If the lease is already lost, the call comes at once. If the lease is released, `callback` is never called. The
        /// call still comes after this guard was released, if other guards of the same owner hold the lease.
        ///
        /// Any number of calls may be registered, and a pending one costs no thread. If the system cannot start a thread at
        /// that moment, `callback` is not called. If you must not miss a loss, use [`Self::check`] as well.
        pub fn on_lost(&self, callback: impl FnOnce(crate::lost::Lost) + Send + 'static) {
            super::on_lost::call(self.0.hold(), callback);
        }

        /// Releases the lease, and blocks until the store has confirmed that: one round trip.
        ///
        /// While the store is unreachable, this blocks for at most the lease and 2 s. Drop the guard instead to wait for
        /// nothing. See [`crate::Guard::release`].
        ///
        /// # Errors
        ///
        /// See [`crate::Guard::release`].
        pub fn release(self) -> crate::error::Result<crate::lost::Released> {
            super::wait::wait(self.0.release())
        }
    };
}

pub(super) use blocking_guard_methods;
