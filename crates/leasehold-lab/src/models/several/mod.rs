//! Multi-locks (P45 to P47): two sessions, each with one task that wants two mutexes of one store together.
//!
//! The mutexes are [`leasehold_spec::step`] and [`leasehold_spec::acquire_all`], as in the other models. A task first asks
//! for both by one request. If the store refuses that, or if its reply is lost, the task takes them one after the other: it
//! renews the first one while it waits for the second. It works for a tick under both, and gives both back.
//!
//! Pushes may be lost, connections may break with their replies, and a session may die or stop for a while. After the last
//! fault there is time for every lease and every re-check. Then each live task must have worked. At no time may a task
//! believe that it holds both while another client holds one of them.
//!
//! ```text
//!   scenes   the size of each scene, and the rules that are switched off
//!   world    the state of the model, and the effect of each event
//!   task     the knowledge of a task, and its reaction to each message
//!   report   the schedules in words
//! ```

mod report;
mod scenes;
mod task;
#[cfg(test)]
mod tests;
mod world;

pub(super) use scenes::MultiLocks;
