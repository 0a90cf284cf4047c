//! The barrier, for threads.

use std::time::Duration;

use super::wait::wait;
use crate::barrier::BarrierWaitResult;
use crate::error::Result;
use crate::inspection::Inspection;

/// A barrier, like [`crate::Barrier`]. Each method has the result and the errors of the async method, and blocks its
/// thread.
#[derive(Clone, Debug)]
pub struct Barrier(pub(super) crate::Barrier);

#[expect(clippy::missing_errors_doc, reason = "they are those of `crate::Barrier`")]
impl Barrier {
    /// See [`crate::Barrier::wait`].
    pub fn wait(&self) -> Result<BarrierWaitResult> {
        wait(self.0.wait())
    }

    /// See [`crate::Barrier::wait_for`].
    pub fn wait_for(&self, at_most: Duration) -> Result<Option<BarrierWaitResult>> {
        wait(self.0.wait_for(at_most))
    }

    /// See [`crate::Barrier::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// See [`crate::Barrier::inspect`].
    pub fn inspect(&self) -> Result<Inspection> {
        wait(self.0.inspect())
    }
}
