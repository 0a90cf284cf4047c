//! The real session under a scheduler that decides at every lock, channel and await who goes on: orders that a machine
//! shows once in a million, a few thousand of them here, and as many as one asks for.
//!
//! Threads share one client or several; the store is `step`, reached by links that carry requests and answers in their own
//! time (`store.rs`). Time stands still while anybody can go on, so that nothing is ever mended by a timer without being
//! noticed: each scene says for how long it may have to wait, and most have nothing to wait for (`world.rs`). In one scene
//! time runs, and leases are lost.
//!
//! These are unit tests of the library, so that only this build of the library has the scheduler's locks:
//!
//!     export RUSTFLAGS="--cfg leasehold_shuttle"
//!     cargo test -p leasehold --lib schedules                                     a few thousand schedules
//!     LEASEHOLD_SCHEDULES=4000 cargo test --release -p leasehold --lib schedules  a hundred thousand
//!
//! A failure prints its schedule, and how to play it again. `scripts/mutants` breaks the code and sees these tests fail.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod explore;
mod scenes;
mod stage;
mod store;
mod world;
