//! The wait: from a held lock over a notification back to the held lock.
//!
//! | Step | Round trips | The lock is |
//! |---|---|---|
//! | enter the queue of the condition variable, until the store has said so (P41) | 1 | held |
//! | release the lock, and wait for a notification | – | free |
//! | acquire the lock again, on its own terms | 1 or more | waited for |
//! | spend the notification, in the background (P42) | – | held |
//!
//! The notification is held as a lease from its arrival until it is spent. Dropping the future at any step drops what it
//! has at that step: the place in the queue, the notification (which passes on), or the attempt to acquire.

use std::pin::{Pin, pin};

use leasehold_spec::mutant::{Mutant, is_on};

use crate::acquirer::Acquirer;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::lease::Lease;
use crate::lost::Released;
use crate::relock::Relock;
use crate::session::{Entered, Notice, Wait};
use crate::world::Pending;

/// Why a wait with a time limit has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The waiter was notified, or woke up for nothing.
    Notified,
    /// The time is over.
    TimedOut,
}

/// Waits for a notification, and returns the lock again.
pub(super) async fn wait(condition: &Acquirer, lease: Lease, wait: Wait) -> Result<(Lease, Woken)> {
    let failed = |error: Error| condition.failed(Operation::Wait, error);
    let lock = Relock::of(&lease).map_err(failed)?;
    if is_on(Mutant::P41ReleasesFirst) {
        let _ = lease.release().await;
        let Some(Entered::Waits(mut place)) = condition.enter_queue(wait).await? else { return Err(Error::closed()) };
        let _ = place.notice().await;
        return Ok((lock.lock().await?, Woken::Notified));
    }
    let entered = tokio::select! {
        biased;
        entered = condition.enter_queue(wait) => entered,
        // The caller may have decided to wait under a lock that it had lost: it must look again.
        lost = lease.lost() => return Err(lost.into()),
    };
    let mut place = match entered {
        Ok(Some(Entered::Waits(place))) => place,
        Ok(Some(Entered::Notified(hold))) => {
            condition.lease_of(hold).spend();
            return Ok((lease, Woken::Notified));
        }
        Ok(None) => return Ok((lease, Woken::TimedOut)),
        Err(error) if is_over(condition, &error, wait) => return Ok((lease, Woken::TimedOut)),
        Err(error) => return Err(failed(error)),
    };
    lease.check()?;
    let mut releasing = Releasing { lock: &lock, release: Some(Box::pin(lease.release())) };
    // Without a reply to the release nobody knows, and a wake-up for nothing is allowed (P43).
    let notice = releasing.beside(pin!(place.notice())).await?.unwrap_or(Ok(Notice::Unsure));
    let (notification, woken) = match notice {
        Ok(Notice::Notified(hold)) => (Some(condition.lease_of(hold)), Woken::Notified),
        Ok(Notice::Unsure) => (None, Woken::Notified),
        Ok(Notice::TimedOut) => (None, Woken::TimedOut),
        Err(error) if is_over(condition, &error, wait) => (None, Woken::TimedOut),
        Err(error) => return Err(failed(error)),
    };
    drop(place);
    let notification = match notification {
        Some(early) if is_on(Mutant::P42SpendsFirst) => {
            early.spend();
            None
        }
        usual => usual,
    };
    let mut locking = pin!(lock.lock());
    let lease = loop {
        if let Some(locked) = releasing.beside(locking.as_mut()).await? {
            break locked?;
        }
    };
    if let Some(notification) = notification {
        notification.spend();
    }
    Ok((lease, woken))
}

/// The release of the lock, whose reply nobody waits for.
struct Releasing<'a> {
    lock: &'a Relock,
    /// `None` once it has its reply.
    release: Option<Pending<Result<Released>>>,
}

impl Releasing<'_> {
    /// Polls the release beside some work. Returns `None`, once, if the release failed before the work was done.
    ///
    /// An error if the release finds that the lock was not held: others may have held it before the caller entered the
    /// queue.
    async fn beside<T>(&mut self, mut work: Pin<&mut impl Future<Output = T>>) -> Result<Option<T>> {
        loop {
            let Some(release) = &mut self.release else { return Ok(Some(work.await)) };
            let released = tokio::select! {
                biased;
                done = &mut work => return Ok(Some(done)),
                released = release => released,
            };
            self.release = None;
            match released {
                Ok(Released::Released) => {}
                Ok(Released::NotHeld) => return Err(self.lock.lost().into()),
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Whether a wait has ended because its time is over, and the store did not reply just then.
fn is_over(condition: &Acquirer, error: &Error, wait: Wait) -> bool {
    let is_late = matches!(wait, Wait::Until { until_us } if until_us <= condition.now_us());
    is_late && matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum)
}
