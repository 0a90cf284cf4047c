//! The state of a latch.

use std::collections::BTreeSet;

use crate::id::{GrantId, Token};

/// Which latch it is, and what it has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Latch {
    /// The token of its creation. It tells the latch from an earlier one of the same name.
    pub born: Token,
    /// For how long it is kept after its creation and after each count-down.
    pub keep_ms: u64,
    /// The count-downs, each of which counts once.
    pub counted: BTreeSet<GrantId>,
    /// The number of count-downs that a store has not read for a step. A store whose records are rows reads only the one
    /// that the request names.
    pub unread: u32,
}

impl Latch {
    /// Returns how many count-downs it has counted.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.counted.len()).unwrap_or(u32::MAX).saturating_add(self.unread)
    }

    /// Returns how many count-downs are missing to this number.
    #[must_use]
    pub fn left(&self, limit: u32) -> u32 {
        limit.saturating_sub(self.count())
    }
}
