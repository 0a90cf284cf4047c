//! The plan: the settings that a service gets.

use std::process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::locks::LockName;

/// The settings of a service. It reads them from its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The name of this run: no two runs share a stock or a lock.
    pub(crate) name: String,
    pub(crate) lock: LockName,
    /// The host and the port of each server. The first one has the stock.
    pub(crate) servers: Vec<String>,
    /// The number of sales that a service makes at the same time.
    pub(crate) workers: u16,
    pub(crate) lease_s: u64,
    pub(crate) work: Duration,
    /// The time for which a request waits for the lock.
    pub(crate) limit: Duration,
}

impl Plan {
    /// Makes the plan of a run on these servers.
    pub(crate) fn new(args: &Args, servers: Vec<String>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            name: format!("leasehold-shop-{}-{}", process::id(), now.as_micros()),
            lock: args.lock,
            servers,
            workers: args.clients.div_ceil(args.processes),
            lease_s: args.lease.unwrap_or(if args.pause { 1 } else { 10 }),
            work: args.work,
            limit: args.limit,
        }
    }

    /// Returns the URL of the server that has the stock.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.servers[0])
    }

    /// Returns the key of the stock.
    pub(crate) fn stock_key(&self) -> String {
        format!("{}:stock", self.name)
    }

    /// Returns the key of the lock.
    pub(crate) fn lock_key(&self) -> String {
        format!("{}:lock", self.name)
    }
}

/// Returns the host and the port of a URL.
pub(crate) fn address(url: &str) -> Result<String, String> {
    let wrong = || format!("{url} is not redis://HOST[:PORT]: a database, a password and TLS are not supported here");
    let host = url.strip_prefix("redis://").map(|rest| rest.trim_end_matches('/')).ok_or_else(wrong)?;
    match host.is_empty() || host.contains(['/', '@', '?']) {
        true => Err(wrong()),
        false if host.contains(':') => Ok(host.to_owned()),
        false => Ok(format!("{host}:6379")),
    }
}
