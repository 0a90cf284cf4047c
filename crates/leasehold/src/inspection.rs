//! The state of a lock, as operators see it.

use std::time::{Duration, SystemTime};

use leasehold_spec::{GrantState, PublicId, Token};

/// The state of a lock: see [`Mutex::inspect`](crate::Mutex::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The holder. It is `None` if the lock is free, or if the state [is not known](Self::is_known).
    pub holder: Option<Holder>,
    /// The number of waiters in the queue of the store. A waiter that died counts until its turn comes. Tasks of one
    /// client that wait in its local queue count as one, and do not count while that client holds the lock. A read guard
    /// that waits for its upgrade counts as well.
    pub waiters: usize,
    /// The reply of each node of a quorum, in the order of the URL. The holder has the votes of a majority; the other
    /// nodes may be late, or may have no vote to give. It is empty for all other stores.
    pub nodes: Vec<NodeView>,
}

impl Inspection {
    /// Returns whether it is known who holds the lock, or that it is free.
    ///
    /// This is always `true` except on a quorum: if too many nodes are in quarantine or do not reply, a holder with a
    /// majority may exist that cannot be seen.
    #[must_use]
    pub fn is_known(&self) -> bool {
        let unheard = |node: &&NodeView| matches!(node.says, NodeSays::Resting { .. } | NodeSays::Nothing { .. });
        let votes = |one: &Holder| self.voted().filter(|voted| (voted.id, voted.token) == (one.id, one.token)).count();
        let most = self.voted().map(votes).max().unwrap_or(0);
        let unheard = self.nodes.iter().filter(unheard).count();
        self.holder.is_some() || self.nodes.is_empty() || most + unheard <= self.nodes.len() / 2
    }

    /// Returns the holders that nodes have voted for.
    fn voted(&self) -> impl Iterator<Item = &Holder> {
        self.nodes.iter().filter_map(|node| match &node.says {
            NodeSays::Voted(holder) => Some(holder),
            _ => None,
        })
    }
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    pub(crate) id: PublicId,
    /// The fencing token of the grant. If the client has handed the lock on inside itself, the current guard has a
    /// larger token. It never has a smaller one.
    pub token: Token,
    /// The rest of the lease.
    pub remaining: Duration,
    /// The label of the client: see [`Builder::holder`](crate::Builder::holder).
    pub label: String,
    /// Whether the lease was revoked, so that it ends when its grace is over.
    pub is_revoked: bool,
    /// Whether the lease was released and cools down: nobody holds it, and others are kept out until it ends (see
    /// [`Mutex::min_hold`](crate::Mutex::min_hold)).
    pub is_cooling_down: bool,
}

impl Holder {
    /// Returns the public part of the grant ID: which client, and which of its acquisitions.
    #[must_use]
    pub fn id(&self) -> String {
        self.id.to_string()
    }

    /// Returns since when this client has the lease, by the clock of the store. That is the clock of the Redis server, or
    /// of this host for `file:` and `memory:`. On a quorum, the client proposes the time, by the clocks of the nodes.
    ///
    /// It is the time that the [token](Self::token) contains. It is exact enough to show to a person, with three
    /// exceptions:
    ///
    /// - If the lock was handed on inside its former client a moment ago, the time is up to 1 s too late.
    /// - If the clock of the store was set back since an earlier grant of this lock, the time is too late by that step.
    /// - If the client hands the lock on inside itself, or [keeps](crate::Mutex::sticky) it, this is the time at which
    ///   the client got the lock, and not the current guard.
    ///
    /// If you compare it with the clock of another machine, allow for a difference of the clocks. To decide whether a
    /// lease has ended, use [`remaining`](Self::remaining) instead.
    #[must_use]
    pub fn held_since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.token.get())
    }
}

impl From<leasehold_spec::Holder> for Holder {
    fn from(holder: leasehold_spec::Holder) -> Self {
        Self {
            id: holder.id,
            token: holder.token,
            remaining: Duration::from_micros(holder.left_us),
            label: holder.label,
            is_revoked: holder.state == GrantState::Revoked,
            is_cooling_down: holder.state == GrantState::CoolingDown,
        }
    }
}

/// The reply of one node of a quorum about a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// The address of the node.
    pub at: String,
    /// Its vote, or the reason why it has none.
    pub says: NodeSays,
}

impl NodeView {
    /// Returns such a reply, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn new(at: impl Into<String>, says: NodeSays) -> Self {
        Self { at: at.into(), says }
    }
}

/// The vote of a node of a quorum for a lock, or the reason why it has no vote.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeSays {
    /// The node has voted for this client. If a majority has done so, this client is the holder.
    Voted(Holder),
    /// The node has voted for nobody.
    Free,
    /// The node is in quarantine: it may have forgotten votes, and does not vote until the quarantine is over.
    Resting {
        /// The rest of the quarantine.
        left: Duration,
    },
    /// There is no usable reply from the node.
    Nothing {
        /// The reason.
        why: String,
    },
}

/// The result of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revoked {
    /// The lease was revoked. It ends within this time.
    Within(Duration),
    /// That holder does not have the lock any more.
    NotHeld,
}
