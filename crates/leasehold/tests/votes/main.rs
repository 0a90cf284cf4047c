//! The scripts of a node do the same as its specification. Random histories run on a real Redis and on `node::vote`, with
//! equal answers, states and messages after each request, and with markers that come and go.
//!
//! `LEASEHOLD_SEED=… cargo test -p leasehold --test votes` repeats one history; `LEASEHOLD_HISTORIES=…` sets their number,
//! and `LEASEHOLD_FIRST_SEED=…` the first seed.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod cases;
mod decode;
mod greetings;
mod history;
mod markers;
mod rig;
mod wire;

use cases::WANTED;
use history::History;
use leasehold_testkit::differential;
use rig::Rig;

/// About 20,000 requests, in less than half a minute on two processors.
const HISTORIES: u64 = 240;
const STEPS: usize = 120;
const SESSIONS: usize = 6;

fn play(rig: &mut Rig, seed: u64) {
    match seed % 60 {
        0..=3 => History::new(rig, seed, SESSIONS).play_crowd(30),
        4 | 5 => History::new(rig, seed, SESSIONS).play_full(40),
        _ => History::new(rig, seed, SESSIONS).play(STEPS),
    }
}

#[test]
fn random_histories() {
    let start = || Rig::start(SESSIONS);
    let seen = differential::play("votes", HISTORIES, start, play, |rig| rig.log.into_seen());
    let Some(seen) = seen else { return };
    for wanted in WANTED {
        let count = seen.get(wanted).copied().unwrap_or(0);
        assert!(count >= differential::rare_at_least(), "{wanted}: only {count}");
    }
}
