//! The latch, for threads.

use std::time::Duration;

use super::wait::wait;
use crate::error::Result;

/// A latch, like [`crate::Latch`]. Each method has the result and the errors of the async method, and blocks its thread.
#[derive(Clone, Debug)]
pub struct Latch(pub(super) crate::Latch);

#[expect(clippy::missing_errors_doc, reason = "they are those of `crate::Latch`")]
impl Latch {
    /// See [`crate::Latch::create`].
    pub fn create(&self, count: u32) -> Result<()> {
        wait(self.0.create(count))
    }

    /// See [`crate::Latch::count_down`].
    pub fn count_down(&self) -> Result<()> {
        wait(self.0.count_down())
    }

    /// See [`crate::Latch::count_down_as`].
    pub fn count_down_as(&self, part: &str) -> Result<()> {
        wait(self.0.count_down_as(part))
    }

    /// See [`crate::Latch::wait`].
    pub fn wait(&self) -> Result<()> {
        wait(self.0.wait())
    }

    /// See [`crate::Latch::wait_for`].
    pub fn wait_for(&self, at_most: Duration) -> Result<bool> {
        wait(self.0.wait_for(at_most))
    }

    /// See [`crate::Latch::remaining`].
    pub fn remaining(&self) -> Result<u32> {
        wait(self.0.remaining())
    }

    /// See [`crate::Latch::delete`].
    pub fn delete(&self) -> Result<()> {
        wait(self.0.delete())
    }

    /// See [`crate::Latch::keep`].
    #[must_use]
    pub fn keep(self, keep: Duration) -> Self {
        Self(self.0.keep(keep))
    }
}
