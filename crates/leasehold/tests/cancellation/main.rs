//! A dropped future leaves nothing behind (P16).
//!
//! A future can be dropped at any moment, by a `select!`, a timeout or a panic, and nothing is notified of that. The
//! session then has to return whatever the future had requested. A request that was never sent needs nothing. A request
//! in flight is followed by a leave on the same connection. A place in the queue is left. A grant that was not taken is
//! handed on.

mod clients;
mod gate;
mod hand;
mod harness;
mod late;
mod others;
mod owners;
mod phases;
mod schedules;
mod wakers;

use std::time::{Duration, Instant};

use leasehold_spec::limits::{LEASE_DEFAULT_MS, RETENTION_MS};

use harness::Harness;
use phases::{Fixture, Phase};

/// Runs a test with the embedded store, with a directory and with Redis.
macro_rules! on_all_stores {
    ($name:ident, |$harness:ident| $body:block) => {
        mod $name {
            use super::*;

            fn check($harness: Harness) {
                $body
            }

            #[test]
            fn in_memory() {
                check(Harness::memory(stringify!($name)));
            }

            #[test]
            fn in_a_directory() {
                check(Harness::file());
            }

            #[test]
            fn on_redis() {
                check(Harness::redis());
            }
        }
    };
}
pub(crate) use on_all_stores;

/// How many futures are dropped in each phase, and in how many rounds.
const DROPS: usize = 2_000;
const ROUNDS: usize = 8;

fn ten_thousand(harness: Harness) {
    let mut fixture = Fixture::new(harness);
    for _ in 0..ROUNDS {
        for phase in Phase::ALL {
            let begun = Instant::now();
            fixture.drop_in(phase, DROPS / ROUNDS);
            println!("{phase:?} {:?}", begun.elapsed());
        }
    }
    println!("{:?}", fixture.tally);
    let total: usize = fixture.tally.values().sum();
    assert!(total >= 10_000, "only {total} were dropped in the intended phase: {:?}", fixture.tally);
    for phase in Phase::ALL {
        let seen = fixture.tally.get(&phase).copied().unwrap_or(0);
        assert!(seen >= 500, "{phase:?}: {seen}");
    }
    nothing_at_all(fixture);
}

fn nothing_at_all(fixture: Fixture) {
    let Fixture { harness, subject, other, names, .. } = fixture;
    for name in &names {
        let guard = harness.block_on(other.mutex(name).try_lock()).expect("an answer").expect("free at once");
        drop(guard);
    }
    // The session has nothing left to return for any of these names.
    let before = harness.sent();
    let closed = harness.block_on(subject.close());
    assert!(closed.unconfirmed().is_empty(), "{closed:?}");
    assert_eq!(harness.sent(), before, "close had nothing to give back");
    assert!(harness.block_on(other.close()).unconfirmed().is_empty());
    harness.no_key_after(Duration::from_millis(LEASE_DEFAULT_MS + RETENTION_MS));
}

on_all_stores!(ten_thousand_dropped_locks_leave_nothing, |harness| { ten_thousand(harness) });
