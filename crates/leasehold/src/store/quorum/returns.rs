//! The releases in flight: until they are answered, no other request gives the same votes back.
//!
//! A node may have called an attempt while it waited, and the call arrives after the attempt was granted and ended. Then
//! the client gives the vote back: the next waiter must not wait for an attempt that is over. If that request came before
//! the release, another client could hold and release the lock in between. Then the nodes would answer the release that
//! they know nothing of the attempt, as if the lease had been lost, and a cool-down would begin nowhere (P23).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_spec::GrantId;
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};

use super::attempts::Nodes;

/// The attempts that are being released, each with the nodes at which its votes go back once more afterwards.
#[derive(Default)]
pub(super) struct Returns(Mutex<HashMap<GrantId, Nodes>>);

impl Returns {
    pub(super) fn begin(&self, id: GrantId) {
        self.returns().entry(id).or_default();
    }

    /// Returns whether the attempt is being released. Then its votes at these nodes go back afterwards.
    pub(super) fn defer(&self, id: &GrantId, nodes: Nodes) -> bool {
        let mut returns = self.returns();
        let Some(deferred) = returns.get_mut(id).filter(|_| !is_on(Mutant::QGivesBackFirst)) else { return false };
        hit(Mark::ReturnDeferred);
        *deferred = deferred.and(nodes);
        true
    }

    /// Ends a release. Returns the nodes at which the votes go back once more.
    pub(super) fn end(&self, id: &GrantId) -> Nodes {
        self.returns().remove(id).unwrap_or_default()
    }

    fn returns(&self) -> MutexGuard<'_, HashMap<GrantId, Nodes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
