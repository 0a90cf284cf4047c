//! The protocol as a model, searched to its end.
//!
//! A lock is easy to get right in every schedule that one can think of. These models think of the others: a few sessions, a
//! few ticks, a store, two connections each, and in between everything that P1 to P21 assume to happen: messages that are
//! lost, late or doubled, connections that break with requests still in the store's buffer, processes that stand still or
//! die half-open, futures that are dropped, memory that is full.
//!
//! The store is not modelled: it is [`leasehold_spec::step`], the code that is shipped and that the Lua scripts are held
//! to. So expiry is passive, as it is there: a lease whose end has passed stays in the record until a script touches the
//! name. A model that expires leases by itself misses half of the holes.
//!
//! What is modelled:
//!
//! ```text
//!   session   what P2-P4, P7, P9, P11-P16 and P21 make a session do: its attempts and its callers
//!   runs      how a lease goes round inside it: P19 to P21
//!   errands   what is due: its timers, its connections, what it sends
//!   hear      how it takes what it hears
//!   network   connections as queues in both directions, and what becomes of them when they break
//!   server    step, who is attached, what is published
//!   world     all of it, and what a step does: the state of the model
//!   acts      what may happen next
//!   ledger    what only an observer knows: history that the properties need
//!   cooling   the scenes of a minimum hold
//!   scene     how large a model is, and how often what may go wrong in it
//! ```
//!
//! Two kinds of run: every rule on, in each scene, to the end, and nothing is found; one rule off, and the shortest
//! schedule is found that the rule closes. A flaw is a seeded one of the shipped code ([`leasehold_spec::mutant`]) or of
//! the modelled session. docs/evidence.md has the results.

mod acts;
mod cases;
mod check;
mod cooling;
mod errands;
mod hear;
mod ledger;
mod network;
mod options;
mod properties;
mod quorum;
mod report;
mod rules;
mod runs;
mod scene;
mod scenes;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod words;
mod world;

pub(crate) use options::{Options, USAGE};
pub(crate) use report::run;
