//! A command that shows when it is alive: this test binary runs itself for one test, which returns at once in other
//! runs. It writes the time to a file again and again until it is ended.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_testkit::{boottime_us, wait_until};

use crate::bench::{KillState, kill_state};

const FILE: &str = "LEASEHOLD_WORKER_FILE";
/// The longest life of a worker that nothing ends.
const LIFE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "started by other tests"]
fn worker() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    let end_us = boottime_us() + u64::try_from(LIFE.as_micros()).unwrap();
    while boottime_us() < end_us {
        let line = format!("{} {} {}\n", boottime_us(), wall_us(), std::process::id());
        file.write_all(line.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn wall_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// The file that a worker writes.
pub(crate) struct Life(PathBuf);

/// A moment at which it was alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sign {
    pub(crate) boot_us: u64,
    pub(crate) wall_us: u64,
    pub(crate) pid: i32,
}

impl Life {
    pub(crate) fn new(dir: &Path) -> Self {
        Self(dir.join("life"))
    }

    /// Returns the command line of a worker that dies of a TERM.
    pub(crate) fn command(&self) -> Vec<String> {
        self.shell(&format!("exec {}", Self::program()))
    }

    /// Returns that of a worker that ignores TERM.
    pub(crate) fn stubborn(&self) -> Vec<String> {
        self.shell(&format!("trap '' TERM; exec {}", Self::program()))
    }

    /// Returns that of a worker that leads a group of its own, like an interactive shell.
    pub(crate) fn leading(&self) -> Vec<String> {
        let mut command = vec!["perl".to_owned(), "-e".into(), "setpgrp(0, 0); exec @ARGV".into()];
        command.extend(self.stubborn());
        command
    }

    /// Returns that of a worker that has closed every descriptor that it does not know.
    pub(crate) fn closing(&self) -> Vec<String> {
        let close = "for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -gt 2 ] && eval \"exec $fd>&-\"; done; ";
        let script = format!("{close} trap '' TERM; exec {}", Self::program());
        ["env", &format!("{FILE}={}", self.0.display()), "bash", "-c", &script].map(str::to_owned).into()
    }

    /// Returns that of a command that leaves a worker behind, and ends.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        self.shell(&format!("trap '' TERM; {} & exit 5", Self::program()))
    }

    fn program() -> String {
        let program = std::env::current_exe().unwrap();
        format!("{} --ignored --exact worker::worker >/dev/null", program.display())
    }

    fn shell(&self, script: &str) -> Vec<String> {
        ["env", &format!("{FILE}={}", self.0.display()), "sh", "-c", script].map(str::to_owned).into()
    }

    pub(crate) fn has_begun(&self) -> Sign {
        wait_until("the worker has begun", Duration::from_secs(20), || self.last().is_some());
        self.last().expect("it has begun")
    }

    pub(crate) fn last(&self) -> Option<Sign> {
        let text = fs::read_to_string(&self.0).ok()?;
        let whole = &text[..=text.rfind('\n')?];
        let mut words = whole.lines().last()?.split(' ').map(|word| word.parse().unwrap());
        let (boot_us, wall_us, pid): (u64, u64, u64) = (words.next()?, words.next()?, words.next()?);
        Some(Sign { boot_us, wall_us, pid: i32::try_from(pid).unwrap() })
    }

    /// Asserts that it has ended, and had ended before this grant: by the clock that all processes share, and by the
    /// clock of the store, which is in the token.
    #[track_caller]
    pub(crate) fn has_ended_before(&self, granted_us: u64, token: u64) -> Sign {
        let last = self.last().expect("it had begun");
        assert!(last.boot_us < granted_us, "{last:?} is alive after {granted_us}");
        assert!(last.wall_us < token, "{last:?} is alive after the grant {token}");
        let ended = kill_state(last.pid);
        assert_ne!(ended, KillState::None, "{last:?} can run after {granted_us}, at {}", boottime_us());
        last
    }

    pub(crate) fn touch(&self) {
        File::create(&self.0).unwrap();
    }
}
