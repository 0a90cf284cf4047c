//! The record that a node keeps of one name.

use std::collections::BTreeMap;

use crate::answer::Contention;
use crate::grant::GrantState;
use crate::id::{GrantId, Token};
use crate::mutant::{Mutant, is_on};
use crate::node::request::Renewal;
use crate::op::Order;

/// The record that a node keeps of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The largest token for which the node has voted, the end of its range included. It never falls.
    pub highest: Token,
    /// The grant that has the vote.
    pub grant: Option<Granted>,
    /// The attempt that was last to give the vote back for good, or to be revoked. A late renewal of it does not get
    /// the vote again.
    pub released: Option<GrantId>,
    /// The waiter that the node has called last. Until its call ends, no later waiter gets the vote.
    pub called: Option<Called>,
    /// The waiters, by ticket. Tickets are the same on all nodes, so that all of them call the same waiter.
    pub queue: BTreeMap<(u64, GrantId), Order>,
    /// The time until which the record is kept, on the clock of the node.
    pub keep_until_us: u64,
}

/// A vote that the node has given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Granted {
    /// The grant that has the vote.
    pub id: GrantId,
    /// The token of the grant.
    pub token: Token,
    /// The number of tokens, counted from `token`.
    pub range: u64,
    /// The time at which the vote was given or last renewed. If the vote is marked for revocation: its end, less its
    /// length.
    pub since_us: u64,
    /// The length of the vote, counted from `since_us`.
    pub length_ms: u64,
    /// The state of the vote: held, marked for revocation, or given back and cooling down.
    pub state: GrantState,
    /// The label of the holder.
    pub label: String,
}

/// A waiter that was called: its client may ask before others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Called {
    /// The attempt whose turn it is. It is also the turn of the other attempts of its session.
    pub id: GrantId,
    /// The place of the waiter in the queue. An attempt with an earlier place need not wait for the call to end.
    pub ticket: u64,
    /// The time at which the call ends.
    pub until_us: u64,
}

impl Granted {
    /// Whether a client holds by this vote. A vote that cools down was given back (P23).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state != GrantState::CoolingDown
    }

    /// Whether this is the vote of the attempt.
    pub(super) fn is_for(&self, id: GrantId) -> bool {
        self.id == id && (self.is_held() || is_on(Mutant::P23GrantsAgain))
    }

    /// Whether the renewal is for this vote.
    pub(super) fn is_kept_by(&self, renewal: &Renewal) -> bool {
        let is_held = self.is_held() || is_on(Mutant::P23RenewRevives);
        self.id == renewal.id && self.token == renewal.token && is_held
    }

    /// Returns the time at which the vote ends.
    #[must_use]
    pub const fn end_us(&self) -> u64 {
        self.since_us + self.length_ms * 1000
    }

    /// Returns the time that is left at `now_us`. If the clock was set back and the vote begins in the future, the
    /// result is the length of the vote.
    #[must_use]
    pub const fn left_us(&self, now_us: u64) -> u64 {
        let (left_us, length_us) = (self.end_us().saturating_sub(now_us), self.length_ms * 1000);
        if left_us < length_us { left_us } else { length_us }
    }
}

impl Record {
    /// Returns whether others wait, and whether the first waiter asks for strict order.
    #[must_use]
    pub fn contention(&self) -> Contention {
        match self.queue.values().next() {
            None => Contention::None,
            Some(Order::Relaxed) => Contention::Others,
            Some(Order::Strict) => Contention::Strict,
        }
    }
}
