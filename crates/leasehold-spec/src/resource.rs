//! The state of one name.
//!
//! ```text
//!   Resource
//!     last       the highest token granted or burnt here, while the record lives
//!     grant      who holds: id, token, range of tokens, since, length, state, label
//!     released   the grant id that was given back last: a repeated release hears Released, a late acquire Gone
//!     lapses     sessions whose claim ran out, and when
//!     queue      the waiters, in ticket order: the head is next
//!     keep_until when the record may be forgotten
//! ```
//!
//! Expiry is *passive*: nothing happens to a lease until a step touches the name. A grant whose end has passed stays
//! here, and stays nobody else's, until then. A model with active expiry misses half of the holes.

use std::collections::VecDeque;

use crate::id::{GrantId, SessionId, Token};
use crate::limits::RETENTION_US;
use crate::mutant::{Mutant, is_on};
use crate::op::{Contention, GrantState, Hears, Order};
use crate::step::Env;

/// The record of one name. `Default` is a name that was never used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The highest token granted so far; of a grant whose range nobody reported back, the last of that range.
    pub last: Token,
    /// Who holds.
    pub grant: Option<Grant>,
    /// The grant id that was given back last.
    pub released: Option<GrantId>,
    /// Sessions whose claim ran out, oldest note first.
    pub lapses: Vec<Lapse>,
    /// The waiters, in ticket order.
    pub queue: VecDeque<Entry>,
    /// The record stays at least until then (on the lease clock): R beyond the last lease, and beyond what it reserved.
    pub keep_until_us: u64,
}

/// A held lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The acquisition.
    pub id: GrantId,
    /// Its fencing token. It does not change while the grant is held. Of a grant that cools down it is the highest token
    /// that was used.
    pub token: Token,
    /// How many tokens are reserved for it, from its own on (P19).
    pub range: u64,
    /// When it was made or last renewed.
    pub since_us: u64,
    /// How long it lasts from there.
    pub length_ms: u64,
    /// How far it is.
    pub state: GrantState,
    /// What the holder calls itself.
    pub label: String,
}

impl Grant {
    /// When the lease ends.
    #[must_use]
    pub const fn end_us(&self) -> u64 {
        self.since_us + self.length_ms * 1000
    }

    /// Whether anybody holds it: a grant that cools down was given back (P23).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state != GrantState::CoolingDown
    }

    /// The last token of its range.
    #[must_use]
    pub const fn reserved(&self) -> Token {
        self.token.plus(self.range - 1)
    }

    /// The highest token that was used of it, by what its session says, and within its range whatever that says.
    pub(crate) fn used(&self, said: Token) -> Token {
        if is_on(Mutant::P19IgnoresUsed) {
            return self.token;
        }
        let reserved = if is_on(Mutant::P19BelievesUsed) { Token::HIGHEST } else { self.reserved() };
        said.clamp(self.token, reserved)
    }

    /// Until when its record is kept: R beyond its end, and beyond the moment at which the clock has passed its range. So
    /// who gives the range back, used or not, changes nothing of that. One that was renewed is kept for a lease longer, so
    /// that it need not be said again at each renewal.
    pub(crate) fn keep_until_us(&self, env: &Env<'_>) -> u64 {
        let lead_us = self.reserved().get().saturating_sub(env.wall_us);
        let longer_us = if self.was_renewed() { self.length_ms * 1000 } else { 0 };
        Resource::keep_from((self.end_us() + longer_us).max(env.lease_us + lead_us))
    }

    /// Whether it is known to have been renewed: it is younger than its token. (Where leases are counted on another clock
    /// than tokens it is never known.)
    pub(crate) fn was_renewed(&self) -> bool {
        self.state == GrantState::Held && self.since_us > self.token.get()
    }

    /// Whether its record is kept for long enough if it is renewed now for as long: that was said at the first renewal in
    /// this *span*, one of those as long as the lease, into which the clock is divided.
    pub(crate) fn is_kept_until(&self, now_us: u64, lease_ms: u64) -> bool {
        let span_us = (lease_ms * 1000).max(1);
        self.was_renewed()
            && self.length_ms == lease_ms
            && (now_us - now_us % span_us..=now_us).contains(&self.since_us)
    }

    /// What is left at `now_us`: of a lease that begins in the future, because the clock was set back since, its length.
    #[must_use]
    pub const fn left_us(&self, now_us: u64) -> u64 {
        let (left_us, length_us) = (self.end_us().saturating_sub(now_us), self.length_ms * 1000);
        if left_us < length_us { left_us } else { length_us }
    }
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The attempt that waits.
    pub id: GrantId,
    /// Its place: the queue is sorted by it.
    pub ticket: u64,
    /// The lease that it asks for.
    pub lease_ms: u64,
    /// How many tokens it asks for.
    pub range: u64,
    /// How long a pushed grant lasts before it has answered.
    pub claim_ms: u64,
    /// When its caller stops waiting.
    pub limit_us: Option<u64>,
    /// When it was last heard of.
    pub seen_us: u64,
    /// How it hears of its grant.
    pub hears: Hears,
    /// What order it asks for.
    pub order: Order,
    /// What the waiter calls itself.
    pub label: String,
}

/// A session whose claim ran out: its entries last seen before then are not granted (P7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lapse {
    /// Whose claim.
    pub session: SessionId,
    /// When it ran out.
    pub at_us: u64,
}

impl Resource {
    /// Whether the record may be forgotten: R after the last lease, and R after the clock has passed the last token. One
    /// forgotten earlier, behind a clock that stepped back, would hand out a token again.
    #[must_use]
    pub fn is_forgotten(&self, wall_us: u64, lease_us: u64) -> bool {
        self.keep_until_us <= lease_us && self.reserved().get() + RETENTION_US <= wall_us
    }

    /// The highest token that may be in use.
    #[must_use]
    pub fn reserved(&self) -> Token {
        self.grant.as_ref().map_or(self.last, Grant::reserved)
    }

    /// Whether anybody waits, and whether one of them asks for strict order.
    #[must_use]
    pub fn contention(&self) -> Contention {
        match self.queue.iter().map(|e| e.order).max() {
            None => Contention::None,
            Some(Order::Relaxed) => Contention::Others,
            Some(Order::Strict) => Contention::Strict,
        }
    }

    /// The grant that `id` holds. A grant that cools down is held by nobody.
    #[must_use]
    pub fn held_by(&self, id: GrantId) -> Option<&Grant> {
        self.grant.as_ref().filter(|g| g.id == id && (g.is_held() || is_on(Mutant::P23LeaveEnds)))
    }

    /// Whether the grant of `id` was the last to be given back.
    #[must_use]
    pub fn was_given_back(&self, id: GrantId) -> bool {
        self.released == Some(id) || self.grant.as_ref().is_some_and(|g| g.id == id && !g.is_held())
    }

    pub(crate) fn position(&self, id: GrantId) -> Option<usize> {
        self.queue.iter().position(|e| e.id == id)
    }

    /// Until when a record is kept whose lease ends at `end_us`.
    pub(crate) const fn keep_from(end_us: u64) -> u64 {
        end_us + RETENTION_US
    }
}
