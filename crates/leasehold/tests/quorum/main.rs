//! A quorum of nodes: five real servers, or simulated nodes in this process if a schedule has to be exact. Simulated nodes
//! run the specification of a node.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod amnesia;
mod begin;
#[path = "../faults/child.rs"]
mod child;
mod clocks;
mod common;
mod filled;
mod forgetful;
mod forms;
mod killed;
mod linked;
mod min_hold;
mod opening;
mod owed;
mod played;
mod release_races;
mod replies;
mod rounds;
mod runs;
mod runtimes;
mod servers;
mod shortened;
mod shy;
mod stopped;
mod views;
mod wrong;
