//! The read-write lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::Take;

use crate::acquirer::{Acquirer, setting_methods};
use crate::error::Result;
use crate::inspection::{Holder, Inspection, Revoked};
use crate::lease::{Lease, Upgrading, debug_guard, guard_methods};
use crate::member::Member;
use crate::reentry::Handle;

/// A lock that many readers hold together, or one writer alone.
///
/// Readers and writers are served first come, first served. A writer that waits stops later readers, so writers do not
/// starve. The readers behind a writer enter together when it has released.
///
/// Each guard has a lease of its own, which the client renews, with a fencing token and a loss signal. If a reader dies,
/// the writer waits until that reader's lease ends. (On `file:` the writer holds at once.) A [`fence`](crate::fence)
/// knows readers from writers: a reader enters with [`Access::Read`](crate::fence::Access).
///
/// A task that holds a read guard and waits for `write` waits for its own guard, for ever. Use
/// [`upgradeable_read`](Self::upgradeable_read) instead. There is no re-entry: if a writer queues between two `read` calls
/// of one task, the second call waits for the writer, and the writer waits for the guard of the first call.
///
/// A read-write lock is cheap to create and to clone. Creating one does no I/O, and the first call reports an invalid name
/// or lease. A name is either a mutex or a read-write lock: calls of the other kind fail with
/// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch). All stores but `quorum:` have read-write locks. A quorum refuses
/// the first call with `Unsupported`.
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// #     tokio::runtime::Runtime::new().unwrap().block_on(example())
/// # }
/// # async fn example() -> leasehold::Result<()> {
/// # let leasehold = leasehold::Leasehold::connect("memory:").await?;
/// let prices = leasehold.rw_lock("prices");
/// let reader = prices.read().await?; // beside other readers
/// # let _ = reader.token();
/// assert_eq!(reader.release().await?, leasehold::Released::Released);
/// let writer = prices.write().await?; // alone
/// let reader = writer.downgrade(); // others may read now, and nobody has written in between
/// # let _ = reader;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    read: Acquirer,
    write: Acquirer,
    upgradeable: Acquirer,
}

/// A lock that is held to read. Dropping the guard releases the lease in the background.
#[must_use = "dropping the guard releases the lease at once"]
pub struct ReadGuard(pub(crate) Lease);

/// A lock that is held to write. Dropping the guard releases the lease in the background.
#[must_use = "dropping the guard releases the lease at once"]
pub struct WriteGuard(pub(crate) Lease);

/// A lock that is held to read, beside other readers, and that can become a [`WriteGuard`]. Dropping the guard releases the
/// lease in the background.
#[must_use = "dropping the guard releases the lease at once"]
pub struct UpgradeableReadGuard(pub(crate) Lease);

impl RwLock {
    pub(crate) fn new(client: Arc<Handle>, name: &str) -> Self {
        let read = Acquirer::new(client, name, Take::READ);
        Self { write: read.taking(Take::WRITE), upgradeable: read.taking(Take::UPGRADEABLE_READ), read }
    }

    /// Waits until the lock is acquired to read. One round trip if nobody writes or waits.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the call from the queue. If the grant is already on its way, it is released.
    ///
    /// # Errors
    ///
    /// - `Mismatch`: the name is of another kind.
    /// - Those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn read(&self) -> Result<ReadGuard> {
        self.read.acquire().await.map(ReadGuard)
    }

    /// Acquires the lock to read if nobody writes or waits, and returns `None` otherwise. One round trip. Guards of this
    /// client that were dropped before do not stand in the way.
    ///
    /// # Cancel safety
    ///
    /// See [`RwLock::read`].
    ///
    /// # Errors
    ///
    /// See [`RwLock::read`] and [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_read(&self) -> Result<Option<ReadGuard>> {
        Ok(self.read.try_acquire().await?.map(ReadGuard))
    }

    /// Waits for at most `wait` to read: see [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    ///
    /// # Errors
    ///
    /// See [`RwLock::read`] and [`Mutex::try_lock_for`](crate::Mutex::try_lock_for).
    pub async fn try_read_for(&self, wait: Duration) -> Result<Option<ReadGuard>> {
        Ok(self.read.try_acquire_for(wait).await?.map(ReadGuard))
    }

    /// Waits until the lock is acquired to write. One round trip if nobody holds it or waits.
    ///
    /// # Cancel safety
    ///
    /// See [`RwLock::read`].
    ///
    /// # Errors
    ///
    /// See [`RwLock::read`].
    pub async fn write(&self) -> Result<WriteGuard> {
        self.write.acquire().await.map(WriteGuard)
    }

    /// Acquires the lock to write if nobody holds it or waits: see [`RwLock::try_read`].
    ///
    /// # Errors
    ///
    /// See [`RwLock::try_read`].
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        Ok(self.write.try_acquire().await?.map(WriteGuard))
    }

    /// Waits for at most `wait` to write: see [`RwLock::try_read_for`].
    ///
    /// # Errors
    ///
    /// See [`RwLock::try_read_for`].
    pub async fn try_write_for(&self, wait: Duration) -> Result<Option<WriteGuard>> {
        Ok(self.write.try_acquire_for(wait).await?.map(WriteGuard))
    }

    /// Waits until the lock is acquired to read, with the right to become a writer. At most one guard of a lock has this
    /// right at a time: two readers that both want to write would wait for each other. The others read beside it.
    ///
    /// # Cancel safety
    ///
    /// See [`RwLock::read`].
    ///
    /// # Errors
    ///
    /// See [`RwLock::read`].
    pub async fn upgradeable_read(&self) -> Result<UpgradeableReadGuard> {
        self.upgradeable.acquire().await.map(UpgradeableReadGuard)
    }

    /// Acquires the lock to read, with the right to become a writer, if nobody writes, waits, or has that right: see
    /// [`RwLock::try_read`].
    ///
    /// # Errors
    ///
    /// See [`RwLock::try_read`].
    pub async fn try_upgradeable_read(&self) -> Result<Option<UpgradeableReadGuard>> {
        Ok(self.upgradeable.try_acquire().await?.map(UpgradeableReadGuard))
    }

    /// Waits for at most `wait` to read, with the right to become a writer: see [`RwLock::try_read_for`].
    ///
    /// # Errors
    ///
    /// See [`RwLock::try_read_for`].
    pub async fn try_upgradeable_read_for(&self, wait: Duration) -> Result<Option<UpgradeableReadGuard>> {
        Ok(self.upgradeable.try_acquire_for(wait).await?.map(UpgradeableReadGuard))
    }

    /// Returns the readers or the writer, and the queue: see [`Mutex::inspect`](crate::Mutex::inspect).
    ///
    /// # Errors
    ///
    /// See [`Mutex::inspect`](crate::Mutex::inspect).
    pub async fn inspect(&self) -> Result<Inspection> {
        self.read.inspect().await
    }

    /// Takes the lock away from one holder: see [`Mutex::revoke`](crate::Mutex::revoke).
    ///
    /// # Errors
    ///
    /// See [`Mutex::revoke`](crate::Mutex::revoke).
    pub async fn revoke(&self, holder: &Holder, grace: Duration) -> Result<Revoked> {
        self.read.revoke(holder, grace).await
    }

    /// Returns the side of a reader, as a member of a multi-lock: see [`all`](crate::all).
    #[must_use]
    pub fn reading(&self) -> Member {
        Member(self.read.clone())
    }

    /// Returns the side of a writer, as a member of a multi-lock: see [`all`](crate::all).
    #[must_use]
    pub fn writing(&self) -> Member {
        Member(self.write.clone())
    }

    setting_methods!();

    pub(crate) fn with(self, change: impl Fn(Acquirer) -> Acquirer) -> Self {
        Self { read: change(self.read), write: change(self.write), upgradeable: change(self.upgradeable) }
    }
}

impl ReadGuard {
    guard_methods!(tasks);
}

impl WriteGuard {
    guard_methods!(tasks);

    /// Makes this guard a read guard, with the same token and the same lease. Nobody can write in between. Waiting readers
    /// enter as soon as the store has the request, which the client sends in the background and repeats until then.
    pub fn downgrade(self) -> ReadGuard {
        ReadGuard(self.0.lower(1))
    }
}

impl UpgradeableReadGuard {
    guard_methods!(tasks);

    /// Waits until the other readers have gone, and makes this guard a write guard with a new token. Nobody can write in
    /// between, and no reader enters while this waits. One round trip if there are no other readers. The write guard has
    /// the settings of the lock, and a time of `max_hold` or of a fixed lease begins anew.
    ///
    /// # Cancel safety
    ///
    /// The future owns the guard. Dropping it releases the lock.
    ///
    /// # Errors
    ///
    /// `Lost` if the read lease was lost before or meanwhile; `Denied`, `Closed`, `Store`. After an error the lock is
    /// released.
    pub async fn upgrade(self) -> Result<WriteGuard> {
        let mut lease = self.0;
        loop {
            match lease.upgrade(Upgrading::ForEver).await? {
                Ok(upgraded) => return Ok(WriteGuard(upgraded)),
                // Cannot occur here: only a limited wait ends.
                Err(same) => lease = same,
            }
        }
    }

    /// Makes this guard a write guard if there are no other readers. Otherwise returns it as it is, as the inner error. One
    /// round trip.
    ///
    /// # Cancel safety
    ///
    /// See [`Self::upgrade`].
    ///
    /// # Errors
    ///
    /// See [`Self::upgrade`]. Also `Unreachable` if the store does not reply: see
    /// [`Mutex::try_lock`](crate::Mutex::try_lock). Then the lock is released, too, because nobody knows which of the two
    /// the store has.
    pub async fn try_upgrade(self) -> Result<std::result::Result<WriteGuard, Self>> {
        Ok(self.0.upgrade(Upgrading::Now).await?.map(WriteGuard).map_err(Self))
    }

    /// Waits for at most `wait` until the other readers have gone: see [`Self::try_upgrade`]. No reader enters meanwhile.
    ///
    /// # Errors
    ///
    /// See [`Self::try_upgrade`].
    pub async fn try_upgrade_for(self, wait: Duration) -> Result<std::result::Result<WriteGuard, Self>> {
        Ok(self.0.upgrade(Upgrading::For(wait)).await?.map(WriteGuard).map_err(Self))
    }

    /// Gives the right to an upgrade back, in the background, and keeps the read lock.
    pub fn downgrade(self) -> ReadGuard {
        ReadGuard(self.0.lower(1))
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read.fmt_as("RwLock", f)
    }
}

debug_guard!(ReadGuard, WriteGuard, UpgradeableReadGuard);
