//! The session's thread, and the task that opens the lane.

pub(crate) mod lane;
pub(crate) mod thread;
