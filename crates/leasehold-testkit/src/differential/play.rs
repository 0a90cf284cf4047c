//! Plays many histories.

use std::panic::resume_unwind;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Seen;
use crate::part::Part;

/// The number of threads, each with a server of its own.
const THREADS: u64 = 2;

/// Plays the histories of a test. `LEASEHOLD_SEED=…` repeats one history, `LEASEHOLD_HISTORIES=…` sets their number,
/// which is otherwise `full` or the [`Part`]'s share of it, and `LEASEHOLD_FIRST_SEED=…` sets the first seed. Each thread
/// starts a rig, plays seeds on it, and ends it.
///
/// Returns the cases that the histories have seen, unless a smaller number was set: that looks for one flaw, and may miss
/// cases.
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
    let share = Part::chosen().count(full);
    let histories = from_environment("LEASEHOLD_HISTORIES").unwrap_or(share);
    // Each thread plays every n-th history.
    let play_all = |thread: u64| {
        let mut rig = start();
        for at in 0..histories / THREADS {
            let failing = FailingSeed { test, seed: first + thread + at * THREADS };
            history(&mut rig, failing.seed);
            std::mem::forget(failing);
        }
        end(rig)
    };
    let seen = thread::scope(|scope| {
        let play_all = &play_all;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || play_all(thread))).collect();
        let mut seen = Seen::new();
        for thread in threads {
            for (case, count) in thread.join().unwrap_or_else(|failed| resume_unwind(failed)) {
                *seen.entry(case).or_default() += count;
            }
        }
        seen
    });
    println!("{histories} histories from seed {first}: {seen:#?}");
    (histories >= share).then_some(seen)
}

/// Returns how often a run must have seen a rare case: a part of the histories must have met it at all.
#[must_use]
pub fn rare_at_least() -> u64 {
    if Part::chosen().is_whole() { 20 } else { 1 }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is to be a number")))
}

/// Prints the seed when a history fails.
struct FailingSeed {
    test: &'static str,
    seed: u64,
}

impl Drop for FailingSeed {
    fn drop(&mut self) {
        println!("LEASEHOLD_SEED={} cargo test -p leasehold --test {} -- --nocapture", self.seed, self.test);
    }
}
