//! The names of the locks.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A lock: a specimen of this crate, or Leasehold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LockName {
    /// No lock
    None,
    /// A lock in the memory of each process
    Local,
    /// SETNX and DEL, without an expiry
    #[value(name = "setnx")]
    SetNx,
    /// SETNX, then EXPIRE
    #[value(name = "setnx-expire")]
    SetNxExpire,
    /// Timestamps of the clients, take-over by GETSET
    #[value(name = "getset")]
    GetSet,
    /// Timestamps of the clients, take-over by DEL
    DeleteExpired,
    /// SET NX EX, and DEL
    SetEx,
    /// SET NX EX with an owner; GET, compare and DEL
    GetDel,
    /// SET NX EX with an owner, and a script that compares and deletes
    CompareAndDelete,
    /// A hash with owner and count, whose owner is not unique
    Reentrant,
    /// Redisson's lock, with a watchdog
    Redisson,
    /// compare-and-delete with a guard thread that renews late
    GuardThread,
    /// Redlock on three servers
    Redlock,
    /// A lock on each of three servers that reply
    MultiLock,
    /// compare-and-delete with random delays
    RandomDelay,
    /// Leasehold, with a stock that checks its tokens
    Leasehold,
}

impl LockName {
    /// Returns the number of servers that the lock needs.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Redlock | Self::MultiLock => 3,
            _ => 1,
        }
    }

    /// Returns the name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
