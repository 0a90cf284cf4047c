//! A store that becomes silent right before a call: every call ends within its bound.
//!
//! (The times of each call on a store that answers are checked in `conformance.rs`. The whole table, in numbers:
//! `leasehold-lab times`.)

use leasehold_testkit::conformance::Backend;
use leasehold_testkit::times::{Share, Weather, measure};

fn ends_every_call(backend: Backend) {
    let table = measure(backend, Share::Quick, &[Weather::Silent]);
    println!("{table}");
    assert!(!table.cells.is_empty(), "nothing was measured");
    assert_eq!(table.failures(), Vec::<String>::new());
}

#[test]
fn a_silent_directory_ends_every_call() {
    ends_every_call(Backend::File);
}

#[test]
fn one_silent_redis_ends_every_call() {
    ends_every_call(Backend::Redis);
}

#[test]
fn one_silent_redis_by_tls_ends_every_call() {
    ends_every_call(Backend::RedisTls);
}

#[test]
fn three_silent_nodes_end_every_call() {
    ends_every_call(Backend::Quorum);
}
