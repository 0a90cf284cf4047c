//! The measured systems. A system can lock and release, and does not know the scenario in which it runs.

mod fan;
mod floor;
mod leasehold;
mod none;
mod s5;
mod s5_batched;
mod tokio_mutex;

use std::time::Duration;

use clap::ValueEnum;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo};
use serde::{Deserialize, Serialize};

pub(crate) use fan::Fan;
pub(crate) use floor::Floor;
pub(crate) use leasehold::{Leasehold, LeaseholdFair, LeaseholdRemote};
pub(crate) use none::Unlocked;
pub(crate) use s5::S5;
pub(crate) use s5_batched::S5Batched;
pub(crate) use tokio_mutex::TokioMutex;

use crate::error::{Context, Result};

/// A lock to measure, or a lower limit for comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum System {
    Own(Own),
    /// Another library, by its name in `systems.json`: a program in its own language.
    Peer(String),
}

/// The systems that this program runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Own {
    /// SET NX PX and compare-and-delete, a script each: the simplest lock on Redis. It polls while the lock is taken.
    S5,
    /// The same in batches: the requests of tasks that ask at the same time are sent in one script. It polls, too.
    S5Batched,
    /// The bare two-script hand-over without safety rules: the simplest fair queue on Redis.
    Floor,
    /// Leasehold.
    Leasehold,
    /// Leasehold, first come, first served over all processes.
    LeaseholdFair,
    /// Leasehold without hand-over inside a process.
    LeaseholdRemote,
    /// One script to each of several servers at once, until a majority has answered: the simplest quorum.
    Fan,
    /// tokio's own lock, within one process: no lease, no store, no server.
    TokioMutex,
    /// No lock at all. It must lose updates: that checks the measurement.
    None,
}

impl Own {
    /// Returns its name in figures and arguments.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::S5 => "s5",
            Self::S5Batched => "s5-batched",
            Self::Floor => "floor",
            Self::Leasehold => "leasehold",
            Self::LeaseholdFair => "leasehold-fair",
            Self::LeaseholdRemote => "leasehold-remote",
            Self::Fan => "fan",
            Self::TokioMutex => "tokio-mutex",
            Self::None => "none",
        }
    }
}

impl System {
    /// Returns its name in figures and arguments.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Own(own) => own.name(),
            Self::Peer(name) => name,
        }
    }

    /// Returns which of our systems it is.
    pub(crate) fn own(&self) -> Option<Own> {
        match self {
            Self::Own(own) => Some(*own),
            Self::Peer(_) => None,
        }
    }

    /// Returns the system of this name, without a check whether such a peer exists.
    pub(crate) fn named(name: &str) -> Self {
        Own::from_str(name, false).map_or_else(|_| Self::Peer(name.to_owned()), Self::Own)
    }
}

impl From<Own> for System {
    fn from(own: Own) -> Self {
        Self::Own(own)
    }
}

/// The client of a system in one process.
pub(crate) trait Client: Clone + Send + Sync + 'static {
    type Lock: Lock;

    fn connect(url: &str) -> impl Future<Output = Result<Self>> + Send;

    fn lock(&self, name: String) -> Self::Lock;
}

/// The lock of one name.
pub(crate) trait Lock: Send + Sync + 'static {
    /// The value that its holder keeps until it releases the lock.
    type Held<'lock>: Send
    where
        Self: 'lock;

    fn acquire(&self) -> impl Future<Output = Result<Self::Held<'_>>> + Send;

    /// Fails if the lock was not held any more: the figures would be those of a broken run.
    fn release<'lock>(&'lock self, held: Self::Held<'lock>) -> impl Future<Output = Result<()>> + Send;

    /// Returns its fencing token, if the system has one.
    fn token(held: &Self::Held<'_>) -> Option<u64>;
}

/// The lease of every system: Leasehold's default.
pub(crate) const LEASE_MS: u64 = 30_000;

/// How many commands may wait for the connection's task. With the default of 50, a thousand tasks wait for a place in the
/// queue, which costs every system of this crate a fifth of its speed and shows nothing about locks.
const PIPELINE_BUFFER: usize = 16 * 1024;

/// Longer than any pause of a busy machine: a timeout would end the run.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens a connection. Every system that uses this crate gets the same settings.
pub(crate) async fn connection(url: &str) -> Result<MultiplexedConnection> {
    connection_with(url, AsyncConnectionConfig::new()).await
}

async fn connection_with(url: &str, config: AsyncConnectionConfig) -> Result<MultiplexedConnection> {
    let tried = "connecting to the store";
    let info = url.into_connection_info().context(tried)?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let config = config
        .set_pipeline_buffer_size(PIPELINE_BUFFER)
        .set_connection_timeout(Some(ANSWER_TIMEOUT))
        .set_response_timeout(Some(ANSWER_TIMEOUT));
    redis::Client::open(info).context(tried)?.get_multiplexed_async_connection_with_config(&config).await.context(tried)
}

/// Loads a script. Returns its hash, for EVALSHA.
async fn load(connection: &mut MultiplexedConnection, script: &str) -> Result<String> {
    redis::cmd("SCRIPT").arg("LOAD").arg(script).query_async(connection).await.context("loading a script")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_is_its_name_in_json_and_in_arguments() {
        for own in Own::value_variants() {
            assert_eq!(serde_json::to_value(System::Own(*own)).unwrap(), own.name());
            assert_eq!(System::named(own.name()), System::Own(*own));
        }
        let peer = System::named("redisson-fair");
        assert_eq!(peer, System::Peer("redisson-fair".into()));
        let text = serde_json::to_string(&peer).unwrap();
        assert_eq!((text.as_str(), serde_json::from_str::<System>(&text).unwrap()), ("\"redisson-fair\"", peer));
        assert_eq!(serde_json::from_str::<System>("\"floor\"").unwrap(), System::Own(Own::Floor));
    }
}
