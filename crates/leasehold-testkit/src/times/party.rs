//! A client of either face, for callers that wait without a runtime. A blocking call blocks its thread, and its future is
//! ready then.

use std::time::Duration;

use leasehold::blocking::{self, Canceller};
use leasehold::{Closed, Error, Guard, Holder, Inspection, Leasehold, Lost, Mutex, Released, Revoked};

#[derive(Clone)]
pub(super) enum Client {
    Tasks(Leasehold),
    Threads(blocking::Leasehold),
}

#[derive(Clone)]
pub(super) enum Lock {
    Tasks(Mutex),
    Threads(blocking::Mutex),
}

pub(super) enum Held {
    Tasks(Guard),
    Threads(blocking::Guard),
}

impl Client {
    pub(super) fn lock(&self, name: &str, lease: Duration) -> Lock {
        match self {
            Self::Tasks(client) => Lock::Tasks(client.mutex(name).lease(lease)),
            Self::Threads(client) => Lock::Threads(client.mutex(name).lease(lease)),
        }
    }

    pub(super) async fn names(&self) -> Result<Vec<String>, Error> {
        match self {
            Self::Tasks(client) => client.names().await,
            Self::Threads(client) => client.names(),
        }
    }

    pub(super) async fn close(self) -> Closed {
        match self {
            Self::Tasks(client) => client.close().await,
            Self::Threads(client) => client.close(),
        }
    }
}

impl Lock {
    pub(super) fn full_lease(&self) -> Self {
        match self.clone() {
            Self::Tasks(mutex) => Self::Tasks(mutex.full_lease()),
            Self::Threads(mutex) => Self::Threads(mutex.full_lease()),
        }
    }

    pub(super) async fn lock(&self) -> Result<Held, Error> {
        match self {
            Self::Tasks(mutex) => mutex.lock().await.map(Held::Tasks),
            Self::Threads(mutex) => mutex.lock().map(Held::Threads),
        }
    }

    pub(super) async fn try_lock(&self) -> Result<Option<Held>, Error> {
        match self {
            Self::Tasks(mutex) => Ok(mutex.try_lock().await?.map(Held::Tasks)),
            Self::Threads(mutex) => Ok(mutex.try_lock()?.map(Held::Threads)),
        }
    }

    pub(super) async fn try_lock_for(&self, wait: Duration) -> Result<Option<Held>, Error> {
        match self {
            Self::Tasks(mutex) => Ok(mutex.try_lock_for(wait).await?.map(Held::Tasks)),
            Self::Threads(mutex) => Ok(mutex.try_lock_for(wait)?.map(Held::Threads)),
        }
    }

    /// Tasks drop their future instead.
    pub(super) fn lock_or_cancel(&self, canceller: &Canceller) -> Result<Option<Held>, Error> {
        match self {
            Self::Tasks(_) => unreachable!("no cell asks for it"),
            Self::Threads(mutex) => Ok(mutex.lock_or_cancel(canceller)?.map(Held::Threads)),
        }
    }

    pub(super) async fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Error> {
        match self {
            Self::Tasks(mutex) => mutex.run(async |_| work()).await,
            Self::Threads(mutex) => mutex.run(|_| work()),
        }
    }

    pub(super) async fn inspect(&self) -> Result<Inspection, Error> {
        match self {
            Self::Tasks(mutex) => mutex.inspect().await,
            Self::Threads(mutex) => mutex.inspect(),
        }
    }

    pub(super) async fn revoke(&self, holder: &Holder) -> Result<Revoked, Error> {
        match self {
            Self::Tasks(mutex) => mutex.revoke(holder, Duration::ZERO).await,
            Self::Threads(mutex) => mutex.revoke(holder, Duration::ZERO),
        }
    }
}

impl Held {
    pub(super) async fn release(self) -> Result<Released, Error> {
        match self {
            Self::Tasks(guard) => guard.release().await,
            Self::Threads(guard) => guard.release(),
        }
    }

    /// Waits for the loss. A thread has to give a time limit.
    pub(super) async fn lost(&self, at_most: Duration) -> Option<Lost> {
        match self {
            Self::Tasks(guard) => Some(guard.lost().await),
            Self::Threads(guard) => guard.wait_lost(at_most),
        }
    }
}
