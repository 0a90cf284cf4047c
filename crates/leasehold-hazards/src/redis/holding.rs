//! The contents of a server, as a timeline shows them.

use std::fmt;

use super::keys::Value;
use super::model::seconds;

/// One thing that a server holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holding {
    /// A key of a tutorial's lock.
    Key {
        /// The key.
        name: String,
        /// The value.
        value: Value,
        /// The TTL that is left. `None` if the key never expires.
        left_ms: Option<u64>,
    },
    /// A grant of Leasehold.
    Grant {
        /// The label of the holder.
        label: String,
        /// The fencing token.
        token: u64,
        /// The number of waiters in the queue.
        waiting: usize,
        /// The part of the lease that is left.
        left_ms: u64,
    },
    /// A vote of a node of Leasehold's quorum.
    Vote {
        /// The label of the client that has the vote.
        label: String,
        /// The fencing token.
        token: u64,
        /// The part of the lease that is left.
        left_ms: u64,
    },
    /// The node may have forgotten votes, and gives none for now.
    Quarantine,
}

impl Holding {
    /// Returns the time that is left. `None` if the thing has no end, or an end that no lease decides.
    #[must_use]
    pub const fn left_ms(&self) -> Option<u64> {
        match self {
            Self::Key { left_ms, .. } => *left_ms,
            Self::Grant { left_ms, .. } | Self::Vote { left_ms, .. } => Some(*left_ms),
            Self::Quarantine => None,
        }
    }
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = |left_ms: u64| format!("{} s left", seconds(left_ms));
        match self {
            Self::Key { name, value, left_ms } => {
                write!(f, "{name} = {value} ({})", left_ms.map_or_else(|| "for ever".into(), left))
            }
            Self::Grant { label, token, waiting, left_ms } => {
                write!(f, "{label} holds with token {token} ({})", left(*left_ms))?;
                if *waiting > 0 { write!(f, ", {waiting} waiting") } else { Ok(()) }
            }
            Self::Vote { label, token, left_ms } => {
                write!(f, "vote for {label} with token {token} ({})", left(*left_ms))
            }
            Self::Quarantine => f.write_str("quarantine: no vote"),
        }
    }
}
