//! A real redis-server that belongs to one run.
//!
//! It listens on a Unix socket in a temporary directory, so that no two runs share a port. It saves nothing. A shell waits
//! beside it, and kills it when this process ends, however that happens.

use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::scratch;
use super::shim::SkewClock;

/// Starts the server, waits for the end of the input, and kills the server. A terminal sends its signals to the shell too,
/// which must outlive this process.
const KEEPER: &str = r#"trap '' HUP INT QUIT TERM; redis-server "$@" >/dev/null 2>&1 & read -r _
kill -9 $! 2>/dev/null; wait"#;
/// The time in which a server must answer after its start.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// The number of further tries if a server with a port does not start.
const PORT_RETRIES: usize = 3;

/// A redis-server.
#[derive(Debug)]
pub struct Server {
    dir: TempDir,
    port: Option<u16>,
    clock: Option<SkewClock>,
    keeper: Option<Child>,
}

/// Returns the version of the redis-server in the PATH.
///
/// # Errors
/// If there is none.
pub fn version() -> io::Result<String> {
    let output = Command::new("redis-server").arg("--version").output().map_err(|error| {
        io::Error::other(format!("cannot run redis-server: {error}; install it (Debian: apt-get install redis-server)"))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    version.map(str::to_owned).ok_or_else(|| io::Error::other(format!("redis-server has no version: {text}")))
}

/// The equipment of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Equipment {
    /// Whether the server has a TCP port, so that a replica can connect to it.
    pub(super) has_port: bool,
    /// Whether its clock can be moved.
    pub(super) has_clock: bool,
}

impl Server {
    /// Starts a server that listens on a free port of the loopback address.
    ///
    /// # Errors
    /// If the server does not start.
    pub fn with_port() -> io::Result<Self> {
        Self::start(Equipment { has_port: true, has_clock: false })
    }

    /// Returns the host and the port, if the server has a port.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        self.port.map(|port| format!("127.0.0.1:{port}"))
    }

    /// Starts a server.
    ///
    /// # Errors
    /// If the server does not start.
    pub(super) fn start(equipment: Equipment) -> io::Result<Self> {
        // Between the choice of a port and the start of the server, another program can take the port.
        let mut last = Self::try_start(equipment);
        for _ in 0..PORT_RETRIES {
            if last.is_ok() || !equipment.has_port {
                break;
            }
            last = Self::try_start(equipment);
        }
        last
    }

    fn try_start(equipment: Equipment) -> io::Result<Self> {
        let dir = scratch::dir()?;
        let clock = equipment.has_clock.then(|| SkewClock::new(dir.path())).transpose()?;
        let port = equipment.has_port.then(free_port).transpose()?;
        let mut server = Self { dir, port, clock, keeper: None };
        server.restart()?;
        Ok(server)
    }

    /// Starts the server again. It has forgotten everything.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.stop();
        let port = self.port.unwrap_or(0).to_string();
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]);
        command.args(["--save", "", "--appendonly", "no", "--port", &port]);
        command.args(["--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0", "--unixsocket"]).arg(self.socket());
        command.arg("--dir").arg(self.dir.path());
        if let Some(clock) = &self.clock {
            clock.preload(&mut command);
        }
        self.keeper = Some(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| scratch::no_shell(&error))?,
        );
        let began = Instant::now();
        while self.command(&["PING"]).is_err() {
            if began.elapsed() > STARTS_WITHIN {
                return Err(io::Error::other("redis-server does not answer; is it installed?"));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Kills the server.
    pub(super) fn stop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            let _status = keeper.wait();
            let _gone = std::fs::remove_file(self.socket());
        }
    }

    /// Sets the clock of the server forward.
    pub(super) fn jump(&self, by: Duration) -> io::Result<()> {
        self.clock.as_ref().map_or(Ok(()), |clock| clock.advance(by))
    }

    /// Sets the clock of the server back.
    pub(super) fn set_back(&self, by: Duration) -> io::Result<()> {
        self.clock.as_ref().map_or(Ok(()), |clock| clock.set_back(by))
    }

    /// Stops the process of the server for a while. Returns it, for [`resume`](Self::resume).
    pub(super) fn pause(&self) -> io::Result<Pid> {
        let Value::BulkString(info) = self.command(&["INFO", "server"])? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let info = String::from_utf8_lossy(&info);
        let id = info.lines().find_map(|line| line.strip_prefix("process_id:")?.trim().parse().ok());
        let id = id.and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        kill_process(id, Signal::STOP)?;
        Ok(id)
    }

    /// Lets the process of a server go on.
    pub(super) fn resume(id: Pid) -> io::Result<()> {
        Ok(kill_process(id, Signal::CONT)?)
    }

    /// Makes the server a replica of another one, and waits until it has the data.
    pub(super) fn replicate(&self, primary: &Self) -> io::Result<()> {
        let port = primary.port.map_or_else(String::new, |port| port.to_string());
        self.command(&["REPLICAOF", "127.0.0.1", &port])?;
        let began = Instant::now();
        while !format!("{:?}", self.command(&["INFO", "replication"])?).contains("master_link_status:up") {
            if began.elapsed() > STARTS_WITHIN {
                return Err(io::Error::other("the replica does not reach its primary"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Makes the replica a primary.
    pub(super) fn cut_replica(&self) -> io::Result<()> {
        self.command(&["REPLICAOF", "NO", "ONE"]).map(drop)
    }

    /// Returns the directory of the server, which goes with it.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the path of the socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// Sends a command outside of any schedule.
    pub(super) fn command(&self, words: &[&str]) -> io::Result<Value> {
        let mut stream = UnixStream::connect(self.socket())?;
        stream.set_read_timeout(Some(STARTS_WITHIN))?;
        stream.write_all(&packed(words))?;
        let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
        loop {
            // A signal interrupts a read that has a time limit: a worker of a trial may have ended just now.
            let count = match stream.read(&mut part) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            bytes.extend_from_slice(&part[..count]);
            if let Ok(value) = redis::parse_redis_value(&bytes) {
                return Ok(value);
            }
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Writes a command as the server reads it.
pub(super) fn packed(words: &[impl AsRef<str>]) -> Vec<u8> {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command.get_packed_command()
}

/// Returns a port at which nothing listens now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keeper_outlives_a_signal_to_its_group() {
        let mut server = Server::start(Equipment::default()).unwrap();
        let keeper = server.keeper.as_mut().unwrap();
        let id = Pid::from_raw(keeper.id().cast_signed()).unwrap();
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
            kill_process(id, signal).unwrap();
        }
        thread::sleep(Duration::from_millis(100));
        assert_eq!(keeper.try_wait().unwrap(), None);
    }
}
