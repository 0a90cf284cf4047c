//! The way back to a lock: its holder releases it for a while, and acquires it again on the same terms.

use std::sync::Arc;

use leasehold_spec::Name;

use super::{Keeper, Lease};
use crate::error::{Error, Operation, Result};
use crate::lost::{Lost, LostReason};
use crate::owner::Owner;
use crate::reentry::{Handle, enter};
use crate::session::{Terms, Wait};

/// A lock that its holder releases for a while, with the terms and the owner of its lease.
pub(crate) struct Relock {
    client: Arc<Handle>,
    name: Name,
    terms: Arc<Terms>,
    owner: Option<Owner>,
}

impl Relock {
    /// Acquires the lock again. If the future is dropped, the attempt is given up.
    pub(crate) async fn lock(&self) -> Result<Lease> {
        let Self { client, name, terms, owner } = self;
        let failed = |error: Error| error.of(Operation::Lock, Some(name.as_str()));
        loop {
            // `None` cannot occur here: only calls with a time limit return it.
            let lease = match owner {
                Some(owner) => enter(client, (name, owner), terms, Wait::ForEver).await.map(|it| it.map(Lease::shared)),
                None => {
                    let acquired = client.session().acquire(name, terms, Wait::ForEver).await;
                    acquired.map(|hold| hold.map(|hold| Lease::alone(hold, Arc::clone(client))))
                }
            };
            if let Some(lease) = lease.map_err(failed)? {
                return Ok(lease);
            }
        }
    }

    /// Returns the loss of the lease, found by its release.
    pub(crate) fn lost(&self) -> Lost {
        Lost::new(&self.name, LostReason::Expired)
    }
}

impl Lease {
    /// Returns the way back to this lock. An error if the lease is lost, or if other guards of its owner share it: then the
    /// end of this guard would release nothing.
    pub(crate) fn relock(&self) -> Result<Relock> {
        let (client, owner) = match &self.keeper {
            Some(Keeper::Alone(client)) => (client, None),
            Some(Keeper::Shared(share)) if Arc::strong_count(share) == 1 => {
                (share.client(), Some(share.owner().clone()))
            }
            Some(Keeper::Shared(_)) => {
                let message = "other guards of this owner hold the lock as well, so a wait would not release it: drop \
                               them first";
                return Err(Error::invalid(message));
            }
            None => return Err(self.hold.lost(LostReason::Released).into()),
        };
        let terms = client.session().terms_again(&self.hold)?;
        Ok(Relock { client: Arc::clone(client), name: self.hold.name.clone(), terms, owner })
    }
}
