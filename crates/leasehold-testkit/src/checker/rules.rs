//! The requirements for a history.

use std::collections::BTreeMap;
use std::time::Duration;

/// The requirements for a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    limit: u32,
    /// The names that have another limit.
    limits: BTreeMap<String, u32>,
    pub(super) min_grants: u64,
    pub(super) min_queued: u64,
    pub(super) min_rate: Option<Rate>,
    pub(super) max_overtaken: Option<u64>,
    pub(super) served_within_us: Option<u64>,
    pub(super) looked_for: &'static [&'static str],
}

/// A number of grants in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) grants: u64,
    pub(super) per_us: u64,
}

impl Rules {
    /// Requires one holder at a time.
    #[must_use]
    pub const fn mutex() -> Self {
        Self::limit(1)
    }

    /// Requires at most this many units at a time: the permits of a semaphore, or any number of readers.
    #[must_use]
    pub const fn limit(limit: u32) -> Self {
        Self {
            limit,
            limits: BTreeMap::new(),
            min_grants: 1,
            min_queued: 0,
            min_rate: None,
            max_overtaken: None,
            served_within_us: None,
            looked_for: &[],
        }
    }

    /// Requires at most this many units at a time for this name, instead of the limit of the other names.
    #[must_use]
    pub fn limited(mut self, name: &str, limit: u32) -> Self {
        self.limits.insert(name.to_owned(), limit);
        self
    }

    /// Requires at least this many grants over all names. A test in which no client ever gets the lock breaks no other
    /// promise.
    #[must_use]
    pub const fn at_least(mut self, grants: u64) -> Self {
        self.min_grants = grants;
        self
    }

    /// Requires at least this many grants to clients that had waited.
    #[must_use]
    pub const fn at_least_queued(mut self, grants: u64) -> Self {
        self.min_queued = grants;
        self
    }

    /// Requires at least this many grants over all names in each period, on average over the time before the first
    /// fault. That time must be at least one period. A system that does nothing before the first fault proves nothing
    /// after it.
    ///
    /// # Panics
    /// For a period that is not a number of microseconds.
    #[must_use]
    pub const fn at_least_before_faults(mut self, grants: u64, per: Duration) -> Self {
        self.min_rate = Some(Rate { grants, per_us: micros(per) });
        self
    }

    /// Requires that a waiter that is known to be in the queue is overtaken at most this often by later attempts.
    #[must_use]
    pub const fn overtaken_at_most(mut self, times: u64) -> Self {
        self.max_overtaken = Some(times);
        self
    }

    /// Requires that from [`Healed`](crate::history::Event::Healed) to the next fault every attempt is granted or
    /// abandoned within this time, counted from the later of its beginning and the repair. The time must be longer than
    /// a whole queue takes. After it no attempt may be refused as busy when no client has held the lock for as long, and
    /// none may fail with an error.
    ///
    /// # Panics
    /// For a time that is not a number of microseconds.
    #[must_use]
    pub const fn served_within(mut self, within: Duration) -> Self {
        self.served_within_us = Some(micros(within));
        self
    }

    /// Requires that the test has checked for this at the end, and recorded the amount of
    /// [residue](crate::history::Event::Residue).
    #[must_use]
    pub const fn looked_for(mut self, what: &'static [&'static str]) -> Self {
        self.looked_for = what;
        self
    }

    /// Returns the limit of a name.
    pub(super) fn limit_of(&self, name: &str) -> u32 {
        self.limits.get(name).copied().unwrap_or(self.limit)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "asserted: conversions that check are not const")]
const fn micros(duration: Duration) -> u64 {
    assert!(duration.as_micros() > 0 && duration.as_secs() < u32::MAX as u64, "a period of microseconds to years");
    duration.as_micros() as u64
}
