//! How long each public call takes, and how long it may take: a table of calls × places × stores.
//!
//! The crate's front page gives a bound for every call in the table *Time*. A bound holds wherever the call is made, and
//! whatever happened to the runtime in which the client was connected. Nobody notices a call that breaks its bound in one
//! of these places, unless a test makes that call there. So the cells here are the product of enums, like those of the
//! conformance suite: a new call, place or store does not compile until its bound is given.
//!
//! | part | content |
//! |---|---|
//! | [`Call`] | each public call, and the state of the lock before it |
//! | [`Place`] | the surroundings of the caller, and the state of the runtime that connected |
//! | [`Flavor`] | the kind of runtime that connected |
//! | [`Weather`] | whether the store answers |
//! | `bounds` | the documented bound of each cell, and the slack of a machine that has other work |
//! | `homes` | the runtimes around a call |
//! | `party` | a client of either face |
//! | `acts` | prepares a call, makes it, and tidies up after it |
//! | `cell` | a cell: it connects, and plays its rounds |
//! | `playing` | a cell on a thread of its own, with a hard limit: a call that hangs does not hang the table |
//! | `table` | all cells of a store, and their Markdown |
//!
//! Each call is made six times in one place on a healthy store. The first call may have to open a new connection. The
//! best of the other five shows the duration of every later call, also on a busy machine.
//!
//! A store is silent while its server is stopped (SIGSTOP), or while another client keeps the directory locked.

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
    /// A public call, and the state of the lock before it.
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
        /// As before, with `Mutex::full_lease`.
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
    /// Where a call is made, and the state of the runtime in which the client was connected and took its guard.
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
    /// The kind of runtime that connected.
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
        /// It answers.
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
    /// Returns whether nobody polls the runtime that the caller stands in.
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
