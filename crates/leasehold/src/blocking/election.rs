//! The election, for threads.

use std::time::Duration;

use super::methods::{blocking_calls, blocking_guard_methods};
use super::wait::wait;
use crate::acquirer::Acquirer;
use crate::election::Leader;
use crate::error::Result;
use crate::lease::{Lease, debug_guard, guard_methods};
use crate::lost::Released;

/// An election, like [`crate::Election`]. Each method has the result and the errors of the async method, and blocks its
/// thread.
#[derive(Clone, Debug)]
pub struct Election(pub(super) crate::Election);

/// The leadership of a candidate, like [`crate::Leadership`]. Dropping it resigns in the background.
#[must_use = "dropping the leadership resigns at once"]
pub struct Leadership(Lease, Acquirer);

/// An observer of an election, like [`crate::Observer`].
#[derive(Debug)]
pub struct Observer(crate::Observer);

impl Election {
    blocking_calls! { "crate::Election":
        wait campaign(value: &str) -> Leadership;
        limited try_campaign(value: &str) -> Leadership;
        limited campaign_for(value: &str, wait: Duration) -> Leadership;
        ask leader() -> Option<Leader>;
        set lease(lease: Duration);
    }

    /// See [`crate::Election::observe`].
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer(self.0.observe())
    }
}

#[expect(clippy::missing_errors_doc, reason = "they are those of `crate::Leadership`")]
impl Leadership {
    blocking_guard_methods!();

    fn of(crate::Leadership(lease, changed): crate::Leadership) -> Self {
        Self(lease, changed)
    }

    /// See [`crate::Leadership::put`].
    pub fn put(&self, value: &str) -> Result<()> {
        wait(crate::election::put(&self.0, &self.1, value))
    }

    /// See [`crate::Leadership::hand_to`].
    pub fn hand_to(self, value: &str) -> Result<Option<Self>> {
        Ok(wait(crate::Leadership(self.0, self.1).hand_to(value))?.map(Self::of))
    }

    /// See [`crate::Leadership::resign`].
    pub fn resign(self) -> Result<Released> {
        wait(crate::Leadership(self.0, self.1).resign())
    }
}

impl Observer {
    /// See [`crate::Observer::next`].
    ///
    /// # Errors
    ///
    /// See [`crate::Observer::next`].
    #[expect(clippy::should_implement_trait, reason = "it fails, and never ends")]
    pub fn next(&mut self) -> Result<Option<Leader>> {
        wait(self.0.next())
    }
}

debug_guard!(Leadership);
