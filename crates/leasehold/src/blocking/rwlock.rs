//! The read-write lock, for threads.

use std::time::Duration;

use super::methods::{blocking_calls, blocking_face, blocking_guard, blocking_guard_methods, blocking_or_cancel};
use super::wait::wait;
use crate::condvar::condvar_guard;
use crate::error::Result;
use crate::lease::{Upgrading, guard_methods};
use crate::member::Member;

/// A lock that many readers hold together, or one writer alone, like [`crate::RwLock`].
#[derive(Clone)]
pub struct RwLock(pub(super) crate::RwLock);

blocking_guard! {
    /// A lock that is held to read, like [`crate::ReadGuard`].
    ReadGuard
}

blocking_guard! {
    /// A lock that is held to write, like [`crate::WriteGuard`].
    WriteGuard
}

blocking_guard! {
    /// A lock that is held to read and can be upgraded, like [`crate::UpgradeableReadGuard`].
    UpgradeableReadGuard
}

impl RwLock {
    blocking_calls! { "crate::RwLock":
        wait read() -> ReadGuard;
        limited try_read() -> ReadGuard;
        limited try_read_for(wait: Duration) -> ReadGuard;
        wait write() -> WriteGuard;
        limited try_write() -> WriteGuard;
        limited try_write_for(wait: Duration) -> WriteGuard;
        wait upgradeable_read() -> UpgradeableReadGuard;
        limited try_upgradeable_read() -> UpgradeableReadGuard;
        limited try_upgradeable_read_for(wait: Duration) -> UpgradeableReadGuard;
    }

    /// Returns the side of a reader, for [`all`](super::all).
    #[must_use]
    pub fn reading(&self) -> Member {
        self.0.reading()
    }

    /// Returns the side of a writer, for [`all`](super::all).
    #[must_use]
    pub fn writing(&self) -> Member {
        self.0.writing()
    }

    blocking_or_cancel! { "crate::RwLock":
        read_or_cancel = read() -> ReadGuard;
        write_or_cancel = write() -> WriteGuard;
        upgradeable_read_or_cancel = upgradeable_read() -> UpgradeableReadGuard;
    }
}

blocking_face!(RwLock, "crate::RwLock");
condvar_guard!(WriteGuard);

impl WriteGuard {
    /// Makes this guard a read guard: see [`crate::WriteGuard::downgrade`]. It does not block.
    pub fn downgrade(self) -> ReadGuard {
        ReadGuard(self.0.lower(1))
    }
}

impl UpgradeableReadGuard {
    /// Makes this guard a write guard: see [`crate::UpgradeableReadGuard::upgrade`].
    ///
    /// # Errors
    ///
    /// See [`crate::UpgradeableReadGuard::upgrade`].
    pub fn upgrade(self) -> Result<WriteGuard> {
        wait(crate::UpgradeableReadGuard(self.0).upgrade()).map(|guard| WriteGuard(guard.0))
    }

    /// Makes this guard a write guard if there are no other readers: see [`crate::UpgradeableReadGuard::try_upgrade`].
    ///
    /// # Errors
    ///
    /// See [`crate::UpgradeableReadGuard::try_upgrade`].
    pub fn try_upgrade(self) -> Result<std::result::Result<WriteGuard, Self>> {
        Ok(wait(self.0.upgrade(Upgrading::Now))?.map(WriteGuard).map_err(Self))
    }

    /// Waits for at most `at_most` until the other readers have gone: see
    /// [`crate::UpgradeableReadGuard::try_upgrade_for`].
    ///
    /// # Errors
    ///
    /// See [`crate::UpgradeableReadGuard::try_upgrade_for`].
    pub fn try_upgrade_for(self, at_most: Duration) -> Result<std::result::Result<WriteGuard, Self>> {
        Ok(wait(self.0.upgrade(Upgrading::For(at_most)))?.map(WriteGuard).map_err(Self))
    }

    /// Gives up the right to an upgrade: see [`crate::UpgradeableReadGuard::downgrade`]. It does not block.
    pub fn downgrade(self) -> ReadGuard {
        ReadGuard(self.0.lower(1))
    }
}
