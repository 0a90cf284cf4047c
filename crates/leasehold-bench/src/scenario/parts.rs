//! The parts of a case that are words and not numbers.

use serde::{Deserialize, Serialize};

/// The kind of lock that is acquired and released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Primitive {
    #[default]
    Mutex,
    Rwlock,
    Semaphore,
}

/// The names that the tasks lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NameUse {
    /// Each task has a name of its own for all pairs.
    Own,
    /// All tasks have the same name.
    Shared,
    /// Each pair has a name that was never locked before.
    New,
    /// Each pair has a name that was locked and released before.
    Used,
}

impl NameUse {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Shared => "shared",
            Self::New => "new",
            Self::Used => "used",
        }
    }
}

/// How a holder ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ending {
    /// By SIGKILL: no message is sent.
    Killed,
    /// It releases.
    Released,
}

/// The work while the lock is held, where it is not the usual work of the scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Inside {
    /// No command and no computation.
    Nothing,
}
