//! The stock on Redis. Reading and writing are two steps, as with any database.

use std::time::Duration;

use leasehold::Token;
use leasehold::fence::{RedisFence, Stale};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult};

use crate::locks::LockName;
use crate::plan::Plan;

/// The time in which Redis must reply.
const REPLIES_WITHIN: Duration = Duration::from_secs(10);
/// The stock and its marks expire after this time, in case that the run is killed.
const KEPT: Duration = Duration::from_secs(3600);

/// The stock.
pub(crate) struct Stock {
    key: String,
    connection: MultiplexedConnection,
    fence: Option<RedisFence>,
}

/// The reason why a read or a write did not happen.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The stock has seen a larger token.
    Stale,
    Failed(String),
}

impl Stock {
    /// Connects to the stock of a run. With Leasehold the stock checks tokens.
    pub(crate) async fn open(plan: &Plan) -> Result<Self, String> {
        let url = plan.url();
        let connection = connect(&url).await.map_err(|error| format!("cannot connect to {url}: {error}"))?;
        let fence = match plan.lock {
            LockName::Leasehold => {
                Some(RedisFence::connect(&url).await.map_err(|error| error.to_string())?.forget_after(KEPT))
            }
            _ => None,
        };
        Ok(Self { key: plan.stock_key(), connection, fence })
    }

    /// Returns the number of pieces that are left.
    pub(crate) async fn read(&self, token: Option<Token>) -> Result<u64, Refusal> {
        match (&self.fence, token) {
            (Some(fence), Some(token)) => {
                let left = fence.get(&self.key, token).await?;
                let left = left.and_then(|left| String::from_utf8(left).ok()?.parse().ok());
                left.ok_or_else(|| Refusal::Failed("the stock is missing, or is not a number".into()))
            }
            _ => self.count().await.map_err(Refusal::Failed),
        }
    }

    /// Sets the number of pieces that are left.
    pub(crate) async fn write(&self, token: Option<Token>, left: u64) -> Result<(), Refusal> {
        match (&self.fence, token) {
            (Some(fence), Some(token)) => Ok(fence.set(&self.key, token, left.to_string()).await?),
            _ => self.fill(left).await.map_err(Refusal::Failed),
        }
    }

    /// Sets the number of pieces, whatever the tokens are.
    pub(crate) async fn fill(&self, pieces: u64) -> Result<(), String> {
        self.ask(Cmd::set(&self.key, pieces).arg("EX").arg(KEPT.as_secs())).await
    }

    /// Counts the pieces, whatever the tokens are.
    pub(crate) async fn count(&self) -> Result<u64, String> {
        self.ask(&Cmd::get(&self.key)).await
    }

    /// Removes the stock.
    pub(crate) async fn clear(&self) -> Result<(), String> {
        self.ask(&Cmd::del(&self.key)).await
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, String> {
        let failed = |error| format!("cannot read or write the stock: {error}; is the server still running?");
        command.query_async(&mut self.connection.clone()).await.map_err(failed)
    }
}

/// Connects to a server.
pub(crate) async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(REPLIES_WITHIN))
        .set_response_timeout(Some(REPLIES_WITHIN));
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

impl From<leasehold::Error> for Refusal {
    fn from(error: leasehold::Error) -> Self {
        match Stale::behind(&error) {
            Some(_) => Self::Stale,
            None => Self::Failed(error.to_string()),
        }
    }
}
