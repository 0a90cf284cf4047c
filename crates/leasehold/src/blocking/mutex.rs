//! The mutex.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::{Canceller, Guard, wait};
use crate::error::Result;
use crate::inspection::{Holder, Inspection};
use crate::mutex::Revoked;
use crate::owner::Owner;

/// A lock on a name, as [`crate::Mutex`] is. Cheap to make and to clone; making one does no I/O.
///
/// A second `lock` by the same thread waits for the first, for ever if that is never given back, unless the mutex is
/// [`reentrant`](Mutex::reentrant) or has an [`owner`](Mutex::owner).
#[derive(Clone)]
pub struct Mutex {
    inner: crate::Mutex,
    by: By,
}

/// Who locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Whoever the mutex names, or nobody.
    Itself,
    /// The thread that calls.
    Thread,
}

impl Mutex {
    pub(super) fn new(inner: crate::Mutex) -> Self {
        Self { inner, by: By::Itself }
    }

    fn with(self, change: impl FnOnce(crate::Mutex) -> crate::Mutex) -> Self {
        Self { inner: change(self.inner), by: self.by }
    }

    /// How long a lease lasts without a word from its holder, 30 s unless said: see [`crate::Mutex::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|inner| inner.lease(lease))
    }

    /// A lease that is never renewed: see [`crate::Mutex::fixed_lease`].
    #[must_use]
    pub fn fixed_lease(self, lease: Duration) -> Self {
        self.with(|inner| inner.fixed_lease(lease))
    }

    /// For how long it is renewed at most: see [`crate::Mutex::max_hold`].
    #[must_use]
    pub fn max_hold(self, hold: Duration) -> Self {
        self.with(|inner| inner.max_hold(hold))
    }

    /// Strict first come, first served: see [`crate::Mutex::fair`].
    #[must_use]
    pub fn fair(self) -> Self {
        self.with(crate::Mutex::fair)
    }

    /// A guard comes with a whole lease, also after a wait: see [`crate::Mutex::full_lease`].
    #[must_use]
    pub fn full_lease(self) -> Self {
        self.with(crate::Mutex::full_lease)
    }

    /// A lease that nobody uses is kept for so long: see [`crate::Mutex::sticky`].
    #[must_use]
    pub fn sticky(self, keep: Duration) -> Self {
        self.with(|inner| inner.sticky(keep))
    }

    /// This owner may lock again what it holds: see [`crate::Mutex::owner`]. Replaces `reentrant`.
    #[must_use]
    pub fn owner(self, owner: &Owner) -> Self {
        Self { inner: self.inner.owner(owner), by: By::Itself }
    }

    /// The thread that calls is the owner: it may lock again what it holds, as often as it likes, and the last of its
    /// guards to go gives back. See [`crate::Mutex::owner`] for what that means. Replaces `owner`.
    ///
    /// A guard may go to another thread all the same, and be released there: the owner stays the thread that locked, and
    /// the other one waits like a stranger if it locks itself.
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
        Self { by: By::Thread, ..self }
    }

    /// Waits until this thread holds the lock, however long that takes. One round trip when the lock is free.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`].
    pub fn lock(&self) -> Result<Guard> {
        wait(self.inner().lock()).map(Guard::new)
    }

    /// Takes the lock if nobody holds it or waits for it. One round trip.
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`].
    pub fn try_lock(&self) -> Result<Option<Guard>> {
        Ok(wait(self.inner().try_lock())?.map(Guard::new))
    }

    /// Waits for the lock, at most for `at_most`. One round trip when the lock is free.
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock_for`].
    pub fn try_lock_for(&self, at_most: Duration) -> Result<Option<Guard>> {
        Ok(wait(self.inner().try_lock_for(at_most))?.map(Guard::new))
    }

    /// Waits for the lock until `canceller` is called: `None`. When it had been called before, nothing is asked for. When
    /// it is called at the moment of the grant, either may win, and a grant that lost is given back in the background.
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
    /// As [`crate::Mutex::lock`].
    pub fn lock_or_cancel(&self, canceller: &Canceller) -> Result<Option<Guard>> {
        if canceller.is_cancelled() {
            return Ok(None);
        }
        let mutex = self.inner();
        wait(async {
            tokio::select! {
                biased;
                // First: what has been granted is not thrown away.
                granted = mutex.lock() => granted.map(|guard| Some(Guard::new(guard))),
                () = canceller.cancelled() => Ok(None),
            }
        })
    }

    /// Locks, does the work, and releases: a round trip before the work and one behind it. The lease is given back before
    /// this answers, or in the background when the store does not say so within 5 s; a panic in the work gives it back too.
    ///
    /// Nothing ends the work when the lease is lost: it is a closure, not a future. Look before each effect, by
    /// [`Guard::check`].
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`]; and `Lost` when the work has outlived the lease.
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T> {
        let guard = self.lock()?;
        let value = work(&guard);
        guard.check()?;
        wait(guard.finish());
        Ok(value)
    }

    /// Who holds, with which token, for how long, and how many wait. One round trip; changes nothing.
    ///
    /// # Errors
    /// As [`crate::Mutex::inspect`].
    pub fn inspect(&self) -> Result<Inspection> {
        wait(self.inner.inspect())
    }

    /// Takes the lease away from the holder that [`Mutex::inspect`] showed: see [`crate::Mutex::revoke`]. One round trip.
    ///
    /// # Errors
    /// As [`crate::Mutex::revoke`].
    pub fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked> {
        wait(self.inner.revoke(holder, grace))
    }

    fn inner(&self) -> Cow<'_, crate::Mutex> {
        match self.by {
            By::Itself => Cow::Borrowed(&self.inner),
            By::Thread => Cow::Owned(self.inner.clone().owner(&Owner::of_this_thread())),
        }
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
