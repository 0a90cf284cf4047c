//! The share of a name that an acquire takes.

/// The share of a name that an acquire takes. A mutex takes the only unit there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Take {
    /// The kind of the name.
    pub kind: Kind,
    /// The number of units that the name has.
    pub limit: u32,
    /// The number of units that this acquire takes.
    pub units: u32,
}

/// The kind of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// At most one grant at a time.
    #[default]
    Mutex,
}

impl Take {
    /// The whole of a mutex.
    pub const MUTEX: Self = Self { kind: Kind::Mutex, limit: 1, units: 1 };

    /// Whether nobody else can hold a grant of the name at the same time.
    #[must_use]
    pub const fn is_exclusive(&self) -> bool {
        self.units == self.limit
    }
}
