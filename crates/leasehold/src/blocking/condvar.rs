//! The condition variable, for threads.

use std::future::ready;
use std::time::Duration;

use leasehold_spec::Token;

use super::wait::wait;
use crate::condvar::{CondvarGuard, Woken};
use crate::error::Result;

/// A condition variable, like [`crate::Condvar`], for the guards of this module. Each method has the result and the errors
/// of the async method, and blocks its thread.
#[derive(Clone, Debug)]
pub struct Condvar(pub(super) crate::Condvar);

#[expect(clippy::missing_errors_doc, reason = "they are those of `crate::Condvar`")]
impl Condvar {
    /// See [`crate::Condvar::wait`].
    pub fn wait<G: CondvarGuard>(&self, guard: G) -> Result<G> {
        wait(self.0.wait(guard))
    }

    /// See [`crate::Condvar::wait_while`].
    pub fn wait_while<G: CondvarGuard>(&self, guard: G, mut condition: impl FnMut(Token) -> bool) -> Result<G> {
        wait(self.0.wait_while(guard, |token| ready(condition(token))))
    }

    /// See [`crate::Condvar::wait_for`].
    pub fn wait_for<G: CondvarGuard>(&self, guard: G, at_most: Duration) -> Result<(G, Woken)> {
        wait(self.0.wait_for(guard, at_most))
    }

    /// See [`crate::Condvar::wait_while_for`].
    pub fn wait_while_for<G: CondvarGuard>(
        &self,
        guard: G,
        mut condition: impl FnMut(Token) -> bool,
        at_most: Duration,
    ) -> Result<(G, Woken)> {
        wait(self.0.wait_while_for(guard, |token| ready(condition(token)), at_most))
    }

    /// See [`crate::Condvar::notify_one`].
    pub fn notify_one(&self) -> Result<bool> {
        wait(self.0.notify_one())
    }

    /// See [`crate::Condvar::notify_all`].
    pub fn notify_all(&self) -> Result<usize> {
        wait(self.0.notify_all())
    }

    /// See [`crate::Condvar::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }
}
