//! The real session under a scheduler that decides at every lock, channel and await who goes on: orders that a machine
//! shows once in a million, a few thousand of them here, and as many as one asks for.
//!
//! Threads share one client or several; the store is `step`, reached by links that carry requests and answers in their own
//! time (`store.rs`). Time stands still while anybody can go on, so that nothing is ever mended by a timer without being
//! noticed: each scene says for how long it may have to wait, and most have nothing to wait for (`world.rs`).
//!
//!     cargo test -p leasehold --features shuttle --test shuttle                             a few thousand schedules
//!     LEASEHOLD_SCHEDULES=100000 cargo test --release -p leasehold --features shuttle …     as many for each scene
//!
//! A failure prints its schedule, and how to play it again. `scripts/mutants` breaks the code and sees these tests fail.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod explore;
mod scenes;
mod stage;
mod store;
mod world;
