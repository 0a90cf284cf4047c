//! Counts the rounds that the grants of this process took, for benchmarks. Nothing else shows the cost of contention: a
//! waiter sees one wait.

use std::sync::atomic::{AtomicU64, Ordering};

/// The last entry counts all grants with at least as many rounds.
const MOST: usize = 64;

static GRANTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Counts a grant that took so many rounds.
pub(super) fn note_grant(rounds: u32) {
    GRANTS[(rounds as usize).clamp(1, MOST) - 1].fetch_add(1, Ordering::Relaxed);
}

/// Returns numbers of rounds, each with the number of grants that took so many.
#[must_use]
pub fn attempts() -> Vec<(u64, u64)> {
    let grants = GRANTS.iter().map(|grants| grants.load(Ordering::Relaxed));
    (1..).zip(grants).filter(|(_, grants)| *grants > 0).collect()
}
