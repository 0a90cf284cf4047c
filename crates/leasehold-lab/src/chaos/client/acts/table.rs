//! The rows of the tables: a primitive as tasks use it, and an act.

use std::pin::Pin;

use leasehold_testkit::history::GaveUp;

use super::super::super::names::Class;
use super::super::turn::Turn;

/// The future of an act.
pub(super) type ActFuture<'a, T = ()> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A primitive.
pub(super) struct Primitive {
    /// The classes of its names.
    pub(super) classes: &'static [Class],
    /// How many units of a name may be held at the same time.
    pub(super) limit: u32,
    /// Does one act.
    pub(super) act: fn(Turn<'_>) -> ActFuture<'_>,
}

/// An act that asks for a grant.
pub(super) struct Act<F> {
    /// The current work of the task, in the report of a violation.
    pub(super) what: &'static str,
    /// The end of an attempt that got no grant and no error.
    pub(super) gave_up: GaveUp,
    pub(super) run: F,
}
