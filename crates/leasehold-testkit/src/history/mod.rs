//! What clients did and were told: the history that the [checker](crate::checker) judges, apart from the system under
//! test.
//!
//! A history is worth what its times are worth. All are on one clock ([`boottime_us`](crate::boottime_us), which every
//! process of a machine shares, or the virtual one of a simulation), and each is read on the side that makes the claim
//! *smaller*: an attempt begins before the call, a grant is complete after it, and a lease was claimed at a time that was
//! read *before* the check that said yes. A checker fed with larger claims would call a correct lock broken; one fed with
//! smaller ones can only miss an overlap of microseconds. [`Recorder`] reads them in that order, so that no test needs to.
//!
//! What the test itself does to the system belongs to the history as well: which faults it injected, when it stopped, and
//! what it found left over. Without that nobody could tell a lock that works from one that nobody asked.
//!
//! On disk a history is JSON, one event to a line, written line by line: what a process did before it was killed counts.
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

/// One thing that happened: to a name, or (without one) to the system as a whole. An attempt is known by name, client and
/// number, a grant by name, client and token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "name, client, attempt and token are the same in all of them")]
pub enum Event {
    /// An attempt began, at this time or later. It is open until it is granted or given up, or until its client dies.
    Asked { name: String, client: String, attempt: u64, at_us: u64 },
    /// An attempt succeeded. A re-entry is none: it has the token of the grant that it enters again.
    Granted {
        name: String,
        client: String,
        attempt: u64,
        token: u64,
        /// What it takes of the name's limit: 1 of 1 for a mutex.
        units: u32,
        /// When the attempt began, or earlier.
        asked_us: u64,
        /// When the client knew that it stood in the queue, or later; `None` if it does not know that it ever did.
        queued_us: Option<u64>,
        /// When the client knew of its grant, or later.
        granted_us: u64,
    },
    /// An attempt ended without a grant.
    GaveUp { name: String, client: String, attempt: u64, at_us: u64, why: GaveUp },
    /// The client believed that its lease was valid, at this time or later.
    Claimed { name: String, client: String, token: u64, at_us: u64 },
    /// The client stopped believing it, or stopped caring.
    Ended { name: String, client: String, token: u64, at_us: u64, how: Ended },
    /// A write to the register that refuses old tokens.
    Fenced { name: String, client: String, token: u64, at_us: u64, answer: Fenced },
    /// A write of `read + 1` to the register that refuses nothing.
    Counted {
        name: String,
        client: String,
        /// When the register was read, or earlier.
        read_us: u64,
        /// When the write was answered, or later.
        at_us: u64,
        read: u64,
        answer: Answered,
    },
    /// What the fenced register has counted, at the end.
    FinalFenced { name: String, count: u64 },
    /// What the other register has, at the end. It began with 0.
    FinalCounted { name: String, count: u64 },
    /// The test did something against which a promise does not hold, between these times. What then breaks is counted and
    /// is no violation.
    Fault { name: String, breaks: Promise, from_us: u64, to_us: u64, why: String },
    /// The test did something to the system that it must bear.
    Injected { fault: String, at_us: u64 },
    /// From now on nothing is broken any more, and until the next fault whoever waits must be served.
    Healed { at_us: u64 },
    /// A client was killed, with all that it had begun. Not one that may live on.
    Died { client: String, at_us: u64 },
    /// What was still there at the end, and should not be: keys, queue entries, subscriptions, tasks.
    Residue { what: String, count: u64 },
}

/// Why an attempt ended without a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GaveUp {
    /// Somebody else had it, and this one does not wait.
    Busy,
    /// It waited for as long as it was told.
    TimedOut,
    /// Its caller no longer wanted it.
    Cancelled,
    /// It was told an error; with what it said.
    Failed(String),
}

/// How a grant ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The client gave it back.
    Released,
    /// The client was told that it was lost, or noticed; with the reason.
    Lost(String),
}

/// What the fenced register answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fenced {
    /// Written, as the so-manieth write, counted from 1.
    Accepted(u64),
    /// Refused: it has seen a larger token.
    Refused,
    /// No answer came.
    Unknown,
}

/// What the other register answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// Written.
    Acknowledged,
    /// No answer came.
    Unknown,
}

/// What a fault can break by its nature.
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
    /// The name of the lock, where it concerns one.
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
    /// Reads what a [`Recorder`] wrote. A last line without an end is left out: its writer was killed over it.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Self { events })
    }

    /// Writes it as a [`Recorder`] would.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut text = Vec::new();
        for event in &self.events {
            text.extend(line(event)?);
        }
        std::fs::write(path, text)
    }

    /// Adds another process' part.
    pub fn add(&mut self, other: Self) {
        self.events.extend(other.events);
    }
}

/// A line of JSON.
pub(crate) fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}
