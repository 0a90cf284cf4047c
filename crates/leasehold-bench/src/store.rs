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

    /// What the server has done so far. Differences are taken, and the statistics never reset: they may be somebody's.
    pub(crate) async fn cost(&mut self) -> Result<Cost> {
        let tried = "reading the server's statistics";
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("cpu").arg("commandstats").query_async(&mut self.control).await.context(tried)?;
        Cost::read(&info).context(tried)
    }
}

/// What the server has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Calls of EVALSHA.
    pub(crate) scripts: u64,
    /// Time in them, commands inside a script included.
    pub(crate) scripts_us: u64,
    /// Processor time of the whole server: scripts, and reading and writing the network, which is mostly more.
    pub(crate) cpu_us: u64,
}

impl Cost {
    fn read(info: &str) -> Result<Self> {
        let line = |name: &str| info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'));
        let seconds = |name: &str| -> Result<f64> {
            line(name).and_then(|value| value.parse().ok()).ok_or_else(|| format!("no {name:?}").into())
        };
        let cpu_us = ((seconds("used_cpu_user")? + seconds("used_cpu_sys")?) * 1e6) as u64;
        let Some(fields) = line("cmdstat_evalsha") else { return Ok(Self { cpu_us, ..Self::default() }) };
        let field = |name: &str| -> Result<u64> {
            let value = fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|v| v.parse().ok()).ok_or_else(|| format!("no {name:?} in {fields:?}").into())
        };
        Ok(Self { scripts: field("calls")?, scripts_us: field("usec")?, cpu_us })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            scripts_us: self.scripts_us - before.scripts_us,
            cpu_us: self.cpu_us - before.cpu_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: &str = "# CPU\r\nused_cpu_sys:1.000005\r\nused_cpu_user:2.500000\r\n";
    const SCRIPTS: &str = "# Commandstats\r\n\
        cmdstat_set:calls=5,usec=50,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_evalsha:calls=12,usec=345,usec_per_call=28.75,rejected_calls=0,failed_calls=0\r\n";

    #[test]
    fn script_time_is_read_and_nothing_else() {
        let cost = Cost::read(&format!("{CPU}{SCRIPTS}")).unwrap();
        assert_eq!(cost, Cost { scripts: 12, scripts_us: 345, cpu_us: 3_500_005 });
        let before = Cost { scripts: 2, scripts_us: 45, cpu_us: 500_000 };
        assert_eq!(cost.since(before), Cost { scripts: 10, scripts_us: 300, cpu_us: 3_000_005 });
    }

    #[test]
    fn a_server_that_ran_no_script_has_spent_nothing_on_them() {
        assert_eq!(Cost::read(CPU).unwrap(), Cost { scripts: 0, scripts_us: 0, cpu_us: 3_500_005 });
        assert!(Cost::read(&format!("{CPU}cmdstat_evalsha:calls=many,usec=1\r\n")).is_err());
        assert!(Cost::read(SCRIPTS).is_err());
    }
}
