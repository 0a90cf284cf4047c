//! The store that is measured: the user's, or a redis-server of this program's own.

use leasehold_testkit::RedisServer;
use redis::aio::MultiplexedConnection;

use crate::error::{Context, Result};
use crate::system;

/// A store, and a connection to ask it what it did.
pub(crate) struct Store {
    url: String,
    control: MultiplexedConnection,
    /// Ended, by its own process id, when this is dropped.
    own: Option<RedisServer>,
}

impl Store {
    /// The given store, or a new server.
    pub(crate) async fn open(given: Option<&str>) -> Result<Self> {
        let (url, own) = match given {
            Some(url) => (url.to_owned(), None),
            None => {
                let server = RedisServer::start();
                (server.url(), Some(server))
            }
        };
        let control = system::connection(&url).await?;
        Ok(Self { url, control, own })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Empties the store between runs, so that no system meets another one's keys; but never somebody else's store, where
    /// what a run leaves ends by itself.
    pub(crate) async fn clear(&mut self) -> Result<()> {
        if self.own.is_none() {
            return Ok(());
        }
        redis::cmd("FLUSHALL").query_async(&mut self.control).await.context("emptying the store")
    }

    /// Reads the counter, and deletes it.
    pub(crate) async fn take_counter(&mut self, key: &str) -> Result<u64> {
        let count: Option<u64> =
            redis::cmd("GETDEL").arg(key).query_async(&mut self.control).await.context("reading the counter")?;
        Ok(count.unwrap_or(0))
    }

    /// What scripts have cost the server so far. Differences are taken, and the statistics never reset: they may be
    /// somebody's.
    pub(crate) async fn script_cost(&mut self) -> Result<ScriptCost> {
        let tried = "reading the server's statistics";
        let info: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut self.control).await.context(tried)?;
        ScriptCost::read(&info).context(tried)
    }
}

/// The server's own time in EVALSHA, commands inside the script included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScriptCost {
    pub(crate) calls: u64,
    pub(crate) time_us: u64,
}

impl ScriptCost {
    fn read(info: &str) -> Result<Self> {
        let Some(fields) = info.lines().find_map(|line| line.trim_end().strip_prefix("cmdstat_evalsha:")) else {
            return Ok(Self::default());
        };
        let number = |name: &str| -> Result<u64> {
            let value = fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|v| v.parse().ok()).ok_or_else(|| format!("no {name:?} in {fields:?}").into())
        };
        Ok(Self { calls: number("calls")?, time_us: number("usec")? })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self { calls: self.calls - before.calls, time_us: self.time_us - before.time_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Commandstats\r\n\
        cmdstat_set:calls=5,usec=50,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_evalsha:calls=12,usec=345,usec_per_call=28.75,rejected_calls=0,failed_calls=0\r\n";

    #[test]
    fn script_time_is_read_and_nothing_else() {
        let cost = ScriptCost::read(INFO).unwrap();
        assert_eq!(cost, ScriptCost { calls: 12, time_us: 345 });
        assert_eq!(cost.since(ScriptCost { calls: 2, time_us: 45 }), ScriptCost { calls: 10, time_us: 300 });
    }

    #[test]
    fn a_server_that_ran_no_script_has_spent_nothing() {
        assert_eq!(ScriptCost::read("# Commandstats\r\n").unwrap(), ScriptCost::default());
        assert!(ScriptCost::read("cmdstat_evalsha:calls=many,usec=1\r\n").is_err());
    }
}
