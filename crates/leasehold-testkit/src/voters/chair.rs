//! A node that an operator is about to begin: the checks before, and the begin itself.

use std::sync::Arc;

use leasehold::seam::node::{Begin, Candidate};
use leasehold::seam::{Fault, Pending, error};
use leasehold::{Error, ErrorKind};
use leasehold_spec::node::{Charter, Marker, Request, Said, begin, has_lost, vote};
use leasehold_spec::{Env, Inspection, Name, Token};

use super::{Shelf, Voter, gone, wait_for_reply};

/// A node that an operator is about to begin.
pub(super) struct Chair {
    voter: Arc<Voter>,
    charter: Charter,
    /// The marker at the time of the checks.
    marker: Option<Marker>,
    run: String,
}

impl Chair {
    pub(super) fn of(voter: Arc<Voter>, charter: Charter) -> Self {
        let shelf = voter.shelf();
        let (marker, run) = (shelf.marker.clone(), voter.run(&shelf));
        drop(shelf);
        Self { voter, charter, marker, run }
    }

    /// Carries out the work at once, over this connection. A connection of an earlier run is gone.
    fn run_on_node<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Shelf, u64) -> T + Send + 'static,
    ) -> Pending<Result<T, Error>> {
        let (voter, run) = (Arc::clone(&self.voter), self.run.clone());
        Box::pin(async move {
            if wait_for_reply(&voter).await.is_err() || voter.run(&voter.shelf()) != run {
                return Err(gone());
            }
            let mut shelf = voter.shelf();
            let now_us = voter.now_us(&shelf);
            Ok(work(&mut shelf, now_us))
        })
    }
}

impl Candidate for Chair {
    fn names(&self, _from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        let asked = self.run_on_node(|shelf, _| shelf.records.keys().cloned().collect::<Vec<_>>());
        Box::pin(async move { asked.await.map(|names| (names, 0)).map_err(Fault::Gone) })
    }

    fn inspect(&self, name: &Name) -> Pending<Result<(Inspection, Token), Fault>> {
        let name = name.clone();
        let asked = self.run_on_node(move |shelf, now_us| {
            let env = Env { wall_us: now_us, lease_us: now_us, attached: &|_| true };
            let mut record = shelf.records.get(&name).cloned().unwrap_or_default();
            let seen = vote(&mut record, &env, &Request::Inspect).0;
            match seen.said {
                Said::Inspected(inspection) => (inspection, seen.highest),
                other => panic!("the reply to an inspection is not an inspection: {other:?}"),
            }
        });
        Box::pin(async move { asked.await.map_err(Fault::Gone) })
    }

    fn time(&self) -> Pending<Result<u64, Fault>> {
        let asked = self.run_on_node(|_, now_us| now_us);
        Box::pin(async move { asked.await.map_err(Fault::Gone) })
    }

    fn begin(&self, how: Begin) -> Pending<Result<(), Error>> {
        let (charter, run) = (self.charter, self.run.clone());
        let marker = self.marker.clone().filter(|_| how == Begin::Asked);
        let asked = self.run_on_node(move |shelf, _| {
            let has_lost = has_lost(shelf.marker.as_ref(), marker.as_ref(), &run);
            if !has_lost {
                shelf.marker = Some(begin(charter, &run, true));
            }
            has_lost
        });
        Box::pin(async move {
            match asked.await? {
                false => Ok(()),
                true => Err(error(ErrorKind::InUse, "the node was emptied during the checks")),
            }
        })
    }
}
