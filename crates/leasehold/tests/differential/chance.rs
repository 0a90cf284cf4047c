//! Random parts of requests, and random steps of the clock. They prefer rare cases.

use leasehold_spec::{Hears, Order, Patience, Place};
use leasehold_testkit::Random;

/// Returns the terms of a new waiter.
pub(crate) fn place(random: &mut Random) -> Patience {
    let limit_ms = match random.below(4) {
        0 => Some(*random.pick(&[0, 1, 400, 5_000, 31_536_000_000])),
        _ => None,
    };
    Patience::Queue(Place {
        claim_ms: *random.pick(&[1_000, 1_000, 2_500, 100_000]),
        limit_ms,
        ticket: None,
        hears: if random.chance(80) { Hears::Listens } else { Hears::Polls },
        order: if random.chance(20) { Order::Strict } else { Order::Relaxed },
    })
}

/// Returns the time after which a request is late: seldom a time that has passed.
pub(crate) fn not_after_us(random: &mut Random, now_us: u64) -> u64 {
    match random.below(12) {
        0 => now_us - random.within(0, 3_000_000),
        _ => now_us + 2_000_000,
    }
}

/// Returns a step of the clock: to the end of a lease of which so much is left, past the retention, or back.
pub(crate) fn step_of_clock(random: &mut Random, left_us: u64) -> i64 {
    let left_us = i64::try_from(left_us).unwrap_or(0);
    let by_us = match random.below(12) {
        0..=3 => left_us + 1_000,
        4 => left_us - 20_000,
        5 => 20_000_000,
        6 => 70_000_000,
        7 => 200_000,
        8 => -1_500_000,
        9 => -40_000_000,
        10 => -300_000_000,
        _ => 2_000_000,
    };
    // At most a day and a month ahead: the clock must stay plausible for a server.
    by_us.clamp(-86_400_000_000, 2 * 86_400_000_000)
}
