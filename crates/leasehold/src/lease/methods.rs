//! The methods that every guard has.

/// Writes the methods for a type whose first field is a [`Lease`](crate::lease::Lease): with `tasks` all methods of a
/// guard of tasks, with `state` only those that read the state of the lease, which threads have as well.
macro_rules! guard_methods {
    (tasks) => {
        guard_methods!(state);

        /// Returns a future that completes when the lease is lost. No round trip.
        ///
        /// If the lease ends by time, this is before it ends in the store. If it was revoked, or if the store has forgotten
        /// it, the client learns that from a message or from its next renewal. If the lease is released instead, the future
        /// completes with the reason `Released`.
        ///
        /// The future is owned: it can outlive the guard, and move to other tasks. Any number of them may wait, and
        /// dropping one changes nothing. It belongs to the lease. If several guards of an owner share the lease, the reason
        /// is `Released` when the last of them has gone.
        pub fn lost(&self) -> crate::lost_signal::LostSignal {
            self.0.lost()
        }

        /// Releases the lease, and waits until the store has confirmed that: one round trip. From the moment of the call
        /// the lease is no longer held. If the lease goes to the next waiter in this client, or is
        /// [kept](crate::Mutex::sticky), this returns at once without a round trip.
        ///
        /// While the store is unreachable, this waits until the lease must have ended there: at most the lease and 2 s. Use
        /// a timeout around it to wait for less. The release then continues in the background.
        ///
        /// # Cancel safety
        ///
        /// The lease is released whether the future is completed or dropped.
        ///
        /// # Errors
        ///
        /// - `Denied`, `Foreign`, `Store`: the store refused.
        /// - `Unreachable` (on a quorum `Quorum`): the store did not reply in the time above.
        /// - `Closed`, and `Unsupported` after a fork.
        ///
        /// After an error, too, the client repeats the release until it gets a reply or the lease has ended.
        ///
        /// # Owners
        ///
        /// If several guards of one owner share the lease, the last one to go releases it. The release of the others
        /// returns at once and without a round trip: `Released` while the owner certainly holds the lease, and `NotHeld`
        /// otherwise.
        pub async fn release(self) -> crate::error::Result<crate::lost::Released> {
            self.0.release().await
        }
    };
    (state) => {
        /// Returns the fencing token. It is larger than the token of every earlier grant of this name. All guards of one
        /// owner have the same token.
        ///
        /// Pass it to the resource, which refuses smaller tokens (see [`fence`](crate::fence)).
        #[must_use]
        pub fn token(&self) -> leasehold_spec::Token {
            self.0.token()
        }

        /// Returns the name of the lock.
        #[must_use]
        pub fn name(&self) -> &str {
            self.0.name()
        }

        /// Returns the token if the lease is certainly still held. No round trip.
        ///
        /// This reads a clock that also runs while the machine sleeps. So the first call after a stop of an hour returns
        /// the truth.
        ///
        /// # Errors
        ///
        /// Which lock is lost, and why: see [`Lost`](crate::Lost).
        pub fn check(&self) -> std::result::Result<leasehold_spec::Token, crate::lost::Lost> {
            self.0.check()
        }

        /// Returns whether the lease is certainly still held. No round trip.
        #[must_use]
        pub fn is_valid(&self) -> bool {
            self.0.is_valid()
        }

        /// Returns for how long the lease is certainly held if it is not renewed, or zero if it is lost. No round trip.
        ///
        /// This is not a limit for the work, because renewals continue. After a wait it starts at 1 s or so, whatever the
        /// lease: a grant by hand-over lasts for one claim until its first renewal.
        #[must_use]
        pub fn remaining(&self) -> std::time::Duration {
            self.0.remaining()
        }

        /// Returns for how long the store certainly keeps others out. Use it as the time in which to stop. No round trip.
        ///
        /// It equals [`Self::remaining`] while the lease is held, the rest of the grace after a revocation, and zero after
        /// any other loss. It is also zero if the client learned of the revocation by a renewal only, because it does not
        /// know then how long ago the grace began.
        #[must_use]
        pub fn grace(&self) -> std::time::Duration {
            self.0.grace()
        }

        /// Returns whether others were waiting, according to the last message from the store: in other clients, or in
        /// strict order. A long holder may want to release the lock then. No round trip.
        ///
        /// If the client can hand this lock on (see [`Mutex`](crate::Mutex#who-is-next)), it is notified at once. Otherwise
        /// this information is as old as the last renewal.
        #[must_use]
        pub fn others_wait(&self) -> bool {
            self.0.others_wait()
        }
    };
}

pub(crate) use guard_methods;

/// Writes `Debug` for guards.
macro_rules! debug_guard {
    ($($guard:ident),*) => {
        $(impl std::fmt::Debug for $guard {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt_as(stringify!($guard), f)
            }
        })*
    };
}
pub(crate) use debug_guard;
