//! What a history is held to.

use std::time::Duration;

/// What a history is held to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    pub(super) limit: u32,
    pub(super) min_grants: u64,
    pub(super) min_queued: u64,
    pub(super) min_rate: Option<Rate>,
    pub(super) max_overtaken: Option<u64>,
    pub(super) served_within_us: Option<u64>,
    pub(super) looked_for: &'static [&'static str],
}

/// So many grants in so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) grants: u64,
    pub(super) per_us: u64,
}

impl Rules {
    /// One holder at a time.
    #[must_use]
    pub const fn mutex() -> Self {
        Self::limit(1)
    }

    /// So many units at a time: the permits of a semaphore, or what a writer takes.
    #[must_use]
    pub const fn limit(limit: u32) -> Self {
        Self {
            limit,
            min_grants: 1,
            min_queued: 0,
            min_rate: None,
            max_overtaken: None,
            served_within_us: None,
            looked_for: &[],
        }
    }

    /// At least so many grants over all names: a test in which nobody ever got the lock has broken no promise either.
    #[must_use]
    pub const fn at_least(mut self, grants: u64) -> Self {
        self.min_grants = grants;
        self
    }

    /// At least so many grants to somebody who had waited.
    #[must_use]
    pub const fn at_least_queued(mut self, grants: u64) -> Self {
        self.min_queued = grants;
        self
    }

    /// At least so many grants over all names in each so long, on the average of the time before the first fault, which
    /// is at least that long. What stood still before anything was broken shows nothing when it is.
    ///
    /// # Panics
    /// For a period that is no number of microseconds.
    #[must_use]
    pub const fn at_least_before_faults(mut self, grants: u64, per: Duration) -> Self {
        self.min_rate = Some(Rate { grants, per_us: micros(per) });
        self
    }

    /// Whoever is known to stand in the queue is overtaken at most so often by those who ask later.
    #[must_use]
    pub const fn overtaken_at_most(mut self, times: u64) -> Self {
        self.max_overtaken = Some(times);
        self
    }

    /// From [`Healed`](crate::history::Event::Healed) to the next fault every attempt is granted or given up within this,
    /// counted from the later of its beginning and the healing. It is to be longer than a whole queue takes. Nobody hears
    /// after it that the lock is busy when no client has held it for as long, or an error.
    ///
    /// # Panics
    /// For a time that is no number of microseconds.
    #[must_use]
    pub const fn served_within(mut self, within: Duration) -> Self {
        self.served_within_us = Some(micros(within));
        self
    }

    /// The test has looked for this at the end, and recorded how much [residue](crate::history::Event::Residue) it found.
    #[must_use]
    pub const fn looked_for(mut self, what: &'static [&'static str]) -> Self {
        self.looked_for = what;
        self
    }
}

#[expect(clippy::cast_possible_truncation, reason = "asserted: conversions that check are not const")]
const fn micros(duration: Duration) -> u64 {
    assert!(duration.as_micros() > 0 && duration.as_secs() < u32::MAX as u64, "a period of microseconds to years");
    duration.as_micros() as u64
}
