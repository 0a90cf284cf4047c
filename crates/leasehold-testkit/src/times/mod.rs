//! How long each public call takes, and what it may take: a table of calls × places × stores.
//!
//! The crate's front page gives a bound for every call in the table *Time*. A bound holds wherever the call is made from,
//! and whatever became of the runtime in which the client was connected. Nobody notices a call that breaks its bound
//! there, unless a test makes that call in that place. So the cells here are the product of enums, like those of the
//! conformance suite: a new call, place or store does not compile until somebody has given its bound.
//!
//! | part | says |
//! |---|---|
//! | [`Call`] | each public call, and the state of the lock that it finds |
//! | [`Place`] | what the caller stands in, and what became of the runtime that connected |
//! | [`Flavor`] | what kind of runtime connected |
//! | [`Weather`] | whether the store answers |
//! | `bounds` | the documented bound of each cell, and the slack of a machine that has other work |
//! | `homes` | the runtimes around a call |
//! | `party` | a client by either face |
//! | `acts` | prepares a call, makes it, and tidies up behind it |
//! | `cell` | a cell: it connects, and plays its rounds |
//! | `playing` | a cell on a thread of its own, with a hard limit: a call that hangs does not hang the table |
//! | `table` | all cells of a store, and their Markdown |
//!
//! A healthy store is asked for each call six times in one place. The first call may find that a connection has to be
//! opened anew. The best of the other five shows what every later call costs, on a machine that is busy as well.
//!
//! A store is silent while its server is stopped (SIGSTOP), or while somebody else has the directory's turn.

mod acts;
mod bounds;
mod cell;
mod homes;
mod party;
mod playing;
mod table;

use std::fmt;

pub use crate::conformance::{Backend, Face};
pub use bounds::{Bound, bound};
pub use cell::Cell;
pub(crate) use cell::Ground;
pub use playing::Measured;
pub(crate) use table::play;
pub use table::{Share, Table, measure};

dimension! {
    /// A public call, and what it finds.
    Call {
        /// `Leasehold::connect`
        Connect,
        /// `Mutex::lock` of a free lock.
        Lock,
        /// `Mutex::lock` of a lock that another client holds, and releases once this one waits.
        LockReleased,
        /// `Mutex::try_lock` of a free lock.
        TryLock,
        /// `Mutex::try_lock` of a lock that another client holds.
        TryLockHeld,
        /// `Mutex::try_lock_for` of a free lock.
        TryLockFor,
        /// `Mutex::try_lock_for` of a lock that another client holds.
        TryLockForHeld,
        /// The same of `Mutex::full_lease`.
        FullLeaseHeld,
        /// `Mutex::lock_or_cancel` of a lock that another client holds, from the moment of the cancel.
        LockOrCancel,
        /// `Mutex::run`, from the end of the work.
        Run,
        /// `Guard::release`
        Release,
        /// The guard is dropped, and `Mutex::try_lock` follows.
        DropThenTry,
        /// `Guard::lost` while another client revokes the lease.
        Lost,
        /// `Mutex::inspect`
        Inspect,
        /// `Mutex::revoke` of the client's own lease.
        Revoke,
        /// `Leasehold::names`
        Names,
        /// `Leasehold::close` of a client that holds.
        Close,
    }
}

dimension! {
    /// Where a call is made, and what became of the runtime in which the client was connected and took its guard.
    Place {
        /// In a second runtime, which polls the call. The first one is polled as well.
        OwnIdle,
        /// On a thread that has entered a second runtime, which nobody polls. The first one is polled.
        OwnBlocked,
        /// In a second runtime, which polls the call. Nobody polls the first one.
        ConnectingBlocked,
        /// In a second runtime, which polls the call. The first one was dropped.
        ConnectingGone,
        /// On a thread without a runtime. The first one is polled.
        NoRuntime,
        /// On a thread that has entered the runtime that connected, which nobody polls.
        InConnectingBlocked,
        /// On a thread without a runtime. The runtime that connected was dropped.
        NoRuntimeConnectingGone,
    }
}

dimension! {
    /// What kind of runtime connected.
    Flavor {
        /// `new_current_thread`, on a thread of its own.
        CurrentThread,
        /// `new_multi_thread` with one worker.
        OneWorker,
    }
}

dimension! {
    /// Whether the store answers.
    Weather {
        /// It does.
        Healthy,
        /// It answers nothing from right before the call.
        Silent,
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Lock => "lock, free",
            Self::LockReleased => "lock, held and then released",
            Self::TryLock => "try_lock, free",
            Self::TryLockHeld => "try_lock, held",
            Self::TryLockFor => "try_lock_for 50 ms, free",
            Self::TryLockForHeld => "try_lock_for 50 ms, held",
            Self::FullLeaseHeld => "full_lease, try_lock_for 50 ms, held",
            Self::LockOrCancel => "lock_or_cancel, held",
            Self::Run => "run",
            Self::Release => "release",
            Self::DropThenTry => "drop, then try_lock",
            Self::Lost => "lost, at a revocation",
            Self::Inspect => "inspect",
            Self::Revoke => "revoke",
            Self::Names => "names",
            Self::Close => "close",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnIdle => "own runtime idle",
            Self::OwnBlocked => "own runtime blocked",
            Self::ConnectingBlocked => "connecting runtime blocked",
            Self::ConnectingGone => "connecting runtime gone",
            Self::NoRuntime => "no runtime",
            Self::InConnectingBlocked => "own and connecting runtime blocked",
            Self::NoRuntimeConnectingGone => "no runtime, connecting runtime gone",
        })
    }
}

impl Place {
    /// Whether the runtime that the caller stands in is polled by nobody.
    #[must_use]
    pub const fn is_own_blocked(self) -> bool {
        match self {
            Self::OwnBlocked | Self::InConnectingBlocked => true,
            Self::OwnIdle
            | Self::ConnectingBlocked
            | Self::ConnectingGone
            | Self::NoRuntime
            | Self::NoRuntimeConnectingGone => false,
        }
    }
}
