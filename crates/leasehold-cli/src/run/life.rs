//! The file descriptor that shows that a holder lives, if the store has one (P26). It stays open in the command and in the
//! minder, so that no other client gets the lock while one of them runs, even if the supervisor is gone.

use std::os::fd::OwnedFd;

use leasehold::Leasehold;
use rustix::io::{FdFlags, fcntl_setfd};

pub(crate) struct Life(Option<OwnedFd>);

impl Life {
    pub(crate) fn of(client: &Leasehold) -> Self {
        Self(client.life())
    }

    /// Lets only the process that `start` starts inherit the descriptor. A command may close all descriptors that it does
    /// not know; the minder keeps this one open until the group is gone.
    pub(crate) fn lend<T>(&self, start: impl FnOnce() -> T) -> T {
        self.set(FdFlags::empty());
        let started = start();
        self.set(FdFlags::CLOEXEC);
        started
    }

    fn set(&self, flags: FdFlags) {
        if let Some(life) = &self.0 {
            fcntl_setfd(life, flags).expect("a descriptor of ours has flags");
        }
    }
}
