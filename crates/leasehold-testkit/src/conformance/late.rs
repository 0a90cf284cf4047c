//! A store that delays renewals until a cell lets them pass.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold::Error;
use leasehold::seam::{Fault, Link, Pending, Store, StoreProfile};
use leasehold_spec::{Answer, Kind, Name, Renew};
use tokio::sync::watch;

use crate::forward::{Forward, ForwardLink};

/// Wraps the links of another store.
pub(super) struct Late {
    store: Arc<dyn Store>,
    passes: watch::Receiver<bool>,
}

/// One such link.
struct Path {
    link: Arc<dyn Link>,
    passes: watch::Receiver<bool>,
}

impl Late {
    /// Renewals pass once `passes` is true, or once its sender is dropped.
    pub(super) fn new(store: Arc<dyn Store>, passes: watch::Receiver<bool>) -> Self {
        Self { store, passes }
    }
}

impl Store for Late {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        let (opened, passes) = (self.store.open(), self.passes.clone());
        Box::pin(async move { Ok(Arc::new(Forward(Path { link: opened.await?, passes })) as Arc<dyn Link>) })
    }

    fn profile(&self) -> StoreProfile {
        self.store.profile()
    }

    fn silence(&self) -> Option<Error> {
        self.store.silence()
    }

    fn life(&self) -> Option<OwnedFd> {
        self.store.life()
    }
}

impl ForwardLink for Path {
    fn link(&self) -> &Arc<dyn Link> {
        &self.link
    }

    fn renew(&self, batch: &[(Name, Renew)], kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
        let (link, batch, mut passes) = (Arc::clone(&self.link), batch.to_vec(), self.passes.clone());
        Box::pin(async move {
            // An error means that nobody is left who could let them pass.
            let _ = passes.wait_for(|passes| *passes).await.map(drop);
            link.renew(&batch, kind).await
        })
    }
}
