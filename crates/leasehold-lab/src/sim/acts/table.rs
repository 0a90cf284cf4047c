//! The rows of the tables: a primitive as workers use it, and an act.

use std::pin::Pin;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::seam::Pending;

use super::super::plan::Plan;
use super::super::worker::Worker;

/// The future of an act.
pub(super) type ActFuture<'a, T = ()> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A primitive.
pub(in super::super) struct Primitive {
    /// The first word of its names.
    pub(super) word: &'static str,
    /// How many units of a name may be held at the same time.
    pub(in super::super) limit: u32,
    /// Does one act on this name.
    pub(super) act: for<'a> fn(&'a mut Worker, &'a str) -> ActFuture<'a>,
    /// Asks for a renewed lease of this length, and works under it. Returns whether it was granted.
    pub(super) ask: for<'a> fn(&'a mut Worker, &'a str, Duration) -> ActFuture<'a, bool>,
    /// Revokes the current grant of a name with this grace. Returns whether there was one.
    pub(in super::super) revoke: fn(&Leasehold, &str, Duration) -> Pending<bool>,
}

/// An act of a primitive.
pub(super) struct Act<F> {
    /// How many of a hundred draws choose it. With 0 the plan excludes it.
    pub(super) weight: fn(&Plan) -> u64,
    pub(super) run: F,
}

/// Chooses an act by weight. Each round draws a number below a hundred. If it is beyond the weights of the round, the
/// next round draws. The weights of the last round add up to a hundred.
pub(super) fn choose<F: Copy>(worker: &mut Worker, rounds: &[&[Act<F>]]) -> F {
    for round in rounds {
        let mut drawn = worker.rng.below(100);
        for act in *round {
            match drawn.checked_sub((act.weight)(&worker.sim.plan)) {
                Some(rest) => drawn = rest,
                None => return act.run,
            }
        }
    }
    panic!("the weights of the last round do not add up to a hundred")
}
