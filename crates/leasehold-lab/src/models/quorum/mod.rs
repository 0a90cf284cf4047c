//! Fencing tokens over independent nodes: which schemes keep their order, and what a node that forgot breaks.
//!
//! It is about schemes and not about code: the nodes are of the model's own, since most of the schemes are those that were
//! not chosen. (`leasehold_spec::node` is the one that was; `sim --quorum` runs it.) What the model grants is more than any
//! network does: a request may be carried out at any moment after it was sent, long after its client has moved on, or
//! never; and where no clocks are modeled, any lease may end at any moment.
//!
//! Two questions, two kinds of [`scenes::Scene`]:
//! - *Order* (no clocks): are tokens unique, and does a grant that begins after another one was made have the larger one?
//!   The schemes that read a number and write it back are there to show why the client proposes.
//! - *Memory* (clocks): what is left of that where nodes lose everything. A node accepts a token only near its own clock,
//!   and after a loss abstains for a while; how near and for how long is searched at its very edge.
//!
//! (And a third one, small: that there is no semaphore over majorities.)
//!
//! Nodes are interchangeable, so a state keeps them sorted: five nodes are no more than the ways in which they can differ.

mod cluster;
mod node;
mod operator;
mod permits;
mod properties;
mod report;
mod scenes;
#[cfg(test)]
mod tests;
mod words;

pub(super) use report::{names, run};
