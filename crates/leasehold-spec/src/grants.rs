//! The grants of one name.

use crate::env::Env;
use crate::grant::Grant;
use crate::id::{GrantId, Token};

/// The grants of one name, oldest first. A mutex has at most one: the *sole* grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grants {
    all: Vec<Grant>,
}

impl Grants {
    /// Returns the grant of a mutex, if it has one.
    #[must_use]
    pub fn sole(&self) -> Option<&Grant> {
        self.all.first()
    }

    /// Removes the grant of a mutex if `ends` says so, and returns it.
    pub fn take_sole_if(&mut self, ends: impl FnOnce(&Grant) -> bool) -> Option<Grant> {
        self.all.pop_if(|grant| ends(grant))
    }

    /// Whether the name has no grant.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the grants, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.all.iter()
    }

    /// Returns the grants, oldest first, for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Grant> {
        self.all.iter_mut()
    }

    /// Returns the number of units that are granted.
    #[must_use]
    pub fn units(&self) -> u32 {
        self.all.iter().map(|grant| grant.units).sum()
    }

    /// Returns the highest token that is reserved for a grant.
    pub(crate) fn reserved(&self) -> Option<Token> {
        self.all.iter().map(Grant::reserved).max()
    }

    /// Returns the time until which the record of these grants is kept: that of the grant that needs it longest.
    pub(crate) fn keep_until_us(&self, env: &Env<'_>) -> Option<u64> {
        self.all.iter().map(|grant| grant.keep_until_us(env)).max()
    }

    /// Returns the time that is left until the first grant ends: 0 without a grant.
    pub(crate) fn first_left_us(&self, now_us: u64) -> u64 {
        self.all.iter().map(|grant| grant.left_us(now_us)).min().unwrap_or(0)
    }

    /// Adds a grant.
    pub fn add(&mut self, grant: Grant) {
        self.all.push(grant);
    }

    /// Removes the grant with this ID, and returns it.
    pub(crate) fn take(&mut self, id: GrantId) -> Option<Grant> {
        let at = self.all.iter().position(|grant| grant.id == id)?;
        Some(self.all.remove(at))
    }

    /// Removes the oldest grant whose time is over, and returns it.
    pub(crate) fn take_ended(&mut self, now_us: u64) -> Option<Grant> {
        let at = self.all.iter().position(|grant| grant.end_us() <= now_us)?;
        Some(self.all.remove(at))
    }
}

impl From<Option<Grant>> for Grants {
    fn from(sole: Option<Grant>) -> Self {
        Self { all: sole.into_iter().collect() }
    }
}
