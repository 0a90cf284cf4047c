//! The view that a step has of the world.

use crate::id::SessionId;

/// The facts about the world that a step depends on: two clocks, and the inboxes that are attached.
pub struct Env<'a> {
    /// Wall time in microseconds: tokens grow with it.
    pub wall_us: u64,
    /// The clock that leases are counted on, in microseconds. On Redis it is the wall clock. On one host it is a clock
    /// that nobody sets and that runs while the machine sleeps.
    pub lease_us: u64,
    /// Whether the inbox of a session is attached. A step asks this before it chooses a waiter, and sends nothing to
    /// find out (P6).
    pub attached: &'a dyn Fn(SessionId) -> bool,
}
