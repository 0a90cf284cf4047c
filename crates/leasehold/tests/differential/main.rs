//! Compares the scripts with the specification: random histories on a real Redis and on `step`, with equal answers,
//! states and messages after each operation.
//!
//! `LEASEHOLD_SEED=… cargo test -p leasehold --test differential` repeats one history; `LEASEHOLD_HISTORIES=…` sets
//! their number, and `LEASEHOLD_FIRST_SEED=…` the first seed.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod decode;
mod history;
mod rig;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use history::History;
use rig::{OUTCOMES, Rig, Seen};

/// The number of histories that takes about a minute on two processors.
const HISTORIES: u64 = 3_000;
/// The number of threads, each with its own server.
const HANDS: u64 = 2;
const STEPS: usize = 50;
const SESSIONS: usize = 24;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is to be a number")))
}

fn play(rig: &mut Rig, seed: u64) {
    match seed % 60 {
        0..=2 => History::new(rig, seed, 20).play_crowd(20),
        3 | 4 => History::new(rig, seed, 20).play_lapses(),
        5 => History::new(rig, seed, 5).play_full(220),
        _ => History::new(rig, seed, 5).play(STEPS),
    }
}

#[test]
fn random_histories() {
    if let Some(seed) = from_environment("LEASEHOLD_SEED") {
        let mut rig = Rig::start(SESSIONS);
        play(&mut rig, seed);
        println!("seed {seed}: {:?}", rig.seen);
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = from_environment("LEASEHOLD_FIRST_SEED").unwrap_or(u64::from(now.subsec_nanos()) * 1_000);
    let histories = from_environment("LEASEHOLD_HISTORIES").unwrap_or(HISTORIES);
    let seen = std::thread::scope(|threads| {
        let hands: Vec<_> =
            (0..HANDS).map(|hand| threads.spawn(move || play_all(first + hand, histories / HANDS))).collect();
        let mut seen = BTreeMap::new();
        for hand in hands {
            for (what, count) in hand.join().unwrap_or_else(|failed| std::panic::resume_unwind(failed)) {
                *seen.entry(what).or_default() += count;
            }
        }
        seen
    });
    println!("{histories} histories from seed {first}: {seen:#?}");
    // A smaller number is set to look for one flaw, and need not meet every case.
    if histories >= HISTORIES {
        check_coverage(&seen);
    }
}

/// Plays every n-th history from a seed on, on its own server.
fn play_all(first: u64, histories: u64) -> Seen {
    let mut rig = Rig::start(SESSIONS);
    for at in 0..histories {
        let told = Told(first + at * HANDS);
        play(&mut rig, told.0);
        std::mem::forget(told);
    }
    rig.seen
}

/// Checks that the run met every outcome: otherwise it has not shown that the two agree on it.
fn check_coverage(seen: &Seen) {
    let count = |what: &str| seen.get(what).copied().unwrap_or(0);
    let all: u64 = OUTCOMES.iter().map(|what| count(what)).sum();
    for outcome in OUTCOMES {
        assert!(count(outcome) * 50 >= all, "{outcome}: {} of {all}, less than two in a hundred", count(outcome));
    }
    for rare in RARE {
        assert!(count(rare) >= 20, "{rare}: only {}", count(rare));
    }
}

/// Cases that every run must meet, however rare they are.
const RARE: [&str; 23] = [
    "more",
    "came back to its place",
    "forgotten",
    "sixteen lapses",
    "push of a grant",
    "push of a revocation",
    "push that somebody waits",
    "push of an end",
    "lease dated anew",
    "lapse dated anew",
    "renewed, kept until as before",
    "renewed, kept for longer",
    "range used",
    "range unused",
    "used beyond the range",
    "range burnt",
    "range cut",
    "cool-down begun",
    "late in a cool-down",
    "cool-down over",
    "stored as a string",
    "stored as a hash",
    "stored as a hash without a queue",
];

/// Prints the seed of a history that fails.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        println!("LEASEHOLD_SEED={} cargo test -p leasehold --test differential -- --nocapture", self.0);
    }
}
