//! The real session under a scheduler that decides at every lock, channel and await which thread goes on. It plays
//! orders that a machine shows once in a million: a few thousand of them by default, and as many as requested.
//!
//! Threads share one client or several. The store is `step`, reached over connections that carry requests and replies
//! with delays of their own (`store.rs`). Time is frozen while any thread can go on, so no timer can hide a mistake:
//! each scene says how long it may have to wait, and most scenes need no wait (`world.rs`). In one scene time runs, and
//! leases are lost.
//!
//! These are unit tests of the library, so that only this build of the library has the scheduler's locks:
//!
//!     export RUSTFLAGS="--cfg leasehold_shuttle"
//!     cargo test -p leasehold --lib schedules                                     a few thousand schedules
//!     LEASEHOLD_SCHEDULES=4000 cargo test --release -p leasehold --lib schedules  a hundred thousand
//!
//! A failure prints its schedule, and how to play it again. `scripts/mutants` breaks the code and expects these tests
//! to fail.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod explore;
mod scenes;
mod stage;
mod store;
mod world;
