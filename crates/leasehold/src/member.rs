//! A lock as a part of a multi-lock.

use std::fmt;

use crate::acquirer::Acquirer;

/// A lock that is a part of a multi-lock, with the settings of that lock: a [`Mutex`](crate::Mutex) (by `into`), a side of
/// a read-write lock ([`RwLock::reading`](crate::RwLock::reading), [`RwLock::writing`](crate::RwLock::writing)), or
/// permits of a semaphore ([`Semaphore::member`](crate::Semaphore::member)). See [`all`](crate::all).
#[derive(Clone)]
pub struct Member(pub(crate) Acquirer);

impl Member {
    pub(crate) fn lease_us(&self) -> u64 {
        u64::try_from(self.0.lease_length().as_micros()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("Member", f)
    }
}
