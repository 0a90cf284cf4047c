//! Tests of the session against a scripted store. The test decides when, in which order and with what the store
//! replies, so it can play schedules that a real server shows once in a million runs. `scripts/mutants` breaks a rule
//! and expects its test here to fail.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod barging;
mod barriers;
mod conditions;
mod cool_downs;
mod elections;
mod hand_over;
mod harness;
mod inbox;
mod latches;
mod late;
mod links;
mod local_queues;
mod order;
mod owners;
mod pools;
mod rechecks;
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
mod together;
mod tries;
mod validity;
