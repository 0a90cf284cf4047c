//! Hand-over inside the process.

pub(crate) mod budget;
pub(crate) mod idle;
pub(crate) mod queue;
