//! What is left of a future that was dropped: nothing (P16).
//!
//! A future can be dropped at any moment, by a `select!`, a time-out or a panic, and nobody is told. Whatever it had asked
//! for is then the session's to give back: a request that nobody sent needs no word; one that is under way is followed by
//! a leave on the same connection; a place in the queue is left; a grant that nobody took is handed on.

mod bench;
mod clients;
mod gate;
mod hand;
mod late;
mod others;
mod owners;
mod phases;
mod schedules;
mod wakers;

use std::time::{Duration, Instant};

use leasehold_spec::limits::{LEASE_DEFAULT_MS, RETENTION_MS};

use bench::Bench;
use phases::{Phase, Ward};

/// A test over the embedded store, over a directory and over Redis.
macro_rules! on_all_stores {
    ($name:ident, |$bench:ident| $body:block) => {
        mod $name {
            use super::*;

            fn check($bench: Bench) {
                $body
            }

            #[test]
            fn in_memory() {
                check(Bench::memory(stringify!($name)));
            }

            #[test]
            fn in_a_directory() {
                check(Bench::file());
            }

            #[test]
            fn on_redis() {
                check(Bench::redis());
            }
        }
    };
}
pub(crate) use on_all_stores;

/// How many futures are dropped in each phase, and in how many rounds.
const DROPS: usize = 2_000;
const ROUNDS: usize = 8;

fn ten_thousand(bench: Bench) {
    let mut ward = Ward::new(bench);
    for _ in 0..ROUNDS {
        for phase in Phase::ALL {
            let begun = Instant::now();
            ward.drop_in(phase, DROPS / ROUNDS);
            println!("{phase:?} {:?}", begun.elapsed());
        }
    }
    println!("{:?}", ward.tally);
    let total: usize = ward.tally.values().sum();
    assert!(total >= 10_000, "only {total} were dropped where they should be: {:?}", ward.tally);
    for phase in Phase::ALL {
        let seen = ward.tally.get(&phase).copied().unwrap_or(0);
        assert!(seen >= 500, "{phase:?}: {seen}");
    }
    nothing_at_all(ward);
}

fn nothing_at_all(ward: Ward) {
    let Ward { bench, subject, other, names, .. } = ward;
    for name in &names {
        let guard = bench.block_on(other.mutex(name).try_lock()).expect("an answer").expect("free at once");
        drop(guard);
    }
    // The session has nothing left to say about any of them.
    let before = bench.sent();
    let closed = bench.block_on(subject.close());
    assert!(closed.unconfirmed().is_empty(), "{closed:?}");
    assert_eq!(bench.sent(), before, "closing found nothing to give back");
    assert!(bench.block_on(other.close()).unconfirmed().is_empty());
    bench.no_key_after(Duration::from_millis(LEASE_DEFAULT_MS + RETENTION_MS));
}

on_all_stores!(ten_thousand_dropped_locks_leave_nothing, |bench| { ten_thousand(bench) });
