//! The history of the clients' calls and results, which the [checker](crate::checker) judges independently of the system
//! under test.
//!
//! A history is only as good as its times. All of them are on one clock ([`boottime_us`](crate::boottime_us), which
//! every process of a machine shares, or the virtual one of a simulation), and each is read on the side that makes the
//! claim *smaller*: an attempt begins before the call, a grant is complete after it, and a lease was claimed at a time
//! that was read *before* the check that said yes. With larger claims the checker would call a correct lock broken; with
//! smaller ones it can only miss an overlap of microseconds. [`Recorder`] reads them in that order, so that no test
//! needs to.
//!
//! The test's own actions belong to the history as well: the faults that it injected, the times when it stopped, and the
//! residue that it found. Without them a lock that works could not be distinguished from one that no client asked for.
//!
//! On disk a history is JSON, one event per line, written line by line: the actions of a process before it was killed
//! count.
//!
//! ```
//! use leasehold_testkit::checker::{Rules, check};
//! use leasehold_testkit::history::{Ended, GaveUp, Recorder};
//!
//! let recorder = Recorder::in_memory();
//! let attempt = recorder.attempt("stock", "client 1");   // before `lock()`
//! let held = attempt.granted(17);                        // after it
//! assert!(held.claims(|| true));                         // `guard.check().is_ok()`
//! held.ended(Ended::Released);                           // before `release()`
//! recorder.attempt("stock", "client 2").gave_up(GaveUp::TimedOut);
//! check(&recorder.history(), &Rules::mutex().at_least(1)).assert_clean();
//! ```

mod recorder;
#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::recorder::{Attempt, Counting, Held, Recorder};

/// One event: of a name, or (without one) of the system as a whole. An attempt is identified by name, client and number,
/// a grant by name, client and token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "name, client, attempt and token are the same in all of them")]
pub enum Event {
    /// An attempt began, at this time or later. It is open until it is granted or abandoned, or until its client dies.
    Asked { name: String, client: String, attempt: u64, at_us: u64 },
    /// An attempt succeeded. A re-entry is not recorded: it has the token of the grant that it enters again.
    Granted {
        name: String,
        client: String,
        attempt: u64,
        token: u64,
        share: Share,
        /// When the attempt began, or earlier.
        asked_us: u64,
        /// When the client knew that it was in the queue, or later; `None` if it never knew.
        queued_us: Option<u64>,
        /// When the client knew of its grant, or later.
        granted_us: u64,
    },
    /// An attempt ended without a grant.
    GaveUp { name: String, client: String, attempt: u64, at_us: u64, why: GaveUp },
    /// The client believed that its lease was valid, at this time or later.
    Claimed { name: String, client: String, token: u64, at_us: u64 },
    /// The client no longer believed that, or no longer needed the lease.
    Ended { name: String, client: String, token: u64, at_us: u64, how: Ended },
    /// A write to the fenced register, which refuses old tokens.
    Fenced { name: String, client: String, token: u64, at_us: u64, answer: Fenced },
    /// A write of `read + 1` to the unfenced register, which refuses nothing.
    Counted {
        name: String,
        client: String,
        token: u64,
        /// When the register was read, or earlier.
        read_us: u64,
        /// When the write got its reply, or later.
        at_us: u64,
        read: u64,
        answer: Answered,
    },
    /// A read of the unfenced register under a shared grant. Until the grant ends, no client may write the register.
    Read {
        name: String,
        client: String,
        token: u64,
        /// When the register was read, or earlier.
        read_us: u64,
        /// When the reply arrived, or later.
        at_us: u64,
        number: u64,
    },
    /// The final count of the fenced register.
    FinalFenced { name: String, count: u64 },
    /// The final number in the unfenced register. It began with 0.
    FinalCounted { name: String, count: u64 },
    /// The test injected a fault against which a promise does not hold, between these times. A violation of it then is
    /// counted as excused.
    Fault { name: String, breaks: Promise, from_us: u64, to_us: u64, why: String },
    /// The test injected a fault that the system must bear.
    Injected { fault: String, at_us: u64 },
    /// No fault is active from now on. Until the next fault every waiter must be served.
    Healed { at_us: u64 },
    /// A client was killed, with all that it had begun. This must not be recorded for a client that may be alive.
    Died { client: String, at_us: u64 },
    /// Residue at the end: keys, queue entries, subscriptions, tasks that should not be there.
    Residue { what: String, count: u64 },
}

/// The part of a name that a grant takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// The whole name: a mutex, or a writer. Its holder writes the registers.
    Exclusive,
    /// This many units of the limit of the name: a reader takes 1, and a semaphore counts permits. Its holder only reads
    /// the registers.
    Shared(u32),
}

impl Share {
    /// Returns how many units it takes of this limit.
    #[must_use]
    pub const fn units(self, limit: u32) -> u32 {
        match self {
            Self::Exclusive => limit,
            Self::Shared(units) => units,
        }
    }
}

/// The reason why an attempt ended without a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GaveUp {
    /// Another client had the lock, and this attempt does not wait.
    Busy,
    /// The attempt reached its timeout.
    TimedOut,
    /// The caller canceled it.
    Cancelled,
    /// The attempt failed with an error; with its message.
    Failed(String),
}

/// The way in which a grant ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The client released it.
    Released,
    /// The client was notified of the loss, or noticed it; with the reason.
    Lost(String),
}

/// The reply of the fenced register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fenced {
    /// The write was accepted; with the number of the write, counted from 1.
    Accepted(u64),
    /// The write was refused: the register has seen a larger token.
    Refused,
    /// No reply arrived.
    Unknown,
}

/// The reply of the unfenced register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// The write was acknowledged.
    Acknowledged,
    /// No reply arrived.
    Unknown,
}

/// A promise that a fault can break by its nature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// Claims do not overlap. Broken by a server's clock that jumps, or by a failover that loses writes.
    Exclusion,
    /// A register that refuses nothing loses no update. Broken also by a client that pauses between its last check and
    /// its write, with every claim still true.
    UnfencedWrites,
    /// Tokens are unique and grow. Broken by a clock that steps back by more than the retention, with the record gone.
    Tokens,
    /// Waiters are served in their order. Broken by a store that forgets its queue.
    Order,
}

impl Event {
    /// Returns the name of the lock, if the event has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Asked { name, .. }
            | Self::Granted { name, .. }
            | Self::GaveUp { name, .. }
            | Self::Claimed { name, .. }
            | Self::Ended { name, .. }
            | Self::Fenced { name, .. }
            | Self::Counted { name, .. }
            | Self::Read { name, .. }
            | Self::FinalFenced { name, .. }
            | Self::FinalCounted { name, .. }
            | Self::Fault { name, .. } => Some(name),
            Self::Injected { .. } | Self::Healed { .. } | Self::Died { .. } | Self::Residue { .. } => None,
        }
    }
}

/// Events, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The events.
    pub events: Vec<Event>,
}

impl History {
    /// Reads a history that a [`Recorder`] wrote. An incomplete last line is left out: its writer was killed while it
    /// wrote.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { events })
    }

    /// Writes the history in the format of a [`Recorder`].
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut text = Vec::new();
        for event in &self.events {
            text.extend(line(event)?);
        }
        std::fs::write(path, text)
    }

    /// Adds the history of another process.
    pub fn add(&mut self, other: Self) {
        self.events.extend(other.events);
    }
}

/// Formats a value as a line of JSON.
pub(crate) fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}
