//! The problems that the processes solve.

use std::time::Duration;

/// The lease of every lock. The next waiter gets the lock of a killed process when its lease is over.
pub(crate) const LEASE: Duration = Duration::from_secs(1);
/// The time in which a waiter must confirm a grant that it was pushed. If it dies, the next one is granted after that.
const CLAIM: Duration = Duration::from_secs(1);
/// The time that messages, the start of a process and a busy machine may take.
const SLACK: Duration = Duration::from_secs(2);
/// How long a waiter may wait while no process dies.
pub(crate) const WAIT_MAX: Duration = LEASE.saturating_add(CLAIM).saturating_add(SLACK);

/// A problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Six processes count in one file: a mutex.
    Counter,
    /// Five philosophers, each of whom needs the two forks beside it: a multi-lock of two mutexes.
    Philosophers,
    /// Two writers and four readers of one record: a read-write lock.
    Readers,
    /// Six processes that use one or two of three machines: a semaphore.
    Machines,
    /// Three producers and three consumers of a buffer with few places: a mutex and two condition variables.
    Buffer,
    /// Transfers between 100 accounts whose total is constant: multi-locks of two mutexes, and audits that hold all.
    Accounts,
    /// Jobs of six parts, and nobody begins the next job before all parts of this one are done: latches.
    Jobs,
    /// Rounds of five processes that begin each round together: a barrier.
    Rounds,
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
    pub(crate) const ALL: [Self; 9] = [
        Self::Counter,
        Self::Philosophers,
        Self::Readers,
        Self::Machines,
        Self::Buffer,
        Self::Accounts,
        Self::Jobs,
        Self::Rounds,
        Self::Leader,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Philosophers => "philosophers",
            Self::Readers => "readers",
            Self::Machines => "machines",
            Self::Buffer => "buffer",
            Self::Accounts => "accounts",
            Self::Jobs => "jobs",
            Self::Rounds => "rounds",
            Self::Leader => "leader",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scene| scene.name() == name)
    }

    pub(crate) const fn processes(self) -> usize {
        match self {
            Self::Philosophers | Self::Accounts | Self::Rounds | Self::Leader => 5,
            Self::Counter | Self::Readers | Self::Machines | Self::Buffer | Self::Jobs => 6,
        }
    }

    pub(crate) const fn victim(self) -> Victim {
        match self {
            Self::Leader => Victim::Holder,
            _ => Victim::Anybody,
        }
    }

    /// Whether a process may wait for what a dead process does after its restart, and not only for a lock.
    pub(crate) const fn needs_all(self) -> bool {
        matches!(self, Self::Buffer | Self::Jobs | Self::Rounds)
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
