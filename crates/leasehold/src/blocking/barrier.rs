//! The barrier, for threads.

use std::time::Duration;

use super::methods::blocking_calls;
use crate::barrier::BarrierWaitResult;
use crate::inspection::Inspection;

/// A barrier, like [`crate::Barrier`]. Each method has the result and the errors of the async method, and blocks its
/// thread.
#[derive(Clone, Debug)]
pub struct Barrier(pub(super) crate::Barrier);

impl Barrier {
    blocking_calls! { "crate::Barrier":
        ask wait() -> BarrierWaitResult;
        ask wait_for(wait: Duration) -> Option<BarrierWaitResult>;
        ask inspect() -> Inspection;
        set lease(lease: Duration);
    }
}
