//! The semaphore.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::Take;

use crate::acquirer::{Acquirer, setting_methods};
use crate::error::Result;
use crate::inspection::{Holder, Inspection, Revoked};
use crate::lease::{Lease, debug_guard, guard_methods};
use crate::member::Member;
use crate::reentry::Handle;

/// A number of permits under one name. All holders together have at most that many permits. Use it for a pool of
/// connections, or to limit how many programs do something at the same time.
///
/// Each acquire gets a lease of its own, which the client renews. If a holder dies, its permits come back when its lease
/// ends. (Redisson's `RSemaphore` loses them, and its `RPermitExpirableSemaphore` frees them under a working holder.)
///
/// Waiters are served first come, first served. Nobody overtakes a waiter that asks for more permits than are free, so
/// permits may be free while others wait.
///
/// All programs must name the same number of permits. The first one fixes it, until nobody has used the name for a
/// minute. A call with another number fails with [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch).
/// [`Semaphore::resize`] changes the number.
///
/// A semaphore is cheap to create and to clone. Creating one does no I/O, and the first call reports an invalid name,
/// lease or number. All stores but `quorum:` have semaphores. A quorum refuses the first call with
/// `Unsupported`.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(example())
/// # }
/// # async fn example() -> leasehold::Result<()> {
/// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
/// let connections = leasehold.semaphore("database", 20);
/// let permit = connections.acquire().await?; // waits while twenty are in use
/// # let _ = permit.token();
/// assert_eq!(permit.release().await?, leasehold::Released::Released);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    acquirer: Acquirer,
    permits: u32,
}

/// Held permits. Dropping this releases them in the background.
///
/// The token of a permit orders the grants of the name. It is no use for a fence that lets one writer in: the permits that
/// were granted before it are still held.
#[must_use = "dropping the permit releases it at once"]
pub struct Permit(pub(crate) Lease);

impl Semaphore {
    pub(crate) fn new(client: Arc<Handle>, name: &str, permits: u32) -> Self {
        Self { acquirer: Acquirer::new(client, name, Take::permits(1, permits)), permits }
    }

    /// Waits until a permit is acquired, for as long as that takes, also while the store restarts or is unreachable. One
    /// round trip if a permit is free.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the call from the queue. If the grant is already on its way, it is released.
    ///
    /// # Errors
    ///
    /// - `Mismatch`: the name is no semaphore, or has another number of permits.
    /// - Those of [`Mutex::lock`](crate::Mutex::lock). `Invalid` also for a number of permits that is zero, larger than
    ///   999,999, or larger than that of the semaphore.
    pub async fn acquire(&self) -> Result<Permit> {
        self.acquirer.acquire().await.map(Permit)
    }

    /// Waits until this many permits are acquired, all of them at once.
    ///
    /// # Cancel safety
    ///
    /// See [`Semaphore::acquire`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore::acquire`].
    pub async fn acquire_many(&self, permits: u32) -> Result<Permit> {
        self.of(permits).acquire().await.map(Permit)
    }

    /// Acquires a permit if one is free and nobody waits, and returns `None` otherwise. One round trip.
    ///
    /// Permits that this client dropped before do not stand in the way: they are released first, within the same round
    /// trip.
    ///
    /// # Cancel safety
    ///
    /// See [`Semaphore::acquire`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore::acquire`] and [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        Ok(self.acquirer.try_acquire().await?.map(Permit))
    }

    /// Acquires this many permits if they are free and nobody waits: see [`Semaphore::try_acquire`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore::try_acquire`].
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<Permit>> {
        Ok(self.of(permits).try_acquire().await?.map(Permit))
    }

    /// Waits for a permit for at most `wait`, and returns `None` if none was acquired by then. See
    /// [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Cancel safety
    ///
    /// See [`Semaphore::acquire`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore::acquire`] and [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    pub async fn try_acquire_for(&self, wait: Duration) -> Result<Option<Permit>> {
        Ok(self.acquirer.try_acquire_for(wait).await?.map(Permit))
    }

    /// Waits for this many permits for at most `wait`: see [`Semaphore::try_acquire_for`].
    ///
    /// # Errors
    ///
    /// See [`Semaphore::try_acquire_for`].
    pub async fn try_acquire_many_for(&self, permits: u32, wait: Duration) -> Result<Option<Permit>> {
        Ok(self.of(permits).try_acquire_for(wait).await?.map(Permit))
    }

    /// Changes the number of permits, and returns the semaphore with that number. From now on, calls that
    /// name the earlier number are refused, also those of this semaphore. One round trip.
    ///
    /// Permits beyond a smaller number stay with their holders. Nobody is granted before enough of them have come back.
    /// Calls that wait for more permits than there are now fail with `Mismatch`.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the number may have changed. The same is true after `Unreachable`: the client sends the
    /// request once, and does not repeat it.
    ///
    /// # Errors
    ///
    /// - `Mismatch`: the name has another number than this semaphore and than `permits`, or is no semaphore.
    /// - `Invalid`: the number is zero or larger than 999,999.
    /// - Those of [`Mutex::revoke`](crate::Mutex::revoke).
    pub async fn resize(&self, permits: u32) -> Result<Self> {
        self.acquirer.resize(self.permits, permits).await?;
        Ok(Self { acquirer: self.acquirer.taking(Take::permits(1, permits)), permits })
    }

    /// Returns the holders of permits and the queue: see [`Mutex::inspect`](crate::Mutex::inspect).
    ///
    /// # Errors
    ///
    /// See [`Mutex::inspect`](crate::Mutex::inspect).
    pub async fn inspect(&self) -> Result<Inspection> {
        self.acquirer.inspect().await
    }

    /// Takes the permits of one holder away: see [`Mutex::revoke`](crate::Mutex::revoke).
    ///
    /// # Errors
    ///
    /// See [`Mutex::revoke`](crate::Mutex::revoke).
    pub async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked> {
        self.acquirer.revoke(holder, grace).await
    }

    /// Returns this many permits, as a member of a multi-lock: see [`all`](crate::all).
    #[must_use]
    pub fn member(&self, permits: u32) -> Member {
        Member(self.of(permits))
    }

    setting_methods!();

    pub(crate) fn with(self, change: impl Fn(Acquirer) -> Acquirer) -> Self {
        Self { acquirer: change(self.acquirer), ..self }
    }

    fn of(&self, permits: u32) -> Acquirer {
        self.acquirer.taking(Take::permits(permits, self.permits))
    }
}

impl Permit {
    guard_methods!(tasks);
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.acquirer.fmt_as("Semaphore", f)
    }
}

debug_guard!(Permit);
