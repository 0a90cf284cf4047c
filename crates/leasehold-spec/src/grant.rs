//! One grant: a lease, from the acquire that made it until it ends.

use crate::env::Env;
use crate::id::{GrantId, Token};
use crate::limits::RETENTION_US;
use crate::mutant::{Mutant, is_on};
use crate::take::Mode;

/// A lease that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The acquisition.
    pub id: GrantId,
    /// The fencing token. It does not change while the grant is held. If the grant cools down, this is the highest
    /// token that was used.
    pub token: Token,
    /// The number of tokens that are reserved for the grant, counted from `token` (P19).
    pub range: u64,
    /// The time at which the grant was made or last renewed.
    pub since_us: u64,
    /// The length of the lease, counted from `since_us`.
    pub length_ms: u64,
    /// The state of the grant.
    pub state: GrantState,
    /// The number of units that the grant takes.
    pub units: u32,
    /// The way in which the grant takes them.
    pub mode: Mode,
    /// The label of the holder, which `inspect` shows.
    pub label: String,
}

impl Grant {
    /// Returns the time at which the lease ends.
    #[must_use]
    pub const fn end_us(&self) -> u64 {
        self.since_us + self.length_ms * 1000
    }

    /// Whether a client holds the grant. A grant that cools down was given back (P23).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state != GrantState::CoolingDown
    }

    /// Returns the last token of the range.
    #[must_use]
    pub const fn reserved(&self) -> Token {
        self.token.plus(self.range - 1)
    }

    /// Returns the highest token of the grant that was used, according to its session. The result is always within the
    /// range.
    pub(crate) fn used(&self, reported: Token) -> Token {
        if is_on(Mutant::P19IgnoresUsed) {
            return self.token;
        }
        let reserved = if is_on(Mutant::P19BelievesUsed) { Token::HIGHEST } else { self.reserved() };
        reported.clamp(self.token, reserved)
    }

    /// Returns the time until which the record of a mutex is kept for the sake of its grant. A release does not change
    /// this time, whether the range was used or not.
    ///
    /// A grant that was renewed is kept for one more lease, so that not every renewal has to write a new time.
    pub(crate) fn keep_until_us(&self, env: &Env<'_>) -> u64 {
        let longer_us = if self.was_renewed() { self.length_ms * 1000 } else { 0 };
        self.needed_until_us(env).max(keep_from(self.end_us() + longer_us))
    }

    /// Returns the time until which the record of the grant is needed: R beyond the end of the lease, and R beyond the
    /// time at which the clock has passed the range.
    pub(crate) fn needed_until_us(&self, env: &Env<'_>) -> u64 {
        let lead_us = self.reserved().get().saturating_sub(env.wall_us);
        keep_from(self.end_us().max(env.lease_us + lead_us))
    }

    /// Whether the record is kept for long enough if the grant is renewed now with a lease of `lease_ms`. The clock is
    /// divided into *spans* as long as the lease, and the first renewal in a span writes the time until which the
    /// record is kept.
    pub(crate) fn is_kept_until(&self, now_us: u64, lease_ms: u64) -> bool {
        let span_us = (lease_ms * 1000).max(1);
        self.was_renewed()
            && self.length_ms == lease_ms
            && (now_us - now_us % span_us..=now_us).contains(&self.since_us)
    }

    /// Returns the time that is left at `now_us`. If the clock was set back and the lease begins in the future, the
    /// result is the length of the lease.
    #[must_use]
    pub const fn left_us(&self, now_us: u64) -> u64 {
        let (left_us, length_us) = (self.end_us().saturating_sub(now_us), self.length_ms * 1000);
        if left_us < length_us { left_us } else { length_us }
    }

    /// Whether the grant is known to have been renewed: it began later than its token. If leases are counted on another
    /// clock than tokens, a renewal is never known.
    fn was_renewed(&self) -> bool {
        self.state == GrantState::Held && self.since_us > self.token.get()
    }
}

/// The state of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantState {
    /// Pushed to a waiter that has not sent a request since.
    Pushed,
    /// Held.
    Held,
    /// Marked for revocation: the grant ends after the grace.
    Revoked,
    /// Given back, and held by nobody. Others are kept out until the end of the grant (P23).
    CoolingDown,
}

/// Returns the time until which a record is kept if its lease ends at `end_us`.
pub(crate) const fn keep_from(end_us: u64) -> u64 {
    end_us + RETENTION_US
}
