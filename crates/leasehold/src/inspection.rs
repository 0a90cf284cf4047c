//! What an operator sees of a lock.

use std::time::Duration;

use leasehold_spec::{GrantState, PublicId, Token};

/// What there is under a name: see [`Mutex::inspect`](crate::Mutex::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Who holds; `None` when the lock is free, or where that [is not known](Self::is_known).
    pub holder: Option<Holder>,
    /// How many wait in the store's queue; those that died count until their turn comes. A client's tasks that wait in one
    /// line count as one there, and not at all while that client holds.
    pub waiters: usize,
    /// What each node of a quorum says by itself, in the order of the URL. A holder has the votes of a majority; the others
    /// may be late, or have none to give. Empty where the store is no quorum.
    pub nodes: Vec<NodeView>,
}

impl Inspection {
    /// Whether it is known who holds, or that nobody does. It always is, but of a quorum of which so many nodes rest or do
    /// not answer that somebody may have a majority.
    #[must_use]
    pub fn is_known(&self) -> bool {
        let unheard = |node: &&NodeView| matches!(node.says, NodeSays::Resting { .. } | NodeSays::Nothing { .. });
        let votes = |one: &Holder| self.voted().filter(|voted| (voted.id, voted.token) == (one.id, one.token)).count();
        let most = self.voted().map(votes).max().unwrap_or(0);
        let unheard = self.nodes.iter().filter(unheard).count();
        self.holder.is_some() || self.nodes.is_empty() || most + unheard <= self.nodes.len() / 2
    }

    /// For whom nodes have voted.
    fn voted(&self) -> impl Iterator<Item = &Holder> {
        self.nodes.iter().filter_map(|node| match &node.says {
            NodeSays::Voted(holder) => Some(holder),
            _ => None,
        })
    }
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    pub(crate) id: PublicId,
    /// The fencing token of its grant. A client that has handed the lock on since has gone up from there: the guard that is
    /// out may have a larger one, and never a smaller one.
    pub token: Token,
    /// What is left of its lease.
    pub remaining: Duration,
    /// What it calls itself: see [`Builder::holder`](crate::Builder::holder).
    pub label: String,
    /// Whether it was told to stop.
    pub is_revoked: bool,
}

impl Holder {
    /// The public part of its grant id: which client, and which acquisition of it.
    #[must_use]
    pub fn id(&self) -> String {
        self.id.to_string()
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
        }
    }
}

/// What one node of a quorum says of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// Its address.
    pub at: String,
    /// What it says.
    pub says: NodeSays,
}

impl NodeView {
    /// For tests of what shows it.
    #[doc(hidden)]
    #[must_use]
    pub fn new(at: impl Into<String>, says: NodeSays) -> Self {
        Self { at: at.into(), says }
    }
}

/// To whom a node of a quorum has given its vote for a lock, or why it has none to give.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeSays {
    /// To this one. That is who holds, where a majority says so.
    Voted(Holder),
    /// To nobody.
    Free,
    /// It may have forgotten what it voted, and abstains.
    Resting {
        /// For so long.
        left: Duration,
    },
    /// Nothing: there is no answer from it, or none of this kind.
    Nothing {
        /// Why.
        why: String,
    },
}
