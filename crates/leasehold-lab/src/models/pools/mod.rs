//! Names with several grants (P31 to P34, P37 to P40): read-write locks and semaphores.
//!
//! The store is [`leasehold_spec::step`], as in the models of the mutex. The session is as small as these rules allow: it
//! has one connection, on which requests keep their order, and replies and pushes keep theirs. It renews what it was
//! pushed, re-checks what it waits for, and sends every open request again when its connection breaks.
//!
//! There are two models, each with a few [`scenes`]:
//!
//! - *A read-write lock*: an upgradeable reader that upgrades, stops waiting or drops its future, a plain reader, and a
//!   writer that may become a reader.
//! - *A semaphore* of two permits: three sessions that need one or two, and a limit that changes.
//!
//! Pushes may be lost, processes may die, and a connection may break with its replies. Its requests may also be carried
//! out later.
//!
//! P34 is out of reach here: a step stops at its bound only if more than 64 sessions wait. Tests of the specification
//! cover it.
//!
//! ```text
//!   scenes      the sessions of each scene, and how often each fault may happen
//!   cases       the rules that are switched off, and the violation that this leads to
//!   session     the knowledge of a session, and its reaction to each message
//!   callers     the calls: acquire, upgrade, stop waiting, drop, downgrade, release, resize
//!   store       the step, and the properties that must be true after each step
//!   pool        the state of the model, and the effect of each event
//!   properties  the properties that must be true in each state, and the states that a search must reach
//! ```

mod callers;
mod cases;
mod pool;
mod properties;
mod report;
mod scenes;
mod session;
mod store;
#[cfg(test)]
mod tests;
mod words;

pub(super) use cases::Pools;
