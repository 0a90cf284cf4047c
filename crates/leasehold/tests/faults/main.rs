//! Locks on a real Redis while something breaks: a process, a connection, the server, its clock, its memory.
//!
//! Each test has a server of its own, mostly behind a [`FaultProxy`](leasehold_testkit::FaultProxy). Each test asserts
//! three things: its fault happened, every safety property held, and every expected event came within the time that the
//! protocol guarantees. A test writes that time as in the protocol (a lease, a claim, a re-check) plus a slack with a
//! name: see [`common`]. An event that takes longer is a failure, and has a cause to be found.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bad_input;
mod bad_store;
mod child;
mod clock;
mod common;
mod conditions;
mod failover;
mod full;
mod ghosts;
mod losses;
mod network;
mod pools;
mod processes;
mod replies;
mod restart;
mod runtime;
