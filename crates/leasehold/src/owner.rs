//! The identity that may re-enter a lock.

use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "blocking")]
use std::thread::{self, ThreadId};

/// An identity that may lock again a lock that it already holds: see [`Mutex::owner`](crate::Mutex::owner).
///
/// An owner is equal to its clones and to no other owner. Give the same owner to all tasks and threads of one job, and to
/// nothing else: they can all be inside the lock at the same time. Owners belong to one client: from another client, also
/// in the same process, the same owner contends like any other caller.
///
/// ```
/// # async fn example(leasehold: &leasehold::Leasehold) -> leasehold::Result<()> {
/// let mutex = leasehold.mutex("stock:42").owner(&leasehold::Owner::new());
/// let outer = mutex.lock().await?;
/// let inner = mutex.lock().await?; // at once
/// assert_eq!(inner.token(), outer.token());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Identity);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    Numbered(u64),
    /// Unlike the thread number of the system, this ID is never used again in this process.
    #[cfg(feature = "blocking")]
    Thread(ThreadId),
}

impl Owner {
    /// Returns an owner that is equal to no other owner.
    #[must_use]
    pub fn new() -> Self {
        // A number is enough: owners never leave their process.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Identity::Numbered(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn of_this_thread() -> Self {
        Self(Identity::Thread(thread::current().id()))
    }
}

impl Default for Owner {
    /// Returns an owner that is equal to no other owner, like [`Owner::new`].
    fn default() -> Self {
        Self::new()
    }
}
