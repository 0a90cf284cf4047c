//! Other faults of a server, beside being killed and stopped: a slow disk, a lost disk, and promotion.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::RedisServer;
use crate::resp::Value;
use crate::shim::Shim;

impl RedisServer {
    /// Makes every flush to its disk take this much longer from now on.
    ///
    /// # Panics
    /// If it was started without [`Builder::slow_fsync`](super::Builder::slow_fsync).
    #[track_caller]
    pub fn set_slow_fsync(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).expect("less than an age");
        self.slow_fsync.as_ref().expect("a server started with `slow_fsync()`").set_micros(micros);
    }

    /// Kills it if it runs, and starts it again without its persisted data: its disk was lost.
    ///
    /// # Panics
    /// If it does not start.
    #[track_caller]
    pub fn restart_empty(&self) {
        self.kill();
        for name in ["appendonlydir", "dump.rdb"] {
            let path = self.dir().join(name);
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => panic!("{} cannot be removed: {error}", path.display()),
            }
        }
        self.restart();
    }

    /// Makes a replica an independent primary, which it stays over a restart. It gets nothing more from its old primary.
    ///
    /// # Panics
    /// If it does not obey.
    #[track_caller]
    pub fn promote(&self) {
        self.is_promoted.store(true, Ordering::Relaxed);
        assert_eq!(self.command(&["REPLICAOF", "NO", "ONE"]), Value::Status("OK".into()));
    }

    /// Returns whether it still follows a primary.
    pub(super) fn follows(&self) -> bool {
        self.settings.primary.is_some() && !self.is_promoted.load(Ordering::Relaxed)
    }

    pub(super) fn shims(&self) -> impl Iterator<Item = &Shim> {
        self.skew.iter().chain(&self.slow_fsync)
    }
}
