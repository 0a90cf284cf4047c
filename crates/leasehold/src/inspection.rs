//! The state of a lock, as operators see it.

use std::fmt;
use std::time::{Duration, SystemTime};

use leasehold_spec::{GrantState, PublicId, ShownMode, Take, Token};

/// The state of a lock: see [`Mutex::inspect`](crate::Mutex::inspect).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The kind of the name. A store forgets the name about a minute after its last use, and then this is
    /// [`Kind::Mutex`].
    pub kind: Kind,
    /// The number of units of the name: 1 for a mutex, the number of permits for a semaphore, and 100,000 for a
    /// read-write lock, the largest number of readers.
    pub limit: u32,
    /// The number of units that are taken. A reader takes one, and a writer all of them.
    pub units: u32,
    /// The first holders, at most 16, in the order of their tokens: the oldest first. If there are more than 16, a store
    /// may show others than the oldest. It is empty if nobody holds the lock, or if the state
    /// [is not known](Self::is_known).
    pub holders: Vec<Holder>,
    /// The number of holders.
    pub holder_count: usize,
    /// The first waiters in the queue of the store, at most 16, in the order in which they are served. A reader that
    /// waits for its upgrade is the first. A quorum does not show its queue: there, this is empty.
    pub queue: Vec<Waiter>,
    /// The number of waiters in the queue of the store. A waiter that died counts until its turn comes. Tasks of one
    /// client that wait in its local queue count as one, and do not count while that client holds the lock. A reader
    /// that waits for its upgrade counts as well.
    pub waiters: usize,
    /// The reply of each node of a quorum, in the order of the URL. The holder has the votes of a majority; the other
    /// nodes may be late, or may have no vote to give. It is empty for all other stores.
    pub nodes: Vec<NodeView>,
}

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A [`Mutex`](crate::Mutex).
    Mutex,
    /// A [`RwLock`](crate::RwLock).
    ReadWrite,
    /// A [`Semaphore`](crate::Semaphore).
    Semaphore,
    /// A [`Condvar`](crate::Condvar).
    Condition,
    /// A [`Latch`](crate::Latch).
    Latch,
    /// A [`Barrier`](crate::Barrier).
    Barrier,
}

/// The way in which a holder holds, or a waiter wants to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// A mutex.
    Lock,
    /// A read-write lock, to read.
    Read,
    /// A read-write lock, to read, with the right to an upgrade.
    UpgradeableRead,
    /// A read-write lock, to write.
    Write,
    /// A reader that waits until it is a writer. A holder never has this mode.
    Upgrade,
    /// Permits of a semaphore.
    Permits,
    /// A waiter of a condition variable or of a latch. A holder of a condition variable is a waiter that was notified, and
    /// has not locked its lock again yet.
    Notified,
}

impl Inspection {
    pub(crate) fn new(seen: leasehold_spec::Inspection, nodes: Vec<NodeView>) -> Self {
        let (kind, limit) = (seen.kind.into(), seen.limit);
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self {
            kind,
            limit,
            units: seen.units,
            holders: seen.holders.into_iter().map(|holder| Holder::new(holder, (kind, limit))).collect(),
            holder_count: count(seen.grants),
            queue: seen.queue.into_iter().map(|waiter| Waiter::new(waiter, (kind, limit))).collect(),
            waiters: count(seen.waiters),
            nodes,
        }
    }

    /// Returns the holder, or the oldest one if there are several. It is `None` if nobody holds the lock, or if the state
    /// [is not known](Self::is_known).
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.holders.first()
    }

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
        !self.holders.is_empty() || self.nodes.is_empty() || most + unheard <= self.nodes.len() / 2
    }

    /// Returns the holders that nodes have voted for.
    fn voted(&self) -> impl Iterator<Item = &Holder> {
        self.nodes.iter().filter_map(|node| match &node.says {
            NodeSays::Voted(holder) => Some(holder),
            _ => None,
        })
    }
}

impl Kind {
    /// Returns the name of the kind, in lower case, for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Mutex => leasehold_spec::Kind::Mutex.word(),
            Self::ReadWrite => leasehold_spec::Kind::ReadWrite.word(),
            Self::Semaphore => leasehold_spec::Kind::Semaphore.word(),
            Self::Condition => leasehold_spec::Kind::Condition.word(),
            Self::Latch => leasehold_spec::Kind::Latch.word(),
            Self::Barrier => leasehold_spec::Kind::Barrier.word(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl From<leasehold_spec::Kind> for Kind {
    fn from(kind: leasehold_spec::Kind) -> Self {
        match kind {
            leasehold_spec::Kind::Mutex => Self::Mutex,
            leasehold_spec::Kind::ReadWrite => Self::ReadWrite,
            leasehold_spec::Kind::Semaphore => Self::Semaphore,
            leasehold_spec::Kind::Condition => Self::Condition,
            leasehold_spec::Kind::Latch => Self::Latch,
            leasehold_spec::Kind::Barrier => Self::Barrier,
        }
    }
}

impl Mode {
    fn new(shown: ShownMode, units: u32, (kind, limit): (Kind, u32)) -> Self {
        match (kind, shown) {
            (Kind::Mutex, _) => Self::Lock,
            (Kind::Semaphore, _) => Self::Permits,
            (Kind::Condition | Kind::Latch | Kind::Barrier, _) => Self::Notified,
            (Kind::ReadWrite, ShownMode::Upgrade) => Self::Upgrade,
            (Kind::ReadWrite, ShownMode::Upgradeable) => Self::UpgradeableRead,
            (Kind::ReadWrite, ShownMode::Plain) if units == limit => Self::Write,
            (Kind::ReadWrite, ShownMode::Plain) => Self::Read,
        }
    }
}

/// A holder of a lock.
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
    /// The way in which the client holds the lock.
    pub mode: Mode,
    /// The number of units that the client has: see [`Inspection::units`].
    pub units: u32,
}

impl Holder {
    fn new(holder: leasehold_spec::Holder, name: (Kind, u32)) -> Self {
        Self {
            id: holder.id,
            token: holder.token,
            remaining: Duration::from_micros(holder.left_us),
            label: holder.label,
            is_revoked: holder.state == GrantState::Revoked,
            is_cooling_down: holder.state == GrantState::CoolingDown,
            mode: Mode::new(holder.mode, holder.units, name),
            units: holder.units,
        }
    }

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

/// The holder of a mutex.
impl From<leasehold_spec::Holder> for Holder {
    fn from(holder: leasehold_spec::Holder) -> Self {
        Self::new(holder, (Kind::Mutex, Take::MUTEX.limit))
    }
}

/// A waiter in the queue of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    pub(crate) id: PublicId,
    /// The label of the client: see [`Builder::holder`](crate::Builder::holder).
    pub label: String,
    /// The way in which the client wants to hold the lock.
    pub mode: Mode,
    /// The number of units that the client waits for: see [`Inspection::units`].
    pub units: u32,
    /// The time for which the caller still waits. It is zero if the caller has stopped waiting and its turn has not come
    /// since, and `None` if the caller waits without a limit. If several tasks of a client wait in its local queue, this
    /// is the time of the task that waits the longest.
    pub remaining: Option<Duration>,
}

impl Waiter {
    fn new(waiter: leasehold_spec::Waiter, name: (Kind, u32)) -> Self {
        Self {
            id: waiter.id,
            label: waiter.label,
            mode: Mode::new(waiter.mode, waiter.units, name),
            units: waiter.units,
            remaining: waiter.left_us.map(Duration::from_micros),
        }
    }

    /// Returns the public part of the ID: which client, and which of its acquisitions. If the waiter is granted the lock,
    /// its holder has this ID.
    #[must_use]
    pub fn id(&self) -> String {
        self.id.to_string()
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
