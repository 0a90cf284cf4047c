//! Plays many histories.

use std::panic::resume_unwind;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Seen;

/// The number of threads, each with a server of its own.
const HANDS: u64 = 2;

/// Plays the histories of a test. `LEASEHOLD_SEED=…` repeats one history, `LEASEHOLD_HISTORIES=…` sets their number,
/// which is otherwise `full`, and `LEASEHOLD_FIRST_SEED=…` sets the first seed. Each thread starts a rig, plays seeds on
/// it, and ends it.
///
/// Returns the cases that the histories have seen, if there were as many as in a full run. A smaller number is set to look
/// for one flaw, and need not meet every case.
///
/// # Panics
/// If a history fails, after its seed was printed.
pub fn play<R>(
    test: &'static str,
    full: u64,
    start: impl Fn() -> R + Sync,
    history: impl Fn(&mut R, u64) + Sync,
    end: impl Fn(R) -> Seen + Sync,
) -> Option<Seen> {
    if let Some(seed) = from_environment("LEASEHOLD_SEED") {
        let mut rig = start();
        history(&mut rig, seed);
        println!("seed {seed}: {:?}", end(rig));
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let first = from_environment("LEASEHOLD_FIRST_SEED").unwrap_or(u64::from(now.subsec_nanos()) * 1_000);
    let histories = from_environment("LEASEHOLD_HISTORIES").unwrap_or(full);
    // Each thread plays every n-th history.
    let play_all = |hand: u64| {
        let mut rig = start();
        for at in 0..histories / HANDS {
            let told = Told { test, seed: first + hand + at * HANDS };
            history(&mut rig, told.seed);
            std::mem::forget(told);
        }
        end(rig)
    };
    let seen = thread::scope(|threads| {
        let play_all = &play_all;
        let hands: Vec<_> = (0..HANDS).map(|hand| threads.spawn(move || play_all(hand))).collect();
        let mut seen = Seen::new();
        for hand in hands {
            for (case, count) in hand.join().unwrap_or_else(|failed| resume_unwind(failed)) {
                *seen.entry(case).or_default() += count;
            }
        }
        seen
    });
    println!("{histories} histories from seed {first}: {seen:#?}");
    (histories >= full).then_some(seen)
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is to be a number")))
}

/// Prints the seed of a history that fails.
struct Told {
    test: &'static str,
    seed: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        println!("LEASEHOLD_SEED={} cargo test -p leasehold --test {} -- --nocapture", self.seed, self.test);
    }
}
