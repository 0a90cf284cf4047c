//! The terms of an acquire: how long the lease is, how it is renewed, and how long the caller waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_spec::limits::LEASE_DEFAULT_MS;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Kind, Order, Take};

use super::bounds::ANSWER_MAX_US;

/// The terms on which a caller acquires.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) take: Take,
    pub(crate) lease_ms: u64,
    pub(crate) renewal: Renewal,
    pub(crate) order: Order,
    pub(crate) entry: Entry,
    /// How long the session keeps an unused lease for its next caller; 0: not at all.
    pub(crate) sticky_us: u64,
    /// How long after the grant nobody else may hold, however early the lease is released; 0: no minimum (P23).
    pub(crate) min_hold_us: u64,
    pub(crate) label: Arc<str>,
    pub(crate) queue: QueueHint,
}

/// When a lease that was handed over may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// During the claim, if the client can tell how much of the claim is left.
    OnClaim,
    /// After a renewal has made the claim a whole lease (P29).
    OnLease,
}

/// How a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// At each third of the lease.
    Always,
    /// Until `hold_us` after the grant.
    For { hold_us: u64 },
    /// Never: the lease ends by itself.
    Never,
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    Until { until_us: u64 },
    ForEver,
}

/// No connection is doubted earlier than this: a busy scheduler is not a dead server.
const ANSWER_MIN_US: u64 = 50_000;

impl Terms {
    /// Returns the terms of an attempt that only ends: nobody enters by it.
    pub(crate) fn of_an_end() -> Self {
        Self {
            take: Take::MUTEX,
            lease_ms: LEASE_DEFAULT_MS,
            renewal: Renewal::Never,
            order: Order::Relaxed,
            entry: Entry::OnClaim,
            sticky_us: 0,
            min_hold_us: 0,
            label: "".into(),
            queue: QueueHint::default(),
        }
    }

    pub(crate) fn lease_us(&self) -> u64 {
        self.lease_ms * 1000
    }

    /// Returns whether a lease on these terms may be handed on inside the session (P20): the terms are the same for all
    /// waiters of a local queue, and ask for nothing but the next lease.
    pub(crate) fn may_share(&self) -> bool {
        let has_no_minimum = self.min_hold_us == 0 || is_on(Mutant::P23PassesOn);
        let is_relaxed = self.renewal == Renewal::Always && self.order == Order::Relaxed;
        let is_mutex = self.take.kind == Kind::Mutex;
        is_mutex && is_relaxed && self.entry == Entry::OnClaim && has_no_minimum
    }

    /// Returns whether this is an arrival at a barrier: nobody enters by it, and a party arrives once (P52).
    pub(crate) fn is_arrival(&self) -> bool {
        self.take.kind == Kind::Barrier
    }

    /// Returns how long a request may stay unanswered before its connection is doubted.
    pub(crate) fn answer_within_us(&self) -> u64 {
        (self.lease_us() / 6).clamp(ANSWER_MIN_US, ANSWER_MAX_US)
    }
}

/// The number of the local queue that the last caller with these terms used. The hint saves hashing the name. The queue may
/// be gone, or belong to another name, so the user of the hint checks the queue itself.
#[derive(Debug, Default)]
pub(crate) struct QueueHint(AtomicU64);

impl QueueHint {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, queue: u64) {
        self.0.store(queue, Ordering::Relaxed);
    }
}

impl Clone for QueueHint {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_doubted_after_a_sixth_of_the_lease_within_bounds() {
        let within_us = |lease_ms| Terms { lease_ms, ..Terms::of_an_end() }.answer_within_us();
        assert_eq!(within_us(3_000), 500_000);
        assert_eq!(within_us(30_000), ANSWER_MAX_US);
        assert_eq!(within_us(100), ANSWER_MIN_US);
    }
}
