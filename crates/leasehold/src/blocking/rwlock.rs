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
        plain reading() -> Member;
        plain writing() -> Member;
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

#[expect(clippy::missing_errors_doc, reason = "they are those of `crate::UpgradeableReadGuard`")]
impl UpgradeableReadGuard {
    /// See [`crate::UpgradeableReadGuard::upgrade`].
    pub fn upgrade(self) -> Result<WriteGuard> {
        wait(crate::UpgradeableReadGuard(self.0).upgrade()).map(WriteGuard::of)
    }

    /// See [`crate::UpgradeableReadGuard::try_upgrade`].
    pub fn try_upgrade(self) -> Result<std::result::Result<WriteGuard, Self>> {
        Ok(wait(self.0.upgrade(Upgrading::Now))?.map(WriteGuard).map_err(Self))
    }

    /// See [`crate::UpgradeableReadGuard::try_upgrade_for`].
    pub fn try_upgrade_for(self, wait: Duration) -> Result<std::result::Result<WriteGuard, Self>> {
        Ok(super::wait::wait(self.0.upgrade(Upgrading::For(wait)))?.map(WriteGuard).map_err(Self))
    }

    /// See [`crate::UpgradeableReadGuard::downgrade`]. It does not block.
    pub fn downgrade(self) -> ReadGuard {
        ReadGuard(self.0.lower(1))
    }
}
