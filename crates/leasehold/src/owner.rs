//! Who may re-enter.

use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "blocking")]
use std::thread::{self, ThreadId};

/// Who may lock again what it holds already: see [`Mutex::owner`](crate::Mutex::owner).
///
/// A value that is equal to its clones and to nothing else. Give one to everything that works for the same job, and to
/// nobody else: all of them are inside at the same time. It means something to one client at a time: with another client,
/// of this process or of any other, the same owner waits like a stranger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner(Who);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Numbered(u64),
    /// Never used again in this process, unlike the number that the system gives a thread.
    #[cfg(feature = "blocking")]
    Thread(ThreadId),
}

impl Owner {
    /// An owner that is equal to no other.
    #[must_use]
    pub fn new() -> Self {
        // A number is enough: owners never leave their process.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Who::Numbered(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn of_this_thread() -> Self {
        Self(Who::Thread(thread::current().id()))
    }
}

impl Default for Owner {
    /// As [`Owner::new`]: equal to no other.
    fn default() -> Self {
        Self::new()
    }
}
