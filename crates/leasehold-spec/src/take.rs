//! The share of a name that an acquire takes.

use crate::id::{GrantId, Token};
use crate::limits::GRANTS_MAX;

/// The share of a name that an acquire takes. A mutex takes the only unit there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Take {
    /// The kind of the name.
    pub kind: Kind,
    /// The number of units that the name has. 0 for a kind whose limit no request names.
    pub limit: u32,
    /// The number of units that this acquire takes.
    pub units: u32,
    /// The way in which this acquire takes them.
    pub mode: Mode,
}

/// The kind of a name. A name that has several grants at a time is a *pool*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// At most one grant at a time.
    #[default]
    Mutex,
    /// A reader takes one unit, and a writer takes all of them.
    ReadWrite,
    /// Grants take as many units as they ask for, up to the limit.
    Semaphore,
    /// A condition variable: a grant is a notification of one waiter (P42). The limit is the number of notifications that
    /// nobody has spent yet, so that it changes with each of them. Requests name no limit.
    Condition,
    /// A latch: its waiters are granted nothing until it has counted as many count-downs as its limit says, and everything
    /// from then on (P44).
    Latch,
    /// A barrier: its waiters are granted all at once, as soon as as many wait as its limit says (P52).
    Barrier,
}

/// The way in which an acquire takes its units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Its units must be free.
    #[default]
    Plain,
    /// Its units must be free, and no other grant of the name has this mode. The grant may be upgraded.
    Upgradeable,
    /// An upgrade (P37): it takes all units, in the place of the named grant, once that is the only one left.
    Instead {
        /// The grant that is upgraded.
        id: GrantId,
        /// The token of that grant.
        token: Token,
    },
}

impl Take {
    /// The whole of a mutex.
    pub const MUTEX: Self = Self { kind: Kind::Mutex, limit: 1, units: 1, mode: Mode::Plain };
    /// The share of a reader.
    pub const READ: Self = Self { kind: Kind::ReadWrite, limit: GRANTS_MAX, units: 1, mode: Mode::Plain };
    /// The share of a reader that may become a writer.
    pub const UPGRADEABLE_READ: Self = Self { mode: Mode::Upgradeable, ..Self::READ };
    /// The share of a writer.
    pub const WRITE: Self = Self { units: GRANTS_MAX, ..Self::READ };

    /// Returns the share of an upgrade of this grant.
    #[must_use]
    pub const fn upgrade(id: GrantId, token: Token) -> Self {
        Self { mode: Mode::Instead { id, token }, ..Self::WRITE }
    }

    /// Returns the take of this many permits of a semaphore with `limit` permits.
    #[must_use]
    pub const fn permits(units: u32, limit: u32) -> Self {
        Self { kind: Kind::Semaphore, limit, units, mode: Mode::Plain }
    }

    /// The notification of a waiter of a condition variable.
    pub const NOTIFICATION: Self = Self { kind: Kind::Condition, limit: 0, units: 1, mode: Mode::Plain };

    /// The share of a waiter of a latch.
    pub const OPEN_LATCH: Self = Self { kind: Kind::Latch, limit: 0, units: 1, mode: Mode::Plain };

    /// Returns the arrival of a party at a barrier of this many.
    #[must_use]
    pub const fn arrival(parties: u32) -> Self {
        Self { kind: Kind::Barrier, limit: parties, units: 1, mode: Mode::Plain }
    }

    /// Whether nobody else can hold a grant of the name at the same time.
    #[must_use]
    pub const fn is_exclusive(&self) -> bool {
        self.units == self.limit
    }
}

impl Mode {
    /// Returns the mode of the grant. The grant of an upgrade is that of a writer.
    pub(crate) const fn once_granted(self) -> Self {
        match self {
            Self::Plain | Self::Instead { .. } => Self::Plain,
            Self::Upgradeable => Self::Upgradeable,
        }
    }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Mutex, Self::ReadWrite, Self::Semaphore, Self::Condition, Self::Latch, Self::Barrier];

    /// Whether a name of this kind can have several grants at a time.
    #[must_use]
    pub const fn is_pool(self) -> bool {
        !matches!(self, Self::Mutex)
    }

    /// Whether a waiter of such a name waits for the end of a lease.
    #[must_use]
    pub const fn has_holders(self) -> bool {
        !matches!(self, Self::Condition | Self::Latch | Self::Barrier)
    }

    /// Returns the name of the kind, for messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read-write lock",
            Self::Semaphore => "semaphore",
            Self::Condition => "condition variable",
            Self::Latch => "latch",
            Self::Barrier => "barrier",
        }
    }
}
