//! An observer of an election.

use std::time::Duration;

use leasehold_spec::limits::RECHECK_MAX_MS;
use leasehold_spec::mutant::{Mutant, is_on};

use super::{Election, Leader};
use crate::acquirer::Acquirer;
use crate::error::{ErrorKind, Result};
use crate::session::{Entered, Notice, Wait};

/// An observer of an election: see [`Election::observe`].
#[derive(Debug)]
pub struct Observer {
    election: Election,
    /// The leader that was returned last; `None`: none was returned yet.
    seen: Option<Option<Leader>>,
}

impl Election {
    /// Returns an observer of the leaders. No round trip.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), seen: None }
    }
}

impl Observer {
    /// Waits for a change, and returns the leader from now on, or `None` if nobody leads. The first call returns at once.
    ///
    /// It returns only the newest state: a leader that was already followed by another one is skipped. If the message of a
    /// change is lost, this returns within 5 s after the change. If a leader dies, the change is the end of its lease. Two
    /// round trips for each change.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no change is lost: the next call returns it.
    ///
    /// # Errors
    ///
    /// See [`Election::leader`]. The next call tries again.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            let Self { election, seen } = self;
            let Election { acquirer, changed } = &*election;
            let early = if is_on(Mutant::P48LooksFirst) { Some(acquirer.inspect().await?) } else { None };
            // P48: it stands in the queue before it looks, so no change comes between the two.
            let (notified, place) = match enter_queue(changed).await? {
                // A future that is dropped below gives the notification back.
                Some(Entered::Notified(hold)) => (Some(changed.lease_of(hold)), None),
                Some(Entered::Waits(place)) => (None, Some(place)),
                None => (None, None),
            };
            let inspection = match early {
                Some(early) => early,
                None => acquirer.inspect().await?,
            };
            let left = inspection.holder().map(|holder| holder.remaining);
            let leader = election.leader_of(&inspection)?;
            if seen.as_ref() != Some(&leader) {
                *seen = Some(leader.clone());
                if let Some(notified) = notified {
                    notified.spend();
                }
                return Ok(leader);
            }
            let pace = (acquirer.lease_length() / 3).min(Duration::from_millis(RECHECK_MAX_MS));
            let pace = left.map_or(pace, |left| pace.min(left + Duration::from_millis(2)));
            if let Some(notified) = notified {
                notified.spend();
                continue;
            }
            let notice = match place {
                Some(mut place) => changed.within(pace, place.notice()).await,
                None => acquirer.within(pace, std::future::pending()).await,
            };
            match notice.transpose()? {
                Some(Notice::Notified(hold)) => changed.lease_of(hold).spend(),
                Some(Notice::Unsure | Notice::TimedOut) | None => {}
            }
        }
    }
}

/// Enters the queue of the observers. `None` if the store cannot notify an observer, or if the user has no right to wait
/// there: the observer looks from time to time then.
async fn enter_queue(changed: &Acquirer) -> Result<Option<Entered<'_>>> {
    match changed.enter_queue(Wait::ForEver).await {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Denied) => Ok(None),
        entered => entered,
    }
}
