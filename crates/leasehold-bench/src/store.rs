//! The store that is measured: the user's, or a redis-server that this program starts.

use std::collections::BTreeMap;

use leasehold_testkit::RedisServer;
use redis::aio::MultiplexedConnection;

use crate::error::{Context, Result};
use crate::system;

/// A store, and a connection for its statistics.
pub(crate) struct Store {
    url: String,
    control: MultiplexedConnection,
    /// It is ended, by its own process ID, when this is dropped.
    own: Option<RedisServer>,
}

impl Store {
    /// Opens the given store, or starts a server.
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

    /// Empties the store between runs, so that no system finds the keys of another. A given store is never emptied: the
    /// keys of a run expire there by themselves.
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

    /// Sends a command that changes nothing, and that a monitor receives.
    pub(crate) async fn echo(&mut self, word: &str) -> Result<()> {
        redis::cmd("ECHO").arg(word).exec_async(&mut self.control).await.context("talking to the store")
    }

    /// Returns its version.
    pub(crate) async fn version(&mut self) -> Result<String> {
        let tried = "asking for the server's version";
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut self.control).await.context(tried)?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("unknown").trim_end().to_owned())
    }

    /// Returns the work of the server so far. Differences are taken, and the statistics are never reset: others may use
    /// them.
    pub(crate) async fn cost(&mut self) -> Result<Cost> {
        Cost::ask(&mut self.control).await
    }
}

/// The work of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// By command. A command that a script calls is counted here, too, and its time again in the script's.
    commands: BTreeMap<String, Calls>,
    /// Processor time of the whole server: commands, and reading and writing the network, which usually takes more.
    pub(crate) cpu_us: u64,
}

/// The number of calls, and the time in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    pub(crate) calls: u64,
    pub(crate) us: u64,
}

const SCRIPTS: [&str; 6] = ["eval", "eval_ro", "evalsha", "evalsha_ro", "fcall", "fcall_ro"];

pub(crate) fn is_script(command: &str) -> bool {
    SCRIPTS.contains(&command)
}

impl Cost {
    /// Returns the work of one server.
    pub(crate) async fn ask(server: &mut MultiplexedConnection) -> Result<Self> {
        let tried = "reading the server's statistics";
        let mut info = redis::cmd("INFO");
        let info: String = info.arg("cpu").arg("commandstats").query_async(server).await.context(tried)?;
        Self::read(&info).context(tried)
    }

    /// Returns the sum of the work of two servers.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        for (command, more) in &other.commands {
            let calls = self.commands.entry(command.clone()).or_default();
            *calls = Calls { calls: calls.calls + more.calls, us: calls.us + more.us };
        }
        self.cpu_us += other.cpu_us;
        self
    }

    fn read(info: &str) -> Result<Self> {
        let lines = || info.lines().filter_map(|line| line.trim_end().split_once(':'));
        let seconds = |wanted: &str| -> Result<f64> {
            let value = lines().find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse().ok());
            value.ok_or_else(|| format!("no {wanted:?}").into())
        };
        let cpu_us = ((seconds("used_cpu_user")? + seconds("used_cpu_sys")?) * 1e6) as u64;
        let commands = lines().filter_map(|(name, fields)| Some((name.strip_prefix("cmdstat_")?, fields)));
        let commands = commands.map(|(name, fields)| Ok((name.to_owned(), Calls::read(fields)?)));
        Ok(Self { commands: commands.collect::<Result<_>>()?, cpu_us })
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        let difference = |(name, now): (&String, &Calls)| {
            let then = before.of(name);
            (name.clone(), Calls { calls: now.calls - then.calls, us: now.us - then.us })
        };
        Self { commands: self.commands.iter().map(difference).collect(), cpu_us: self.cpu_us - before.cpu_us }
    }

    pub(crate) fn of(&self, command: &str) -> Calls {
        self.commands.get(command).copied().unwrap_or_default()
    }

    /// Returns the calls of all scripts; their time includes the commands that they call.
    pub(crate) fn scripts(&self) -> Calls {
        let all = SCRIPTS.map(|script| self.of(script));
        Calls { calls: all.iter().map(|one| one.calls).sum(), us: all.iter().map(|one| one.us).sum() }
    }
}

impl Calls {
    fn read(fields: &str) -> Result<Self> {
        let field = |name: &str| -> Result<u64> {
            let value = fields.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|v| v.parse().ok()).ok_or_else(|| format!("no {name:?} in {fields:?}").into())
        };
        Ok(Self { calls: field("calls")?, us: field("usec")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: &str = "# CPU\r\nused_cpu_sys:1.000005\r\nused_cpu_user:2.500000\r\n";
    const COMMANDS: &str = "# Commandstats\r\n\
        cmdstat_set:calls=5,usec=50,usec_per_call=10.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_client|id:calls=1,usec=1,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_eval:calls=1,usec=5,usec_per_call=5.00,rejected_calls=0,failed_calls=0\r\n\
        cmdstat_evalsha:calls=12,usec=345,usec_per_call=28.75,rejected_calls=0,failed_calls=0\r\n";

    #[test]
    fn commands_and_scripts_are_distinguished() {
        let cost = Cost::read(&format!("{CPU}{COMMANDS}")).unwrap();
        assert_eq!(cost.scripts(), Calls { calls: 13, us: 350 });
        assert_eq!(cost.of("set"), Calls { calls: 5, us: 50 });
        assert_eq!((cost.of("client|id").calls, cost.of("publish").calls, cost.cpu_us), (1, 0, 3_500_005));
    }

    #[test]
    fn earlier_work_is_subtracted() {
        let before = Cost::read(&format!("{CPU}cmdstat_evalsha:calls=2,usec=45\r\n")).unwrap();
        let cost = Cost::read(&format!("{CPU}{COMMANDS}")).unwrap().since(&before);
        assert_eq!((cost.scripts(), cost.cpu_us), (Calls { calls: 11, us: 305 }, 0));
    }

    #[test]
    fn the_work_of_several_servers_is_the_sum() {
        let one = Cost::read(&format!("{CPU}cmdstat_evalsha:calls=2,usec=45\r\n")).unwrap();
        let both = one.and(&Cost::read(&format!("{CPU}{COMMANDS}")).unwrap());
        assert_eq!((both.of("evalsha"), both.of("set").calls), (Calls { calls: 14, us: 390 }, 5));
        assert_eq!(both.cpu_us, 7_000_010);
    }

    #[test]
    fn a_server_that_ran_no_script_has_spent_nothing_on_them() {
        assert_eq!(Cost::read(CPU).unwrap().scripts(), Calls::default());
        assert!(Cost::read(&format!("{CPU}cmdstat_evalsha:calls=many,usec=1\r\n")).is_err());
        assert!(Cost::read(COMMANDS).is_err());
    }
}
