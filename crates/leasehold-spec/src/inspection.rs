//! The answer to `inspect`: a name, as operators see it.
//!
//! It has public IDs only. A client that knows a whole ID can release the grant.

use crate::grant::GrantState;
use crate::id::{PublicId, Token};
use crate::take::{Kind, Mode};

/// The answer to `inspect`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// The kind of the name. A name without a record counts as a mutex.
    pub kind: Kind,
    /// The number of units of the name.
    pub limit: u32,
    /// The number of units that the holders have.
    pub units: u32,
    /// The first holders, at most [`SHOWN_MAX`](crate::limits::SHOWN_MAX), in the order of their tokens. If there are
    /// more, a store may show others than the first.
    pub holders: Vec<Holder>,
    /// The number of holders.
    pub grants: u64,
    /// The first waiters, at most [`SHOWN_MAX`](crate::limits::SHOWN_MAX), in the order in which they are served. If an
    /// upgrade waits, it is the first.
    pub queue: Vec<Waiter>,
    /// The number of waiters, an upgrade that waits included. Dead waiters count until their turn comes.
    pub waiters: u64,
}

/// The holder of a lease, as `inspect` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The public part of the grant ID.
    pub id: PublicId,
    /// The fencing token.
    pub token: Token,
    /// The time left of the lease.
    pub left_us: u64,
    /// The label of the holder.
    pub label: String,
    /// The state of the grant.
    pub state: GrantState,
    /// The number of units that the grant takes.
    pub units: u32,
    /// The way in which the grant takes them. A grant never has [`ShownMode::Upgrade`].
    pub mode: ShownMode,
}

/// A waiter, as `inspect` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiter {
    /// The public part of the ID of the attempt.
    pub id: PublicId,
    /// The number of units that the waiter asks for.
    pub units: u32,
    /// The way in which the waiter takes them.
    pub mode: ShownMode,
    /// The time for which the caller still waits. `None` waits forever.
    pub left_us: Option<u64>,
    /// The label of the waiter.
    pub label: String,
}

/// A [`Mode`] without the ID of the grant that an upgrade replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ShownMode {
    /// See [`Mode::Plain`].
    #[default]
    Plain,
    /// See [`Mode::Upgradeable`].
    Upgradeable,
    /// An upgrade that waits: see [`Mode::Instead`].
    Upgrade,
}

impl Inspection {
    /// Returns the state of a mutex with this holder and this number of waiters, whose queue is not shown.
    #[must_use]
    pub fn of_mutex(holder: Option<Holder>, waiters: u64) -> Self {
        let grants = u64::from(holder.is_some());
        let units = u32::from(holder.is_some());
        let holders = holder.into_iter().collect();
        Self { kind: Kind::Mutex, limit: 1, units, holders, grants, queue: Vec::new(), waiters }
    }

    /// Returns the first of the holders that are shown.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.holders.first()
    }
}

impl From<Mode> for ShownMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Plain => Self::Plain,
            Mode::Upgradeable => Self::Upgradeable,
            Mode::Instead { .. } => Self::Upgrade,
        }
    }
}
