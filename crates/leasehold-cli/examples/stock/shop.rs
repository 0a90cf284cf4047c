//! The lock and the stock, as one worker sees them.
//!
//! Reading and writing are two steps, as with GET and SET, or SELECT and UPDATE, in any database. In memory, each step
//! is an atomic load or store: this is safe Rust and has the same race. Before each step the worker yields to the
//! others, as it would during a request to a server.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::fence::{Fenced, RedisFence, Stale};
use leasehold::{Error, Guard, Leasehold, Mutex, Token};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult};
use tokio::task::yield_now;

use crate::plan::{Fence, Guarding, Place, Plan};
use crate::worker::Role;

/// How long Redis may take to reply.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the stock of a run that was killed stays on Redis.
const KEPT_S: u64 = 24 * 3600;

/// The lock and the stock of a team.
pub(crate) struct Shop {
    lock: Option<(Leasehold, Mutex)>,
    pub(crate) stock: Stock,
}

/// The pieces that are left, in one of four kinds of storage.
#[derive(Clone)]
pub(crate) enum Stock {
    Memory(Arc<AtomicU64>),
    FencedMemory(Arc<Fenced<u64>>),
    Redis { connection: MultiplexedConnection, key: String },
    FencedRedis { fence: RedisFence, connection: MultiplexedConnection, key: String },
}

/// The reason why a request to the stock failed.
pub(crate) enum Refusal {
    Stale,
    Broken(String),
}

impl Shop {
    pub(crate) async fn open(plan: &Plan, role: Role, stock: Stock) -> Result<Self, String> {
        let Guarding::Lease { lease_ms, .. } = plan.guard else { return Ok(Self { lock: None, stock }) };
        let lease = Duration::from_millis(lease_ms);
        let url = match &plan.place {
            Place::Embedded => format!("memory:{}", plan.name),
            Place::Redis { url } => url.clone(),
        };
        let leasehold = Leasehold::connect(&url).await.map_err(|e| in_full(&e))?;
        let mutex = leasehold.mutex(&plan.name);
        let mutex = match (&plan.place, role) {
            // A thread cannot be stopped, and its client renews while it sleeps. A lease that nobody renews ends as that
            // of a process that was stopped does.
            (Place::Embedded, Role::Sleeper) => mutex.fixed_lease(lease),
            _ => mutex.lease(lease),
        };
        Ok(Self { lock: Some((leasehold, mutex)), stock })
    }

    /// Waits for the lock. Returns `None` if the run has no lock.
    pub(crate) async fn lock(&self) -> Result<Option<Guard>, String> {
        match &self.lock {
            Some((_, mutex)) => mutex.lock().await.map(Some).map_err(|e| in_full(&e)),
            None => Ok(None),
        }
    }

    pub(crate) async fn close(self) {
        if let Some((leasehold, _)) = self.lock {
            // A lock that could not be released ends with its lease.
            leasehold.close().await;
        }
    }
}

impl Stock {
    /// Returns a stock in the memory of this process.
    pub(crate) fn embedded(plan: &Plan) -> Self {
        match plan.fence() {
            Fence::Without => Self::Memory(Arc::new(AtomicU64::new(plan.pieces))),
            Fence::With => Self::FencedMemory(Arc::new(Fenced::new(plan.pieces))),
        }
    }

    /// Returns the stock of this plan on Redis, which may not exist yet.
    pub(crate) async fn on_redis(plan: &Plan, url: &str) -> Result<Self, String> {
        let key = plan.name.clone();
        // A fence says best what is wrong with a URL, a server or a password.
        let fence = RedisFence::connect(url).await.map_err(|e| in_full(&e))?;
        let connection = connect(url).await.map_err(|e| format!("the store: {e}"))?;
        Ok(match plan.fence() {
            Fence::Without => Self::Redis { connection, key },
            // The marks of a run need not outlive it by days: nothing of it is left that could come back.
            Fence::With => Self::FencedRedis { fence: fence.forget_after(Duration::from_secs(3600)), connection, key },
        })
    }

    pub(crate) async fn read(&self, token: Token) -> Result<u64, Refusal> {
        match self {
            Self::Memory(left) => {
                yield_now().await;
                Ok(left.load(Ordering::SeqCst))
            }
            Self::FencedMemory(left) => {
                yield_now().await;
                Ok(*left.read(token)?)
            }
            Self::Redis { connection, key } => ask(connection, &Cmd::get(key)).await.map_err(Refusal::Broken),
            Self::FencedRedis { fence, key, .. } => {
                let left = fence.get(key, token).await?;
                let left = left.and_then(|left| String::from_utf8(left).ok()?.parse().ok());
                left.ok_or_else(|| Refusal::Broken("the stock is missing, or is not a number".into()))
            }
        }
    }

    pub(crate) async fn write(&self, token: Token, left: u64) -> Result<(), Refusal> {
        match self {
            Self::Memory(stock) => {
                yield_now().await;
                stock.store(left, Ordering::SeqCst);
            }
            Self::FencedMemory(stock) => {
                yield_now().await;
                *stock.write(token)? = left;
            }
            Self::Redis { connection, key } => {
                ask::<()>(connection, &set(key, left)).await.map_err(Refusal::Broken)?;
            }
            Self::FencedRedis { fence, key, .. } => fence.set(key, token, left.to_string()).await?,
        }
        Ok(())
    }

    /// Stores the pieces, before the sale starts.
    pub(crate) async fn fill(&self, pieces: u64) -> Result<(), String> {
        match self {
            Self::Memory(_) | Self::FencedMemory(_) => Ok(()),
            Self::Redis { connection, key } | Self::FencedRedis { connection, key, .. } => {
                ask(connection, &set(key, pieces)).await
            }
        }
    }

    /// Counts the pieces that are left after the sale.
    pub(crate) async fn count(&self) -> Result<u64, String> {
        match self {
            Self::Memory(left) => Ok(left.load(Ordering::SeqCst)),
            Self::FencedMemory(left) => left.read(left.gate().all()).map(|left| *left).map_err(|e| e.to_string()),
            Self::Redis { connection, key } | Self::FencedRedis { connection, key, .. } => {
                ask(connection, &Cmd::get(key)).await
            }
        }
    }

    /// Removes the stock from Redis.
    pub(crate) async fn clear(&self) -> Result<(), String> {
        match self {
            Self::Memory(_) | Self::FencedMemory(_) => Ok(()),
            Self::Redis { connection, key } | Self::FencedRedis { connection, key, .. } => {
                ask(connection, &Cmd::del(key)).await
            }
        }
    }
}

async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(ANSWER)).set_response_timeout(Some(ANSWER));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

async fn ask<T: FromRedisValue>(connection: &MultiplexedConnection, command: &Cmd) -> Result<T, String> {
    let broken = |e| format!("cannot read or write the stock on Redis ({e}): is the server still running?");
    command.query_async(&mut connection.clone()).await.map_err(broken)
}

/// Stores the stock with an expiry, in case nobody is left to remove it. (A fence does not change the expiry.)
fn set(key: &str, left: u64) -> Cmd {
    let mut command = Cmd::set(key, left);
    command.arg("EX").arg(KEPT_S);
    command
}

/// Formats an error with its cause, unless its message has the cause already.
fn in_full(error: &Error) -> String {
    let told = error.to_string();
    match error.source().map(ToString::to_string) {
        Some(cause) if !told.contains(&cause) => format!("{told} ({cause})"),
        _ => told,
    }
}

impl From<Stale> for Refusal {
    fn from(_: Stale) -> Self {
        Self::Stale
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match Stale::behind(&error) {
            Some(_) => Self::Stale,
            None => Self::Broken(in_full(&error)),
        }
    }
}
