//! The way back to a lock: its holder releases it for a while, and acquires it again on the same terms.

use std::sync::Arc;

use leasehold_spec::Name;

use crate::error::{Error, Operation, Result};
use crate::lease::Lease;
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
    /// Returns the way back to the lock of this lease. An error if the lease is lost, or if other guards of its owner share
    /// it: then the end of this guard would release nothing.
    pub(crate) fn of(lease: &Lease) -> Result<Self> {
        let (client, owner) = lease.sole_keeper()?;
        let terms = client.session().terms_again(lease.hold())?;
        Ok(Self { client, name: lease.hold().name.clone(), terms, owner })
    }

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
