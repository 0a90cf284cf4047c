//! Leasehold, as users call it: `lock().await` and `release().await`.

use leasehold::Released;

use super::{Client, Lock};
use crate::error::{Context, Failure, Result};

#[derive(Clone)]
pub(crate) struct Leasehold(leasehold::Leasehold);

impl Client for Leasehold {
    type Lock = leasehold::Mutex;

    async fn connect(url: &str) -> Result<Self> {
        leasehold::Leasehold::connect(url).await.map(Self).context("leasehold")
    }

    fn lock(&self, name: String) -> leasehold::Mutex {
        self.0.mutex(name)
    }
}

/// Leasehold with every lock [fair](leasehold::Mutex::fair).
#[derive(Clone)]
pub(crate) struct LeaseholdFair(Leasehold);

impl Client for LeaseholdFair {
    type Lock = leasehold::Mutex;

    async fn connect(url: &str) -> Result<Self> {
        Leasehold::connect(url).await.map(Self)
    }

    fn lock(&self, name: String) -> leasehold::Mutex {
        self.0.lock(name).fair()
    }
}

/// Leasehold without hand-over inside the client: each lock has its own place in the store's queue.
#[derive(Clone)]
pub(crate) struct LeaseholdRemote(Leasehold);

impl Client for LeaseholdRemote {
    type Lock = leasehold::Mutex;

    async fn connect(url: &str) -> Result<Self> {
        let builder = leasehold::Leasehold::builder(url).remote_hand_over();
        Ok(Self(Leasehold(builder.connect().await.context("leasehold")?)))
    }

    fn lock(&self, name: String) -> leasehold::Mutex {
        self.0.lock(name)
    }
}

impl Lock for leasehold::Mutex {
    type Held<'lock> = leasehold::Guard;

    async fn acquire(&self) -> Result<leasehold::Guard> {
        self.lock().await.context("leasehold")
    }

    async fn release(&self, guard: leasehold::Guard) -> Result<()> {
        match guard.release().await.context("leasehold")? {
            Released::Released => Ok(()),
            Released::NotHeld => Err(Failure::from("leasehold: the lease was lost before it was given back")),
        }
    }

    fn token(guard: &leasehold::Guard) -> Option<u64> {
        Some(guard.token().get())
    }
}
