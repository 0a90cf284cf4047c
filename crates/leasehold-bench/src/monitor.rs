//! The cost of a lock on the server, beside its scripts.
//!
//! The server counts a command that a script calls like any other command, and counts its time again as part of the
//! script's. So the statistics do not show the time of the commands that a client sends *directly*. A short run under
//! MONITOR, which shows the difference but slows everything down, measures which share of each command's calls was
//! direct. Runs that count have no monitor, and only use the shares. Our own systems send scripts and nothing else.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use redis::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::{Context, Result};
use crate::store::{Cost, Store, is_script};

/// How far a monitor may lag behind.
const LAG_LIMIT: Duration = Duration::from_secs(30);

/// For each command, the share of calls that a client sent for its lock: not those of a script, and not those of a
/// section.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Direct(BTreeMap<String, f64>);

impl Direct {
    /// Returns the total time of commands that clients sent for their locks.
    pub(crate) fn server_us(&self, cost: &Cost) -> f64 {
        let beside: f64 = self.0.iter().map(|(command, share)| cost.of(command).us as f64 * share).sum();
        cost.scripts().us as f64 + beside
    }
}

/// A connection that receives every command, on a thread of its own. It slows the server down until it is ended.
pub(crate) struct Monitor {
    last: String,
    result: oneshot::Receiver<Result<Direct>>,
}

impl Monitor {
    /// Records the commands from now on. A command that names `counter` belongs to the section and not to the lock.
    pub(crate) async fn start(url: &str, counter: String) -> Result<Self> {
        let client = redis::Client::open(url).context("a monitor")?;
        let last = format!("{counter}:end");
        let (listens, is_listening) = oneshot::channel();
        let (sender, result) = oneshot::channel();
        let until = last.clone();
        thread::spawn(move || {
            let connect = || -> redis::RedisResult<redis::Connection> {
                let mut connection = client.get_connection()?;
                redis::cmd("MONITOR").exec(&mut connection)?;
                Ok(connection)
            };
            // Nobody waits for an answer if the run was aborted.
            match connect().context("a monitor") {
                Err(error) => drop(listens.send(Err(error))),
                Ok(connection) => {
                    let _ = listens.send(Ok(()));
                    let _ = sender.send(collect(connection, counter, &until));
                }
            }
        });
        is_listening.await.context("a monitor")??;
        Ok(Self { last, result })
    }

    /// Returns the recorded commands. All clients must have stopped.
    pub(crate) async fn end(self, store: &mut Store) -> Result<Direct> {
        store.echo(&self.last).await?;
        timeout(LAG_LIMIT, self.result).await.context("a monitor")?.context("a monitor")?
    }
}

fn collect(mut connection: redis::Connection, counter: String, until: &str) -> Result<Direct> {
    let mut seen = Seen { counter, ..Seen::default() };
    loop {
        match connection.recv_response().context("a monitor")? {
            Value::SimpleString(line) if line.contains(until) => return Ok(seen.shares()),
            Value::SimpleString(line) => seen.note(&line),
            _ => {}
        }
    }
}

/// Calls by command: the direct ones for a lock, and all.
#[derive(Default)]
struct Seen {
    counter: String,
    calls: BTreeMap<String, (u64, u64)>,
}

impl Seen {
    /// `1700000000.123456 [0 127.0.0.1:60866] "get" "key"`, or with `lua` for the address.
    fn note(&mut self, line: &str) {
        let Some((source, command)) = line.split_once("] \"") else { return };
        let name = command.split('"').next().unwrap_or_default().to_lowercase();
        if is_script(&name) {
            return;
        }
        let (direct, all) = self.calls.entry(name).or_default();
        *all += 1;
        if !source.ends_with(" lua") && !command.contains(&self.counter) {
            *direct += 1;
        }
    }

    fn shares(self) -> Direct {
        let share = |(direct, all): (u64, u64)| direct as f64 / all as f64;
        Direct(self.calls.into_iter().map(|(name, calls)| (name, share(calls))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_scripts_and_of_clients_differ() {
        let mut seen = Seen { counter: "bench:x:counter".into(), ..Seen::default() };
        for line in [
            r#"1.1 [0 127.0.0.1:6] "EVALSHA" "abc" "1" "k""#,
            r#"1.1 [0 lua] "del" "k""#,
            r#"1.1 [0 lua] "del" "l""#,
            r#"1.1 [0 lua] "publish" "c" "] \"get\"""#,
            r#"1.1 [0 127.0.0.1:6] "DEL" "k:latch""#,
            r#"1.1 [0 unix:/tmp/a] "set" "k" "v""#,
            r#"1.1 [0 127.0.0.1:6] "get" "bench:x:counter""#,
            r#"1.1 [0 127.0.0.1:6] "set" "bench:x:counter" "7""#,
        ] {
            seen.note(line);
        }
        let wanted = [("del", 1.0 / 3.0), ("get", 0.0), ("publish", 0.0), ("set", 0.5)];
        assert_eq!(seen.shares().0, wanted.map(|(name, share)| (name.to_owned(), share)).into());
    }
}
