//! How many rounds the grants of this process took: what contention costs shows here and nowhere else, since whoever waits
//! sees one wait. For benchmarks.

use std::sync::atomic::{AtomicU64, Ordering};

/// The last one stands for itself and all that are more.
const MOST: usize = 64;

static GRANTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Takes note of a grant that took so many rounds.
pub(super) fn note(rounds: u32) {
    GRANTS[(rounds as usize).clamp(1, MOST) - 1].fetch_add(1, Ordering::Relaxed);
}

/// Rounds, and how many grants took so many.
#[must_use]
pub fn attempts() -> Vec<(u64, u64)> {
    (1..)
        .zip(&GRANTS)
        .map(|(rounds, grants)| (rounds, grants.load(Ordering::Relaxed)))
        .filter(|(_, n)| *n > 0)
        .collect()
}
