//! The session against a store that answers when, what and in the order that a test wants: schedules that a real server
//! shows once in a million runs. `scripts/mutants` breaks a rule and sees its test here fail.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod bench;
mod cool_downs;
mod hand_over;
mod late;
mod lines;
mod links;
mod looks;
mod order;
mod owners;
mod renewals;
mod returns;
mod revoked;
mod runs;
mod runtimes;
mod shortened;
mod statements;
mod sticky;
mod store;
mod threads;
mod validity;
