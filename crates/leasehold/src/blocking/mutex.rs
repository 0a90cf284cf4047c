//! The mutex, for threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::Take;

use super::canceller::Canceller;
use super::guard::Guard;
use super::wait::{wait, wait_or_cancel};
use crate::acquirer::{Acquirer, setting_methods};
use crate::error::Result;
use crate::inspection::{Holder, Inspection, Revoked};
use crate::member::Member;
use crate::reentry::Handle;

/// A lock on a name, like [`crate::Mutex`]. It is cheap to create and to clone. Creating one does no I/O.
///
/// A second `lock` by the same thread waits for the first one, and blocks for ever if the first guard is never
/// released. To re-enter, make the mutex [`reentrant`](Mutex::reentrant), or give it an [`owner`](Mutex::owner).
#[derive(Clone)]
pub struct Mutex(Acquirer);

impl Mutex {
    pub(super) fn new(client: Arc<Handle>, name: &str) -> Self {
        Self(Acquirer::new(client, name, Take::MUTEX))
    }

    /// Blocks until the lock is acquired, for as long as that takes. It takes one round trip if the lock is free.
    ///
    /// # Errors
    ///
    /// See [`crate::Mutex::lock`].
    pub fn lock(&self) -> Result<Guard> {
        wait(self.0.acquire()).map(Guard::new)
    }

    /// Acquires the lock if it is free and nobody waits for it, and returns `None` otherwise. One round trip.
    ///
    /// # Errors
    ///
    /// See [`crate::Mutex::try_lock`].
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        Ok(wait(self.0.try_acquire())?.map(Guard::new))
    }

    /// Waits for the lock for at most `at_most`, and returns `None` if it was not acquired by then. It takes one round
    /// trip if the lock is free.
    ///
    /// # Errors
    ///
    /// See [`crate::Mutex::try_lock_for`].
    pub fn try_lock_for(&self, at_most: Duration) -> Result<Option<Guard>> {
        Ok(wait(self.0.try_acquire_for(at_most))?.map(Guard::new))
    }

    /// Waits for the lock until `canceller` is canceled, and returns `None` then.
    ///
    /// If `canceller` was canceled before the call, nothing is sent. If it is canceled at the moment of the grant, either
    /// result is possible. A grant that comes too late is released in the background.
    ///
    /// ```
    /// # fn example(leasehold: &leasehold::blocking::Leasehold) -> leasehold::Result<()> {
    /// use leasehold::blocking::Canceller;
    ///
    /// let stop = Canceller::new(); // another thread has a clone, and calls `cancel`
    /// let Some(guard) = leasehold.mutex("stock:42").lock_or_cancel(&stop)? else { return Ok(()) };
    /// # let _ = guard;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`crate::Mutex::lock`].
    pub fn lock_or_cancel(&self, canceller: &Canceller) -> Result<Option<Guard>> {
        Ok(wait_or_cancel(self.0.acquire(), canceller)?.map(Guard::new))
    }

    /// Acquires the lock, runs the work, and releases the lock. It takes one round trip before the work and one after
    /// it.
    ///
    /// This call returns when the store has confirmed the release. If the store does not confirm it within 5 s, the call
    /// returns anyway, and the release continues in the background. A panic in the work releases the lease, too.
    ///
    /// If the lease is lost, the work continues, because a closure cannot be stopped. Call [`Guard::check`] before each
    /// effect.
    ///
    /// # Errors
    ///
    /// See [`crate::Mutex::lock`]. Also `Lost` if the lease ended before the work did.
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.lock()?;
        let value = work(&guard);
        guard.check()?;
        wait(guard.finish());
        Ok(value)
    }

    /// Returns who holds the lock, with which token, for how long, and the queue. It takes one round trip and changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// See [`crate::Mutex::inspect`].
    pub fn inspect(&self) -> Result<Inspection> {
        wait(self.0.inspect())
    }

    /// Takes the lease away from the holder that [`Mutex::inspect`] returned: see [`crate::Mutex::revoke`]. One round
    /// trip.
    ///
    /// # Errors
    ///
    /// See [`crate::Mutex::revoke`].
    pub fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked> {
        wait(self.0.revoke(holder, grace))
    }

    setting_methods!();
    setting_methods!(owner);

    /// Makes the calling thread the owner. The thread may lock again what it holds, any number of times, and the last
    /// of its guards releases the lease. See [`crate::Mutex::owner`] for the details. This replaces `owner`.
    ///
    /// A guard may still be moved to another thread and be released there. The owner remains the thread that locked. If
    /// the other thread locks, it contends like any other caller.
    ///
    /// ```
    /// # fn example(leasehold: &leasehold::blocking::Leasehold) -> leasehold::Result<()> {
    /// let mutex = leasehold.mutex("stock:42").reentrant();
    /// let outer = mutex.lock()?;
    /// let inner = mutex.lock()?; // at once
    /// assert_eq!(inner.token(), outer.token());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reentrant(self) -> Self {
        Self(self.0.reentrant())
    }

    /// Sets the shortest time for which nobody else can hold the lock: see [`crate::Mutex::min_hold`].
    #[must_use]
    pub fn min_hold(self, hold: Duration) -> Self {
        Self(self.0.min_hold(hold))
    }

    /// Serves the calls of this mutex in strict order over all clients: see [`crate::Mutex::fair`].
    #[must_use]
    pub fn fair(self) -> Self {
        Self(self.0.fair())
    }

    /// Keeps the lease for up to this long for the next lock of this client: see [`crate::Mutex::sticky`].
    #[must_use]
    pub fn sticky(self, keep: Duration) -> Self {
        Self(self.0.sticky(keep))
    }

    fn with(self, change: impl Fn(Acquirer) -> Acquirer) -> Self {
        Self(change(self.0))
    }
}

impl From<Mutex> for Member {
    fn from(mutex: Mutex) -> Self {
        Self(mutex.0)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("Mutex", f)
    }
}
