//! The state of one name.
//!
//! ```text
//!   Resource
//!     kind       the kind of the name
//!     limit      the number of its units
//!     last       the highest token that was granted or burnt, while the record lives
//!     grants     the grants: ID, token, range of tokens, units, mode, since, length, state, label
//!     released   the ID of the grant that was given back last: a repeated release gets Released, a late acquire gets Gone
//!     lapses     the sessions whose claim ran out, and when
//!     upgrade    the upgrade that waits ahead of the queue
//!     latch      of a latch: which one it is, and what it has counted
//!     queue      the waiters, in ticket order: the head is next
//!     keep_until the time from which on the record may be forgotten
//! ```
//!
//! Expiry is *passive*: nothing happens to a lease until a step touches the name. A grant whose end has passed stays in
//! the record until then, and nobody else has the lease. A model with active expiry misses half of the bad schedules.

use std::collections::VecDeque;

use crate::answer::Contention;
use crate::grant::Grant;
use crate::grants::Grants;
use crate::id::{GrantId, SessionId, Token};
use crate::latch::Latch;
use crate::limits::RETENTION_US;
use crate::mutant::{Mutant, is_on};
use crate::op::{Hears, Order};
use crate::take::{Kind, Mode, Take};

/// The record of one name. `Default` is a name that was never used: its first grant or waiter makes it what it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The kind of the name.
    pub kind: Kind,
    /// The number of units that can be granted at a time. A mutex has one.
    pub limit: u32,
    /// The highest token granted so far. If nobody reported how much of a range was used, the last token of that range.
    pub last: Token,
    /// The grants.
    pub grants: Grants,
    /// The ID of the grant that was given back last.
    pub released: Option<GrantId>,
    /// The sessions whose claim ran out, oldest first.
    pub lapses: Vec<Lapse>,
    /// The upgrade that waits, ahead of the queue.
    pub upgrade: Option<Entry>,
    /// The waiters, in ticket order.
    pub queue: VecDeque<Entry>,
    /// The state of a latch.
    pub latch: Latch,
    /// The time until which the record is kept, on the lease clock: R beyond the last lease, and R beyond the time that
    /// the reserved tokens stand for.
    pub keep_until_us: u64,
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The attempt that waits.
    pub id: GrantId,
    /// The place of the waiter. The queue is sorted by it.
    pub ticket: u64,
    /// The length of the lease that the waiter asks for.
    pub lease_ms: u64,
    /// The number of tokens that the waiter asks for.
    pub range: u64,
    /// The time for which a pushed grant lasts before its receiver has sent a request.
    pub claim_ms: u64,
    /// The time at which the caller stops waiting.
    pub limit_us: Option<u64>,
    /// The time of the last request of the attempt.
    pub seen_us: u64,
    /// The way in which the waiter learns of its grant.
    pub hears: Hears,
    /// The order that the waiter asks for.
    pub order: Order,
    /// The number of units that the waiter asks for.
    pub units: u32,
    /// The way in which the waiter takes them.
    pub mode: Mode,
    /// The label of the waiter.
    pub label: String,
}

/// A session whose claim ran out. Its entries are not granted if they were last seen before that (P7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lapse {
    /// The session.
    pub session: SessionId,
    /// The time at which the claim ran out.
    pub at_us: u64,
}

impl Default for Resource {
    fn default() -> Self {
        let Take { kind, limit, .. } = Take::MUTEX;
        Self {
            kind,
            limit,
            last: Token::NONE,
            grants: Grants::default(),
            released: None,
            lapses: Vec::new(),
            upgrade: None,
            queue: VecDeque::new(),
            latch: Latch::default(),
            keep_until_us: 0,
        }
    }
}

impl Resource {
    /// Whether the record may be forgotten: R after the last lease, and R after the clock has passed the last token. If
    /// the record were forgotten earlier and the clock stepped back, a token would be granted twice.
    #[must_use]
    pub fn is_forgotten(&self, wall_us: u64, lease_us: u64) -> bool {
        self.keep_until_us <= lease_us && self.reserved().get() + RETENTION_US <= wall_us
    }

    /// Returns the highest token that may be in use.
    #[must_use]
    pub fn reserved(&self) -> Token {
        self.grants.reserved().map_or(self.last, |reserved| reserved.max(self.last))
    }

    /// Returns whether others wait, and whether one of them asks for strict order.
    #[must_use]
    pub fn contention(&self) -> Contention {
        match self.queue.iter().map(|entry| entry.order).max() {
            None if self.upgrade.is_some() => Contention::Others,
            None => Contention::None,
            Some(Order::Relaxed) => Contention::Others,
            Some(Order::Strict) => Contention::Strict,
        }
    }

    /// Returns the grant that `id` holds. Nobody holds a grant that cools down.
    #[must_use]
    pub fn held_by(&self, id: GrantId) -> Option<&Grant> {
        self.grants.get(id).filter(|grant| grant.is_held() || is_on(Mutant::P23LeaveEnds))
    }

    /// Whether the grant of `id` is the one that was given back last.
    #[must_use]
    pub fn was_given_back(&self, id: GrantId) -> bool {
        self.released == Some(id) || self.grants.get(id).is_some_and(|grant| !grant.is_held())
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.upgrade.is_none()
    }

    /// Returns the index of an attempt in the queue.
    pub(crate) fn position(&self, id: GrantId) -> Option<usize> {
        self.queue.iter().position(|entry| entry.id == id)
    }
}
