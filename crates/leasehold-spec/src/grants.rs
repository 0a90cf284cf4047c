//! The grants of one name.

use crate::grant::Grant;

/// The grants of one name. A mutex has at most one: the *sole* grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Grants {
    sole: Option<Grant>,
}

impl Grants {
    /// Returns the grant of a mutex, if it has one.
    #[must_use]
    pub const fn sole(&self) -> Option<&Grant> {
        self.sole.as_ref()
    }

    /// Returns the grant of a mutex, if it has one, for changes.
    #[must_use]
    pub const fn sole_mut(&mut self) -> Option<&mut Grant> {
        self.sole.as_mut()
    }

    /// Whether the name has no grant.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sole.is_none()
    }

    /// Adds a grant. A mutex must not have one already.
    pub fn add(&mut self, grant: Grant) {
        debug_assert!(self.is_empty(), "a mutex has one grant at most");
        self.sole = Some(grant);
    }

    /// Removes the grant of a mutex, and returns it.
    pub const fn take_sole(&mut self) -> Option<Grant> {
        self.sole.take()
    }

    /// Removes the grant of a mutex if `ends` says so, and returns it.
    pub fn take_sole_if(&mut self, ends: impl FnOnce(&Grant) -> bool) -> Option<Grant> {
        self.sole.take_if(|grant| ends(grant))
    }
}

impl From<Option<Grant>> for Grants {
    fn from(sole: Option<Grant>) -> Self {
        Self { sole }
    }
}
