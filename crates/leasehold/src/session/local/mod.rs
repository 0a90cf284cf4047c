//! Hand-over inside the process.

pub(crate) mod budget;
pub(crate) mod queue;
pub(crate) mod queues;
