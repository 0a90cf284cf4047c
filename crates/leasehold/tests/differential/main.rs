//! Compares the scripts with the specification: random histories on a real Redis and on `step`, with equal answers,
//! states and messages after each operation.
//!
//! `LEASEHOLD_SEED=… cargo test -p leasehold --test differential` repeats one history; `LEASEHOLD_HISTORIES=…` sets
//! their number, and `LEASEHOLD_FIRST_SEED=…` the first seed.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod cases;
mod chance;
mod decode;
mod decode_pool;
mod full;
mod history;
mod many;
mod pools;
mod rig;
mod wire;

use cases::{check_coverage, check_coverage_of_gates, check_coverage_of_pools};
use history::History;
use leasehold_spec::Kind;
use leasehold_testkit::differential;
use pools::PoolHistory;
use rig::Rig;

/// The number of histories that takes about a minute on two processors.
const HISTORIES: u64 = 3_000;
/// The number of histories of pools that takes half a minute.
const HISTORIES_OF_POOLS: u64 = 1_500;
/// The names whose waiters wait for a lease, and those whose waiters do not.
const POOLS: [Kind; 2] = [Kind::ReadWrite, Kind::Semaphore];
const GATES: [Kind; 3] = [Kind::Condition, Kind::Latch, Kind::Barrier];
const STEPS: usize = 50;
const SESSIONS: usize = 24;

fn play(rig: &mut Rig, seed: u64) {
    match seed % 60 {
        0..=2 => History::new(rig, seed, 20).play_crowd(20),
        3 | 4 => History::new(rig, seed, 20).play_lapses(),
        5 | 6 => History::new(rig, seed, 5).play_full(150),
        _ => History::new(rig, seed, 5).play(STEPS),
    }
}

#[test]
fn random_histories() {
    let start = || Rig::start(SESSIONS);
    if let Some(seen) = differential::play("differential", HISTORIES, start, play, |rig| rig.log.into_seen()) {
        check_coverage(&seen);
    }
}

fn play_pools(rig: &mut Rig, seed: u64) {
    match seed % 30 {
        0 | 1 => PoolHistory::new(rig, seed, 20, &POOLS).play_crowd(20),
        _ => PoolHistory::new(rig, seed, 5, &POOLS).play(STEPS),
    }
}

fn play_gates(rig: &mut Rig, seed: u64) {
    match seed % 30 {
        0 | 1 => PoolHistory::new(rig, seed, 20, &GATES).play_crowd_at_gate(20),
        _ => PoolHistory::new(rig, seed, 5, &GATES).play_gate(STEPS),
    }
}

#[test]
fn random_histories_of_pools() {
    let start = || Rig::start(SESSIONS);
    let end = |rig: Rig| rig.log.into_seen();
    if let Some(seen) = differential::play("differential pools", HISTORIES_OF_POOLS, start, play_pools, end) {
        check_coverage_of_pools(&seen);
    }
}

#[test]
fn random_histories_of_gates() {
    let start = || Rig::start(SESSIONS);
    let end = |rig: Rig| rig.log.into_seen();
    if let Some(seen) = differential::play("differential gates", HISTORIES_OF_POOLS, start, play_gates, end) {
        check_coverage_of_gates(&seen);
    }
}
