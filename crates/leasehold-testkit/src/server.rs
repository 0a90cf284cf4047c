//! Real redis-servers, one for each test that needs one.
//!
//! A test that passes because no server was there proves nothing. So a missing `redis-server` is a failure with
//! instructions to install it, never a skip. Each server has its own [port](crate::port), directory and process. The
//! server is ended by process ID, and always by SIGKILL: tests need a server's end to be a crash.
//!
//! # How is the server ended if the test cannot do it?
//!
//! Dropping [`RedisServer`] ends it, also while a test panics. A test process that is killed or aborted drops nothing. So
//! each server has a watchdog: a shell that reads from a pipe whose other end only the test process holds. When the pipe
//! breaks, the watchdog kills the server and removes its directory. The watchdog is a process group of its own, so that
//! Ctrl-C does not end it before its work is done.

mod ordeals;
mod process;
mod tls;

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tempfile::TempDir;

use crate::port::{Port, free_port};
use crate::resp::{Resp, Value};
use crate::shim::{Kind, Shim};
use process::Process;
pub use tls::Clients;
use tls::Tls;

/// How long a server may take until it answers. It takes some 20 ms; a busy machine takes longer.
const READY: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(3);
/// How many ports are tried. A program that ignores our reservations can still take a reserved port.
const STARTS: usize = 5;

/// A redis-server of the test's own, on 127.0.0.1.
#[derive(Debug)]
pub struct RedisServer {
    port: Port,
    tls_port: Option<Port>,
    settings: Builder,
    skew: Option<Shim>,
    slow_fsync: Option<Shim>,
    /// Whether it was a replica and has been promoted.
    is_promoted: AtomicBool,
    process: Mutex<Option<Process>>,
    // Last: the directory is removed when the process has ended.
    dir: TempDir,
}

/// The configuration of a [`RedisServer`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    config: Vec<(String, String)>,
    password: Option<String>,
    primary: Option<(u16, Option<String>)>,
    skew: bool,
    slow_fsync: bool,
    tls: Option<Tls>,
}

impl Builder {
    /// Adds a line of the configuration: any directive that `redis-server` knows.
    #[must_use]
    pub fn config(mut self, directive: &str, value: &str) -> Self {
        self.config.push((directive.into(), value.into()));
        self
    }

    /// Uses an append-only file, with this `appendfsync`: `always`, `everysec` or `no`.
    #[must_use]
    pub fn appendonly(self, fsync: &str) -> Self {
        self.config("appendonly", "yes").config("appendfsync", fsync)
    }

    /// Requires a password, which the server's [`url`](RedisServer::url) then contains.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Limits its memory to this many bytes. A command that needs more gets an error.
    #[must_use]
    pub fn maxmemory(self, bytes: u64) -> Self {
        self.config("maxmemory", &bytes.to_string()).config("maxmemory-policy", "noeviction")
    }

    /// Starts it as a replica. It has started when it is in sync with its primary.
    #[must_use]
    pub fn replica_of(mut self, primary: &RedisServer) -> Self {
        self.primary = Some((primary.port(), primary.settings.password.clone()));
        self
    }

    /// Gives it a wall clock of its own, which [`RedisServer::shift_clock`] moves.
    #[must_use]
    pub fn skew(mut self) -> Self {
        self.skew = true;
        self
    }

    /// Gives it a disk that [`RedisServer::set_slow_fsync`] makes slow.
    #[must_use]
    pub fn slow_fsync(mut self) -> Self {
        self.slow_fsync = true;
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    /// If there is no `redis-server`, or if it does not start: the message has the end of its log.
    #[must_use]
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let dir = tempfile::Builder::new().prefix("leasehold-redis-").tempdir().expect("a temporary directory");
        let skew = self.skew.then(|| Shim::new(Kind::SkewClock, dir.path()));
        let slow_fsync = self.slow_fsync.then(|| Shim::new(Kind::SlowFsync, dir.path()));
        let tls_port = self.tls.as_ref().map(|tls| tls.prepare(dir.path()));
        let (port, process) = (free_port(), Mutex::new(None));
        let is_promoted = AtomicBool::new(false);
        let mut server = RedisServer { port, tls_port, settings: self, skew, slow_fsync, is_promoted, process, dir };
        for _ in 0..STARTS {
            match server.launch() {
                Ok(()) => return server,
                Err(NotStarted::PortTaken) => {
                    server.port = free_port();
                    server.tls_port = server.tls_port.take().map(|_| free_port());
                }
                Err(NotStarted::Broken(why)) => panic!("{why}"),
            }
        }
        panic!("redis-server found {STARTS} ports taken that were free a moment before");
    }
}

enum NotStarted {
    PortTaken,
    Broken(String),
}

impl RedisServer {
    /// Starts a server without persistence, password or limit of its memory.
    #[must_use]
    #[track_caller]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Returns a builder for other configurations.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns its port on 127.0.0.1, which stays the same for as long as this lives, over [`kill`](Self::kill) and
    /// [`restart`](Self::restart).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.settings.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port()),
            None => format!("redis://127.0.0.1:{}", self.port()),
        }
    }

    /// Returns its process ID.
    ///
    /// # Panics
    /// While it is killed.
    #[must_use]
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process().as_ref().expect("the server was killed and not restarted").server.id()
    }

    /// Opens a connection to it, and sends the password if there is one.
    #[must_use]
    #[track_caller]
    pub fn resp(&self) -> Resp {
        let mut resp = Resp::connect(self.port());
        if let Some(password) = &self.settings.password {
            assert_eq!(resp.command(&["AUTH", password]), Value::Status("OK".into()));
        }
        resp
    }

    /// Runs one command on a connection of its own.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&self, arguments: &[A]) -> Value {
        self.resp().command(arguments)
    }

    /// Kills it, and returns when its process has ended. Data that it has not written yet is lost.
    pub fn kill(&self) {
        drop(self.process().take());
    }

    /// Kills it if it runs, and starts it again on the same port: empty, unless it persists.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart(&self) {
        self.kill();
        match self.launch() {
            Ok(()) => {}
            Err(NotStarted::PortTaken) => panic!("port {} was taken while its server was down", self.port()),
            Err(NotStarted::Broken(why)) => panic!("{why}"),
        }
    }

    /// Stops it (SIGSTOP), and returns when it has stopped: connections stay open, and nothing is answered.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        // When `kill` returns, the signal may not be delivered yet. NOWAIT leaves an exit for `Child::wait`.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.rustix_pid()), options).expect("the server is our child");
        assert!(status.is_some_and(|status| status.stopped()), "redis-server ended by itself:\n{}", self.log_end());
    }

    /// Continues it (SIGCONT) after [`stop`](Self::stop).
    #[track_caller]
    pub fn cont(&self) {
        self.signal(Signal::CONT);
    }

    /// Sets its wall clock to this many microseconds before (negative) or after the machine's. It replaces an earlier
    /// shift, takes effect at once, and is kept over a restart.
    ///
    /// # Panics
    /// If it was started without [`Builder::skew`].
    #[track_caller]
    pub fn shift_clock(&self, micros: i64) {
        self.skewed().set_micros(micros);
    }

    /// Returns how many microseconds its wall clock is ahead of the machine's.
    ///
    /// # Panics
    /// If it was started without [`Builder::skew`].
    #[must_use]
    #[track_caller]
    pub fn clock_shift(&self) -> i64 {
        self.skewed().micros()
    }

    /// Returns its working directory, with its log and its persisted data.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the end of its log.
    #[must_use]
    pub fn log_end(&self) -> String {
        let log = fs::read(self.dir().join("redis.log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(4096)..]).into_owned()
    }

    #[track_caller]
    fn skewed(&self) -> &Shim {
        self.skew.as_ref().expect("a server whose clock moves is started with `RedisServer::builder().skew()`")
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        kill_process(self.rustix_pid(), signal).expect("a child that was not waited for can be signalled");
    }

    #[track_caller]
    fn rustix_pid(&self) -> Pid {
        let pid = i32::try_from(self.pid()).expect("process ids are below 2^22");
        Pid::from_raw(pid).expect("the process id of a child is not 0")
    }

    /// A test that panicked while it held this lock has left nothing half done: the process is there, or it is not.
    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launch(&self) -> Result<(), NotStarted> {
        // Each start has its own log: an address that was in use at an earlier start must not count for this one.
        File::create(self.dir().join("redis.log")).expect("our temporary directory can be written");
        let mut process = Process::start(&mut self.arguments(), self.dir());
        self.await_answer(&mut process)?;
        *self.process() = Some(process);
        Ok(())
    }

    fn arguments(&self) -> Command {
        let mut command = Command::new("redis-server");
        command.current_dir(self.dir());
        let mut set = |directive: &str, value: &str| {
            command.arg(format!("--{directive}")).arg(value);
        };
        set("bind", "127.0.0.1");
        set("port", &self.port().to_string());
        set("save", "");
        set("daemonize", "no");
        set("logfile", "redis.log");
        // A value above the kernel's default would be refused with a warning in each log.
        set("tcp-backlog", "128");
        // A joining replica is served at once, not after the five seconds in which others might join too.
        set("repl-diskless-sync-delay", "0");
        if let Some(password) = &self.settings.password {
            set("requirepass", password);
        }
        if let Some((port, password)) = self.settings.primary.as_ref().filter(|_| self.follows()) {
            set("replicaof", &format!("127.0.0.1 {port}"));
            if let Some(password) = password {
                set("masterauth", password);
            }
        }
        if let (Some(tls), Some(port)) = (&self.settings.tls, &self.tls_port) {
            tls.configure(port, &mut set);
        }
        for (directive, value) in &self.settings.config {
            set(directive, value);
        }
        Shim::preload(self.shims(), &mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn await_answer(&self, process: &mut Process) -> Result<(), NotStarted> {
        let deadline = Instant::now() + READY;
        loop {
            let late = Instant::now() >= deadline;
            match self.probe(process.server.id()) {
                Ok(Probe::Ready) => return Ok(()),
                Ok(Probe::Stranger) => return Err(NotStarted::PortTaken),
                Ok(Probe::Loading) | Err(_) => {}
            }
            if let Some(status) = process.server.try_wait().expect("the server is our child") {
                let log = self.log_end();
                return Err(match log.contains("Address already in use") {
                    true => NotStarted::PortTaken,
                    false => NotStarted::Broken(format!("redis-server ended at once ({status}):\n{log}")),
                });
            }
            if late {
                return Err(NotStarted::Broken(format!("no answer in {READY:?}:\n{}", self.log_end())));
            }
            thread::sleep(POLL);
        }
    }

    /// Checks that our server answers at our port: another one may have been faster, and would answer just as well.
    fn probe(&self, pid: u32) -> io::Result<Probe> {
        let mut resp = Resp::try_connect(self.port(), Duration::from_secs(1))?;
        if let Some(password) = &self.settings.password {
            resp.try_command(&["AUTH", password])?;
        }
        let ours = format!("process_id:{pid}\r\n");
        match resp.try_command(&["INFO", "server"])? {
            Value::Bulk(info) if String::from_utf8_lossy(&info).contains(&ours) => {}
            _ => return Ok(Probe::Stranger),
        }
        if matches!(resp.try_command(&["PING"])?, Value::Error(error) if error.starts_with("LOADING")) {
            return Ok(Probe::Loading);
        }
        if self.follows() {
            let info = resp.try_command(&["INFO", "replication"])?;
            return Ok(match info.text().is_some_and(|text| text.contains("master_link_status:up")) {
                true => Probe::Ready,
                false => Probe::Loading,
            });
        }
        Ok(Probe::Ready)
    }
}

enum Probe {
    Ready,
    Loading,
    Stranger,
}
