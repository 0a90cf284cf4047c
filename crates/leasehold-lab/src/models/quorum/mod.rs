//! Fencing tokens over independent nodes: the schemes that keep their order, and the effects of a node that forgot.
//!
//! The models are about schemes and not about code. They have nodes of their own, since most of the schemes are the
//! rejected ones. (`leasehold_spec::node` is the chosen scheme; `sim --quorum` runs it.) The models allow more than any
//! network does: a request may be carried out at any time after it was sent, long after its client has moved on, or
//! never; and where no clocks are modeled, any lease may end at any time.
//!
//! There are two questions, each with its kind of [`scenes::Scene`]:
//! - *Order* (no clocks): are tokens unique, and does a grant that begins after another one was made have the larger
//!   token? The schemes that read a number and write it back are there to show why the client proposes.
//! - *Memory* (clocks): which of these properties remain if nodes lose everything? A node accepts a token only near its
//!   own clock, and abstains for a while after a loss. The searches cover the exact limits of both.
//!
//! (And there is a third question, a small one: whether a semaphore over majorities is possible. It is not.)
//!
//! Nodes are interchangeable, so a state keeps them sorted: five nodes cost only the ways in which they can differ.

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
