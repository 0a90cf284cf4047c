//! The descriptor that says that a holder lives, where a store has one (P26): it stays open in the command and in the
//! minder, so that nobody gets the lock while one of them is there, whatever became of us.

use std::os::fd::OwnedFd;

use leasehold::Leasehold;
use rustix::io::{FdFlags, fcntl_setfd};

pub(crate) struct Life(Option<OwnedFd>);

impl Life {
    pub(crate) fn of(client: &Leasehold) -> Self {
        Self(client.life())
    }

    /// Whoever is started in here inherits it, and nobody else does. A command that closes what it does not know closes
    /// it, too: the minder, which goes when the group has gone, keeps it.
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
