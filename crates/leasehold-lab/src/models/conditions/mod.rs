//! Condition variables (P41 to P43): waiters that take items from a buffer, and a notifier that puts them in.
//!
//! The condition variable is [`leasehold_spec::step`], as in the other models. The lock is abstract: at most one task holds
//! it, and nothing of it is lost. So each violation is one of the condition variable. A waiter looks at the buffer under
//! the lock. If it is empty, the waiter enters the queue, releases the lock once it stands there, and looks again when it
//! wakes up. The notifier puts an item in under the lock, and notifies one waiter.
//!
//! Pushes may be lost, connections may break with their replies, waiters may die, and the store may fail over to a copy
//! that missed its last change. After the last fault there is time for every claim, every lease and every re-check to end.
//! Then no live waiter may sleep beside an item.
//!
//! ```text
//!   scenes   the size of each scene, and the rules that are switched off
//!   world    the state of the model, and the effect of each event
//!   waiter   the knowledge of a waiter, and its reaction to each message
//!   report   the schedules in words
//! ```

mod report;
mod scenes;
#[cfg(test)]
mod tests;
mod waiter;
mod world;

pub(super) use scenes::Conditions;
