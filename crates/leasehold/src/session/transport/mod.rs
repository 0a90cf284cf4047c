//! The session's thread, its tasks, and the task that opens the lane.

mod inbox;
pub(crate) mod lane;
mod task;
pub(crate) mod thread;
