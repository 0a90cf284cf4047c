//! The problems that the processes solve.

use std::time::Duration;

/// The lease of every lock. The next waiter gets the lock of a killed process when its lease is over.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// A problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Five philosophers, each with a fork at both hands: a multi-lock of two mutexes.
    Philosophers,
    /// Two writers and four readers of one record: a read-write lock.
    Readers,
    /// Three producers and three consumers of a buffer with few places: a mutex and two condition variables.
    Buffer,
    /// Transfers between 100 accounts whose total is constant: multi-locks of two mutexes, and audits that hold all.
    Accounts,
    /// Candidates of which one leads. The leader is killed.
    Leader,
}

/// The process that is killed each second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Anybody,
    /// The one that is inside a section.
    Holder,
}

impl Scene {
    pub(crate) const ALL: [Self; 5] = [Self::Philosophers, Self::Readers, Self::Buffer, Self::Accounts, Self::Leader];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Philosophers => "philosophers",
            Self::Readers => "readers",
            Self::Buffer => "buffer",
            Self::Accounts => "accounts",
            Self::Leader => "leader",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scene| scene.name() == name)
    }

    pub(crate) const fn processes(self) -> usize {
        match self {
            Self::Philosophers | Self::Accounts | Self::Leader => 5,
            Self::Readers | Self::Buffer => 6,
        }
    }

    pub(crate) const fn victim(self) -> Victim {
        match self {
            Self::Leader => Victim::Holder,
            _ => Victim::Anybody,
        }
    }

    /// Returns how many sections each process must have finished after this time. (A leader never finishes: there the
    /// terms that began count.) It is far below what a busy machine achieves: it shows that nobody starves.
    pub(crate) fn least(self, time: Duration) -> u64 {
        let per_minute = match self {
            Self::Leader => 2,
            _ => 30,
        };
        time.as_secs() * per_minute / 60
    }
}
