//! Leasehold, as its users have it: `lock().await` and `release().await`.

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

impl Lock for leasehold::Mutex {
    type Held = leasehold::Guard;

    async fn acquire(&self) -> Result<leasehold::Guard> {
        self.lock().await.context("leasehold")
    }

    async fn release(&self, guard: leasehold::Guard) -> Result<()> {
        match guard.release().await.context("leasehold")? {
            Released::Released => Ok(()),
            Released::NotHeld => Err(Failure::from("leasehold: the lease was lost before it was given back")),
        }
    }
}
