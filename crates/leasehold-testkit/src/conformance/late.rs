//! A store whose renewals wait until a cell lets them through.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold::Error;
use leasehold::seam::{Fault, Inbox, Link, Pending, Store};
use leasehold_spec::{Answer, Contention, Name, Op, Renew, SessionId};
use tokio::sync::watch;

/// Opens the links of another store.
pub(super) struct Late {
    store: Arc<dyn Store>,
    passes: watch::Receiver<bool>,
}

/// One of them.
struct Path {
    link: Arc<dyn Link>,
    passes: watch::Receiver<bool>,
}

impl Late {
    /// Renewals pass when `passes` says so, or is no more.
    pub(super) fn new(store: Arc<dyn Store>, passes: watch::Receiver<bool>) -> Self {
        Self { store, passes }
    }
}

impl Store for Late {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        let (opened, passes) = (self.store.open(), self.passes.clone());
        Box::pin(async move { Ok(Arc::new(Path { link: opened.await?, passes }) as Arc<dyn Link>) })
    }

    fn silence(&self) -> Option<Error> {
        self.store.silence()
    }

    fn life(&self) -> Option<OwnedFd> {
        self.store.life()
    }
}

impl Link for Path {
    fn apply(&self, name: &Name, op: &Op, guess: Contention) -> Pending<Result<Answer, Fault>> {
        self.link.apply(name, op, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
        let (link, batch, mut passes) = (Arc::clone(&self.link), batch.to_vec(), self.passes.clone());
        Box::pin(async move {
            // An error: nobody is left who could say it.
            let _ = passes.wait_for(|passes| *passes).await.map(drop);
            link.renew(&batch).await
        })
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        self.link.names(from)
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        self.link.attach(session, inbox)
    }

    fn run(&self) -> &str {
        self.link.run()
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        self.link.ping()
    }

    fn idle(&self) -> Pending<()> {
        self.link.idle()
    }

    fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    fn close(&self) {
        self.link.close();
    }
}
