//! The latch, for threads.

use std::time::Duration;

use super::methods::blocking_calls;

/// A latch, like [`crate::Latch`]. Each method has the result and the errors of the async method, and blocks its thread.
#[derive(Clone, Debug)]
pub struct Latch(pub(super) crate::Latch);

impl Latch {
    blocking_calls! { "crate::Latch":
        ask create(count: u32) -> ();
        ask count_down() -> ();
        ask count_down_as(part: &str) -> ();
        ask wait() -> ();
        ask wait_for(wait: Duration) -> bool;
        ask remaining() -> u32;
        ask delete() -> ();
        set keep(keep: Duration);
    }
}
