//! The rows of the tables: a primitive as tasks use it, and an act.

use std::pin::Pin;
use std::time::Duration;

use leasehold::seam::Pending;
use leasehold::{Leasehold, Released, Result};
use leasehold_testkit::history::GaveUp;

use super::super::super::names::Class;
use super::super::turn::Turn;
use crate::lease::Lease;

/// The future of an act.
pub(super) type ActFuture<'a, T = ()> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Takes all units of a name.
type TakeAll = for<'a> fn(&'a Leasehold, &'a str, (Duration, Duration)) -> ActFuture<'a, Result<Option<Taken>>>;

/// A primitive.
pub(super) struct Primitive {
    /// The classes of its names.
    pub(super) classes: &'static [Class],
    /// How many units of a name may be held at the same time.
    pub(super) limit: u32,
    /// Does one act.
    pub(super) act: fn(Turn<'_>) -> ActFuture<'_>,
    /// Takes all units of a name, for a check: the client, the name, the lease, and the longest wait.
    pub(super) take_all: TakeAll,
}

/// A grant of all units of a name.
pub(in super::super::super) struct Taken {
    pub(in super::super::super) token: u64,
    pub(in super::super::super) is_held: bool,
    pub(in super::super::super) release: Pending<Result<Released>>,
}

impl Taken {
    pub(super) fn by(guard: impl Lease) -> Self {
        Self { token: guard.token(), is_held: guard.check().is_ok(), release: guard.release() }
    }
}

/// An act that asks for a grant.
pub(super) struct Act<F> {
    /// The current work of the task, in the report of a violation.
    pub(super) what: &'static str,
    /// The end of an attempt that got no grant and no error.
    pub(super) gave_up: GaveUp,
    pub(super) run: F,
}
