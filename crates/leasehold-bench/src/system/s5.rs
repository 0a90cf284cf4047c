//! The textbook lock: `SET NX PX`, and compare-and-delete. It has no queue, no token and no renewal, and does not notice
//! a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;

use super::{Client, LEASE_MS, Lock, connection, load};
use crate::error::{Context, Result};

/// How long a loser sleeps before it tries again. It can only guess: a short sleep costs the server, a long one leaves
/// the lock unused.
pub(super) const POLL: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub(crate) struct S5 {
    pub(super) connection: MultiplexedConnection,
    shared: Arc<Shared>,
}

struct Shared {
    acquire: String,
    release: String,
    /// With the counter, a value of 32 digits that no other attempt has: a UUID's length on the wire.
    process: u64,
    attempts: AtomicU64,
}

impl Client for S5 {
    type Lock = S5Lock;

    async fn connect(url: &str) -> Result<Self> {
        let mut connection = connection(url).await?;
        let acquire = load(&mut connection, include_str!("s5_acquire.lua")).await?;
        let release = load(&mut connection, include_str!("s5_release.lua")).await?;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
        let process = (wall.as_nanos() as u64) ^ (u64::from(std::process::id()) << 40);
        Ok(Self { connection, shared: Arc::new(Shared { acquire, release, process, attempts: AtomicU64::new(0) }) })
    }

    fn lock(&self, name: String) -> S5Lock {
        S5Lock { client: self.clone(), key: format!("s5:{name}") }
    }
}

impl S5 {
    /// Returns a value that no other attempt has.
    pub(super) fn new_value(&self) -> String {
        format!("{:016x}{:016x}", self.shared.process, self.shared.attempts.fetch_add(1, Ordering::Relaxed))
    }
}

pub(crate) struct S5Lock {
    client: S5,
    pub(super) key: String,
}

impl S5Lock {
    /// Tries once. Returns whether it holds the lock.
    pub(super) async fn try_acquire(&self, value: &str) -> Result<bool> {
        self.call(&self.client.shared.acquire, value).await
    }

    /// Returns whether it held the lock.
    pub(super) async fn try_release(&self, value: &str) -> Result<bool> {
        self.call(&self.client.shared.release, value).await
    }

    async fn call(&self, script: &str, value: &str) -> Result<bool> {
        let mut evalsha = redis::cmd("EVALSHA");
        evalsha.arg(script).arg(1).arg(&self.key).arg(value).arg(LEASE_MS);
        evalsha.query_async(&mut self.client.connection.clone()).await.context("s5")
    }
}

impl Lock for S5Lock {
    type Held<'lock> = String;

    async fn acquire(&self) -> Result<String> {
        let value = self.client.new_value();
        // The caller's time limit ends this loop: a worker that is not done in time is an error there.
        while !self.try_acquire(&value).await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(value)
    }

    async fn release(&self, value: String) -> Result<()> {
        match self.try_release(&value).await? {
            true => Ok(()),
            false => Err(format!("s5: {} was not held any more", self.key).into()),
        }
    }

    fn token(_held: &String) -> Option<u64> {
        None
    }
}
