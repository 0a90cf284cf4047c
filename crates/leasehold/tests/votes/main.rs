//! The scripts of a node do the same as its specification. Random histories run on a real Redis and on `node::vote`, with
//! equal answers, states and messages after each request, and with markers that come and go.
//!
//! `LEASEHOLD_SEED=… cargo test -p leasehold --test votes` repeats one history; `LEASEHOLD_HISTORIES=…` sets their number,
//! and `LEASEHOLD_FIRST_SEED=…` the first seed.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod decode;
mod greetings;
mod history;
mod rig;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use history::History;
use rig::{Rig, Seen, WANTED};

/// About 20,000 requests, in less than half a minute on two processors.
const HISTORIES: u64 = 240;
/// The number of threads. Each has a server of its own.
const HANDS: u64 = 2;
const STEPS: usize = 120;
const SESSIONS: usize = 6;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is to be a number")))
}

fn play(rig: &mut Rig, seed: u64) {
    match seed % 60 {
        0..=3 => History::new(rig, seed, SESSIONS).play_crowd(30),
        4 | 5 => History::new(rig, seed, SESSIONS).play_full(40),
        _ => History::new(rig, seed, SESSIONS).play(STEPS),
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
        let mut seen: Seen = BTreeMap::new();
        for hand in hands {
            for (what, count) in hand.join().unwrap_or_else(|failed| std::panic::resume_unwind(failed)) {
                *seen.entry(what).or_default() += count;
            }
        }
        seen
    });
    println!("{histories} histories from seed {first}: {seen:#?}");
    // A search for one flaw uses fewer histories, which need not cover everything.
    if histories >= HISTORIES {
        for wanted in WANTED {
            let count = seen.get(wanted).copied().unwrap_or(0);
            assert!(count >= 20, "{wanted}: only {count}");
        }
    }
}

/// Plays every n-th history from a seed on, on a server of its own.
fn play_all(first: u64, histories: u64) -> Seen {
    let mut rig = Rig::start(SESSIONS);
    for at in 0..histories {
        let told = Told(first + at * HANDS);
        play(&mut rig, told.0);
        std::mem::forget(told);
    }
    rig.seen.insert("requests", rig.requests);
    rig.seen
}

/// Prints the seed of a history that fails.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        println!("LEASEHOLD_SEED={} cargo test -p leasehold --test votes -- --nocapture", self.0);
    }
}
