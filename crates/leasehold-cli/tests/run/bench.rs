//! A server, a directory, and runs.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::{Guard, Leasehold};
use leasehold_testkit::process::{self, Process};
use leasehold_testkit::{FaultProxy, RedisServer, boottime_us, wait_until};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::worker::Life;

pub(crate) const NAME: &str = "job";
/// The limit for events that must happen, but whose time does not matter.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// The promise: after a holder dies, the next one holds the lock within the lease plus this.
pub(crate) const TAKEOVER_SLACK: Duration = Duration::from_secs(1);

pub(crate) struct Bench {
    pub(crate) server: RedisServer,
    pub(crate) proxy: FaultProxy,
    pub(crate) dir: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.port());
        Self { server, proxy, dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn life(&self) -> Life {
        Life::new(self.dir.path())
    }

    /// Starts `leasehold run`, with a store URL that bypasses the proxy.
    pub(crate) fn run(&self, options: &[&str], command: &[impl AsRef<str>]) -> Run {
        Run::start(&self.server.url(), options, command)
    }

    /// Starts `leasehold run`, with a store URL through the proxy.
    pub(crate) fn run_through(&self, options: &[&str], command: &[impl AsRef<str>]) -> Run {
        Run::start(&self.proxy.url(), options, command)
    }

    /// Connects a client of the same locks.
    pub(crate) async fn client(&self) -> Leasehold {
        Leasehold::connect(&self.server.url()).await.unwrap()
    }

    /// Waits for the lock, and returns when it was granted.
    pub(crate) async fn next(&self) -> (Guard, u64) {
        let client = self.client().await;
        let mutex = client.mutex(NAME);
        let guard = tokio::time::timeout(Duration::from_secs(60), mutex.lock()).await.expect("the lock").unwrap();
        let granted_us = boottime_us();
        (guard, granted_us)
    }

    /// Waits until the queue has this many waiters.
    pub(crate) async fn waiters(&self, count: usize) {
        let (client, begun) = (self.client().await, std::time::Instant::now());
        while client.mutex(NAME).inspect().await.unwrap().waiters != count {
            assert!(begun.elapsed() < LONG, "there are never {count} waiters");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Returns the command, without variables from the environment of the tests.
pub(crate) fn leasehold() -> Command {
    process::leasehold(env!("CARGO_BIN_EXE_leasehold"))
}

/// A `leasehold run`. Dropping it kills the supervisor, and with that its command.
pub(crate) struct Run {
    process: Process,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    pub(crate) fn start(url: &str, options: &[&str], command: &[impl AsRef<str>]) -> Self {
        let mut run = leasehold();
        run.args(["run", "--store", url, NAME]).args(options).arg("--").args(command.iter().map(AsRef::as_ref));
        Self::of(&mut run)
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        Self { process: Process::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped())) }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.process.pid()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.process.stdin.as_mut().expect("piped").write_all(text.as_bytes()).unwrap();
    }

    /// Reads the output through the end of this word.
    pub(crate) fn read_to(&mut self, word: &str) -> String {
        process::read_to(self.process.stdout.as_mut().expect("piped"), word)
    }

    /// Reads a line of standard error.
    pub(crate) fn read_error_line(&mut self) -> String {
        process::read_to(self.process.stderr.as_mut().expect("piped"), "\n")
    }

    pub(crate) fn ends(self) -> Ended {
        let output = self.process.output(Duration::from_secs(60));
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Returns its minder, once there is one other than `but`.
    pub(crate) fn minder(&self, but: Option<Pid>) -> Pid {
        let mut found = None;
        wait_until("there is a minder", LONG, || {
            found = children(self.pid()).into_iter().find(|child| Some(*child) != but && is_minder(*child));
            found.is_some()
        });
        found.expect("found")
    }
}

/// Returns the children of a process.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get().to_string();
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = processes.filter_map(|name| name.parse().ok());
    pids.filter(|pid| field(*pid, 1).as_deref() == Some(&parent)).filter_map(Pid::from_raw).collect()
}

/// Returns a field of /proc/PID/stat, counted after the name: state, parent, group, …
pub(crate) fn field(pid: i32, at: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(at).map(str::to_owned)
}

pub(crate) fn is_minder(pid: Pid) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"minder")
}

/// Whether a process exists and has not ended.
pub(crate) fn is_alive(pid: Pid) -> bool {
    field(pid.as_raw_nonzero().get(), 0).is_some_and(|state| state != "Z" && state != "X")
}

/// How far a KILL of a process has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillState {
    /// The process may run code of its own.
    None,
    /// The process runs no code of its own any more. It has not ended: it may wait for a processor or for a disk.
    Pending,
    Ended,
}

pub(crate) fn kill_state(pid: i32) -> KillState {
    const KILL: u64 = 1 << (9 - 1);
    const EXITING: u64 = 0x4;
    let Some(state) = field(pid, 0).filter(|state| state != "Z" && state != "X") else { return KillState::Ended };
    let flags: u64 = field(pid, 6).and_then(|flags| flags.parse().ok()).unwrap_or_default();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().filter_map(|line| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    });
    let is_killed = pending.fold(0, |all, mask| all | mask) & KILL != 0 || flags & EXITING != 0;
    println!("process {pid} is in state {state}, with flags {flags:#x}: killed {is_killed}");
    match is_killed {
        true => KillState::Pending,
        // It may have ended between the two reads.
        false if !is_alive(Pid::from_raw(pid).expect("a process")) => KillState::Ended,
        false => KillState::None,
    }
}
