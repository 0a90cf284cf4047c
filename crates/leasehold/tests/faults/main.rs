//! Locks on a real Redis while something breaks: a process, a connection, the server, its clock, its memory.
//!
//! Each test has a server of its own, mostly behind a [`FaultProxy`](leasehold_testkit::FaultProxy), and asserts three
//! things: that its fault happened, that what must hold held, and that what must come came, in the time that the protocol
//! promises. That time is written as what the protocol says (a lease, a claim, a look) plus a slack with a name: see
//! [`common`]. What takes longer than that has a reason, and is a failure.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bad_input;
mod bad_store;
mod child;
mod clock;
mod common;
mod failover;
mod full;
mod ghosts;
mod losses;
mod network;
mod processes;
mod replies;
mod restart;
mod runtime;
