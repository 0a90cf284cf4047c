//! What a caller asks for: how long a lease, how it goes on, who may come between, and for how long to wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_spec::Order;
use leasehold_spec::mutant::{Mutant, is_on};

use super::bounds::ANSWER_MAX_US;

/// What a caller asked for.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) lease_ms: u64,
    pub(crate) renewal: Renewal,
    pub(crate) order: Order,
    pub(crate) entry: Entry,
    /// For how long the session keeps the lease when nobody uses it any more; 0: not at all.
    pub(crate) sticky_us: u64,
    /// How long after the grant nobody else may hold, however early the lease is given back; 0: no minimum (P23).
    pub(crate) min_hold_us: u64,
    pub(crate) label: Arc<str>,
    pub(crate) line: KnownLine,
}

/// Which line was the one for these terms and the name that they are used with, when it was last looked for: found by its
/// number there is no name to hash. It may be gone since, and another name's, so whoever uses it looks at the line itself.
#[derive(Debug, Default)]
pub(crate) struct KnownLine(AtomicU64);

impl KnownLine {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, line: u64) {
        self.0.store(line, Ordering::Relaxed);
    }
}

impl Clone for KnownLine {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }
}

/// When a lease is entered that was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// On its claim, where that can be placed in time.
    OnClaim,
    /// Once the claim was renewed to a whole lease (P29).
    OnLease,
}

/// How a lease goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// Renewed each third.
    Always,
    /// Renewed until this long after the grant.
    For { hold_us: u64 },
    /// Never: it ends by itself.
    Never,
}

impl Terms {
    pub(crate) fn lease_us(&self) -> u64 {
        self.lease_ms * 1000
    }

    /// Whether a lease on these terms may be handed on inside the session (P20): what is asked for is the same for all who
    /// stand in one line, and nobody there asked for more than the next lease.
    pub(crate) fn may_stand(&self) -> bool {
        let has_no_minimum = self.min_hold_us == 0 || is_on(Mutant::P23PassesOn);
        let is_relaxed = self.renewal == Renewal::Always && self.order == Order::Relaxed;
        is_relaxed && self.entry == Entry::OnClaim && has_no_minimum
    }

    /// How long a request may stay unanswered before its link is doubted.
    pub(crate) fn answer_within_us(&self) -> u64 {
        (self.lease_us() / 6).clamp(ANSWER_MIN_US, ANSWER_MAX_US)
    }
}

/// No link is doubted earlier than this: a scheduler's hiccup is not a dead server.
const ANSWER_MIN_US: u64 = 50_000;

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    Until { until_us: u64 },
    ForEver,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_doubted_after_a_sixth_of_the_lease_within_bounds() {
        let terms = |lease_ms| Terms {
            lease_ms,
            renewal: Renewal::Always,
            order: Order::Relaxed,
            entry: Entry::OnClaim,
            sticky_us: 0,
            min_hold_us: 0,
            label: "".into(),
            line: KnownLine::default(),
        };
        assert_eq!(terms(3_000).answer_within_us(), 500_000);
        assert_eq!(terms(30_000).answer_within_us(), ANSWER_MAX_US);
        assert_eq!(terms(100).answer_within_us(), ANSWER_MIN_US);
    }
}
