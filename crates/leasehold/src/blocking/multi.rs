//! The multi-lock, for threads.

use std::time::Duration;

use super::canceller::Canceller;
use super::wait::{wait, wait_or_cancel};
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
    /// Blocks until all members are held: see [`crate::All::lock`].
    ///
    /// # Errors
    ///
    /// See [`crate::All::lock`].
    pub fn lock(&self) -> Result<AllGuard> {
        wait(self.0.lock()).map(AllGuard)
    }

    /// Acquires all members if each of them is free, and returns `None` otherwise: see [`crate::All::try_lock`].
    ///
    /// # Errors
    ///
    /// See [`crate::All::try_lock`].
    pub fn try_lock(&self) -> Result<Option<AllGuard>> {
        Ok(wait(self.0.try_lock())?.map(AllGuard))
    }

    /// Waits for all members for at most `at_most`: see [`crate::All::try_lock_for`].
    ///
    /// # Errors
    ///
    /// See [`crate::All::try_lock_for`].
    pub fn try_lock_for(&self, at_most: Duration) -> Result<Option<AllGuard>> {
        Ok(wait(self.0.try_lock_for(at_most))?.map(AllGuard))
    }

    /// Waits until `canceller` is canceled, and returns `None` then: see
    /// [`Mutex::lock_or_cancel`](super::Mutex::lock_or_cancel).
    ///
    /// # Errors
    ///
    /// See [`crate::All::lock`].
    pub fn lock_or_cancel(&self, canceller: &Canceller) -> Result<Option<AllGuard>> {
        Ok(wait_or_cancel(self.0.lock(), canceller)?.map(AllGuard))
    }
}

impl AllGuard {
    /// Returns the fencing tokens: see [`crate::AllGuard::tokens`].
    #[must_use]
    pub fn tokens(&self) -> Vec<leasehold_spec::Token> {
        self.0.tokens()
    }

    /// Checks that every member is certainly still held: see [`crate::AllGuard::check`].
    ///
    /// # Errors
    ///
    /// See [`crate::AllGuard::check`].
    pub fn check(&self) -> std::result::Result<(), Lost> {
        self.0.check()
    }

    /// Returns whether every member is certainly still held. No round trip.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// Returns for how long every member is certainly held: see [`crate::AllGuard::remaining`].
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Returns for how long others are certainly kept out of every member: see [`crate::AllGuard::grace`].
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.0.grace()
    }

    /// Waives the minimum hold of all members: see [`crate::AllGuard::waive_min_hold`].
    pub fn waive_min_hold(&self) {
        self.0.waive_min_hold();
    }

    /// Returns whether others were waiting for a member: see [`crate::AllGuard::others_wait`].
    #[must_use]
    pub fn others_wait(&self) -> bool {
        self.0.others_wait()
    }

    /// Blocks until the first member is lost, for at most `at_most`. Returns `None` if none was lost by then.
    #[must_use]
    pub fn wait_lost(&self, at_most: Duration) -> Option<Lost> {
        wait(self.0.lost_within(at_most))
    }

    /// Releases all members, and blocks until each store has confirmed that: see [`crate::AllGuard::release`].
    ///
    /// # Errors
    ///
    /// See [`crate::AllGuard::release`].
    pub fn release(self) -> Result<Released> {
        wait(self.0.release())
    }
}
