//! Models of the protocol, each searched to its end.
//!
//! A lock is easy to get right in every schedule that an engineer can think of. These models cover the other schedules:
//! a few sessions, a few ticks, a store, two connections per session, and in between everything that P1 to P21 assume to
//! happen: messages that are lost, late or doubled, connections that break with requests still in the store's buffer,
//! processes that pause or die half-open, futures that are dropped, memory that is full.
//!
//! The store is not modeled. It is [`leasehold_spec::step`], the code that is shipped and that the Lua scripts are
//! compared with. So expiry is passive, as it is there: an expired lease stays in the record until a script touches the
//! name. A model that expires leases by itself misses half of the bugs.
//!
//! The modules:
//!
//! ```text
//!   session   the session's reactions by P2-P4, P7, P9, P11-P16 and P21: its attempts and its callers
//!   runs      local hand-over of a lease among the tasks of a session: P19 to P21
//!   due       the due work of a session: its timers, its connections, the requests that it sends
//!   receive   the handling of each message that a session receives
//!   network   connections as queues in both directions, and the fate of their messages when they break
//!   server    step, the attached inboxes, the published messages
//!   world     the state of the model, and the effect of each event
//!   acts      the events that may happen next
//!   ledger    the observer's record: history that the properties need
//!   cooling   the scenes of a minimum hold
//!   scene     the size of a model, and how often each fault may happen in it
//!   family    the searches of the models with a world of their own: pools, condition variables, multi-locks
//! ```
//!
//! There are two kinds of search. With every rule on, the search runs each scene to the end and must find nothing. With
//! one rule off, the search must find the shortest schedule that the rule prevents. A flaw is a seeded one of the
//! shipped code ([`leasehold_spec::mutant`]) or one of the modeled session. docs/evidence.md has the results.

mod acts;
mod cases;
mod check;
mod conditions;
mod cooling;
mod due;
mod family;
mod ledger;
mod network;
mod options;
mod pools;
mod properties;
mod quorum;
mod receive;
mod report;
mod rules;
mod runs;
mod scene;
mod scenes;
mod server;
mod session;
mod several;
#[cfg(test)]
mod tests;
mod words;
mod world;

pub(crate) use options::{Options, USAGE};
pub(crate) use report::run;
