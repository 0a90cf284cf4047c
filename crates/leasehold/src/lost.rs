//! How a lease ends: the result of a release, and the loss of a lease, with the lock and the reason.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::Name;

use crate::error::{Error, ErrorKind};

/// The result of a release.
#[must_use = "NotHeld means that the work outlived its lease"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lease was released, or handed on inside this client. The next waiter already holds the lock.
    ///
    /// This is also the result if the reply to the first request was lost, the retry found no grant, and the lease was
    /// still valid by the client's clock: then the first request has released it.
    Released,
    /// There was no lease to release: it had expired, was revoked, or was lost. Report this, because the work outlived
    /// its lease.
    NotHeld,
}

/// The loss of a lease. `Display` names the lock, the reason, and what to do:
///
/// ```text
/// lost "stock:42": the store has not confirmed the lease for 21 s, so it ended; stop the work
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Lost(Arc<Inner>);

/// Boxed in one pointer, so that the result of a check fits into two registers.
#[derive(PartialEq, Eq, Hash)]
struct Inner {
    name: Name,
    reason: LostReason,
}

/// The reason for which the holder does not have its lease any more: see [`Lost::reason`].
///
/// The first five mean that the lease ended by time: see [`LostReason::is_expiry`]. The client names the cause as far as
/// it knows it. The cause is for people who look for the fault: a program should not depend on which of the five it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The store did not reply to the renewals: it was unreachable or stood still, or too few nodes of a quorum voted.
    Unreachable {
        /// The time since the last reply of the store.
        lasted: Duration,
    },
    /// This process did not run when the lease had to be renewed: the process was stopped, or the machine slept or was
    /// overloaded.
    Stopped {
        /// How late the client was when it ran again. The whole stop lasted a little longer.
        lasted: Duration,
    },
    /// The time of [`Mutex::max_hold`](crate::Mutex::max_hold) is over.
    MaxHold,
    /// A lease of [`Mutex::fixed_lease`](crate::Mutex::fixed_lease) is over.
    FixedLease,
    /// The lease ended for another reason: the store replied, but refused each renewal, its record was damaged, or its
    /// clock was set forward.
    Expired,
    /// An operator or another program revoked the lease.
    Revoked,
    /// The store has no record of the lease: it restarted without data, was flushed, or failed over to a replica that
    /// lacked the grant.
    Forgotten,
    /// Another holder has the lock.
    Superseded,
    /// The client was closed.
    Closed,
    /// The lease was not lost: its guard released it.
    Released,
}

impl Lost {
    pub(crate) fn new(name: &Name, reason: LostReason) -> Self {
        Self(Arc::new(Inner { name: name.clone(), reason }))
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Returns why the lease was lost.
    #[must_use]
    pub fn reason(&self) -> LostReason {
        self.0.reason
    }
}

impl LostReason {
    /// Returns whether the lease ended by time: nobody took it away, and it was not renewed or could not be.
    #[must_use]
    pub fn is_expiry(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Stopped { .. } | Self::MaxHold | Self::FixedLease | Self::Expired
        )
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { lasted } => {
                write!(f, "the store has not confirmed the lease for {}, so it ended", Rounded(*lasted))
            }
            Self::Stopped { lasted } => write!(
                f,
                "this process was stopped, suspended or overloaded for {}, so the lease was not renewed",
                Rounded(*lasted)
            ),
            Self::MaxHold => f.write_str("the time of `max_hold` is over"),
            Self::FixedLease => f.write_str("the fixed lease is over"),
            Self::Expired => f.write_str(
                "the lease expired although the store replies (it refused the renewals, or its clock was set forward)",
            ),
            Self::Revoked => f.write_str("the lease was revoked"),
            Self::Forgotten => f.write_str("the store has no record of the lease (restart, flush or failover)"),
            Self::Superseded => f.write_str("another holder has the lock"),
            Self::Closed => f.write_str("the client was closed"),
            Self::Released => f.write_str("the guard was released"),
        }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, reason } = &*self.0;
        match reason {
            LostReason::Released => write!(f, "{name:?} was not lost: {reason}"),
            _ => write!(f, "lost {name:?}: {reason}; stop the work"),
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").field("name", &self.0.name).field("reason", &self.0.reason).finish()
    }
}

impl StdError for Lost {}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::new(ErrorKind::Lost, lost.to_string()).named(lost.name()).because(lost)
    }
}

/// Displays a duration for people, with two units at most.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0..10 => write!(f, "{:.1} s", self.0.as_secs_f64()),
            seconds @ 10..120 => write!(f, "{seconds} s"),
            seconds @ 120..7_200 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            seconds => write!(f, "{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_says_which_lock_and_why_and_each_once() {
        let name = Name::new("stock:42").unwrap();
        let lost = Lost::new(&name, LostReason::Unreachable { lasted: Duration::from_millis(21_400) });
        let text = "lost \"stock:42\": the store has not confirmed the lease for 21 s, so it ended; stop the \
                    work";
        assert_eq!(lost.to_string(), text);
        let error = Error::from(lost.clone());
        assert_eq!(
            (error.to_string(), error.name(), error.kind()),
            (text.to_owned(), Some("stock:42"), ErrorKind::Lost)
        );
        let source = error.source().and_then(|source| source.downcast_ref::<Lost>());
        assert_eq!(source.map(Lost::reason), Some(lost.reason()));
        assert_eq!(
            Lost::new(&name, LostReason::Released).to_string(),
            "\"stock:42\" was not lost: the guard was released"
        );
    }

    #[test]
    fn times_are_rounded_for_people() {
        let shown = |ms| Rounded(Duration::from_millis(ms)).to_string();
        assert_eq!(
            [shown(940), shown(59_900), shown(192_000), shown(93_780_000)],
            ["0.9 s", "59 s", "3 min 12 s", "26 h 3 min"]
        );
    }

    #[test]
    fn a_check_returns_in_two_registers() {
        assert_eq!(size_of::<Result<leasehold_spec::Token, Lost>>(), 16);
    }
}
