//! Why a lease ended by time.
//!
//! A guard often detects the end of its lease before the session does. For example, after a stop of an hour, the first
//! check may be the caller's. So the facts that explain the end are kept beside the state of the session, where a guard
//! reads them without a lock.
//!
//! Three facts are known: when the store replied last, when the thread of the session was due to run, and when it ran.
//! The session sends the first renewal at a third of the lease, and repeats it. So if there was no reply in the last
//! third, the store has not replied to renewals. If the thread was due before the end and ran only after it, the session
//! sent no renewals, and this process is the cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::terms::{Renewal, Terms};
use crate::clock::{Term, margin_us};
use crate::lost::LostReason;

/// A thread that is late by at most this much was not stopped: timers and a busy machine delay it, too.
const LATE_US: u64 = 50_000;

/// The session's knowledge of its store and of its own thread. The numbers explain a loss and decide nothing, so they are
/// read one by one, without a lock.
#[derive(Debug, Default)]
pub(crate) struct Contact {
    /// When the store replied last.
    replied_us: AtomicU64,
    /// When the thread is due to run: it was set when the thread went to sleep.
    due_us: AtomicU64,
    /// The last time that the thread ran late: when it was due, and when it ran.
    late_from_us: AtomicU64,
    late_until_us: AtomicU64,
}

/// The facts of a grant that explain its end: how it is meant to end, and the moment from which its lease counts.
pub(crate) struct Lifetime {
    contact: Arc<Contact>,
    ends: Ends,
    from_us: AtomicU64,
}

/// The end of a lease that nobody takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// A renewal that does not come.
    Unrenewed,
    /// Its longest hold, if it ends at `from_us` or later.
    MaxHold { from_us: u64 },
    /// Its length, if the store has granted more than the claim. The claim lasts until `claim_until_us`.
    Fixed { claim_until_us: u64 },
}

impl Lifetime {
    pub(crate) fn new(contact: &Arc<Contact>, terms: &Terms, term: &Term, now_us: u64) -> Self {
        let ends = match terms.renewal {
            Renewal::Always => Ends::Unrenewed,
            // The session does not ask for a renewal that gains no more than these margins (`machine/renew.rs`).
            Renewal::For { hold_us } => Ends::MaxHold {
                from_us: now_us.saturating_add(hold_us).saturating_sub(3 * margin_us(terms.lease_us())),
            },
            // A claim that is as long as the lease is not renewed.
            Renewal::Never if term.until_us - term.from_us >= terms.lease_us() / 2 => Ends::Fixed { claim_until_us: 0 },
            Renewal::Never => Ends::Fixed { claim_until_us: term.until_us },
        };
        Self { contact: Arc::clone(contact), ends, from_us: AtomicU64::new(term.from_us) }
    }

    /// Notes that the lease was renewed.
    pub(crate) fn extended(&self, term: &Term) {
        self.from_us.store(term.from_us, Relaxed);
    }

    /// Returns why a lease that was valid until `until_us` has ended by `now_us`.
    pub(crate) fn why_over(&self, until_us: u64, now_us: u64) -> LostReason {
        match self.ends {
            Ends::MaxHold { from_us } if until_us >= from_us => LostReason::MaxHold,
            Ends::Fixed { claim_until_us } if until_us > claim_until_us => LostReason::FixedLease,
            _ => self.contact.why_expired(Span { from_us: self.from_us.load(Relaxed), until_us }, now_us),
        }
    }
}

/// A lease that has ended: from when it counted, and until when it was valid.
#[derive(Clone, Copy, Debug)]
struct Span {
    from_us: u64,
    until_us: u64,
}

impl Contact {
    /// Notes a reply of the store.
    pub(crate) fn replied(&self, now_us: u64) {
        self.replied_us.fetch_max(now_us, Relaxed);
    }

    /// Notes that the thread goes to sleep, until `until_us` at the latest.
    pub(crate) fn sleeps(&self, until_us: u64) {
        self.due_us.store(until_us, Relaxed);
    }

    /// Notes that the thread runs again.
    pub(crate) fn woke(&self, now_us: u64) {
        let due_us = self.due_us.load(Relaxed);
        if now_us > due_us.saturating_add(LATE_US) {
            self.late_from_us.store(due_us, Relaxed);
            self.late_until_us.store(now_us, Relaxed);
        }
    }

    /// Returns why a lease that was to be renewed has ended by `now_us`.
    fn why_expired(&self, lease: Span, now_us: u64) -> LostReason {
        let length_us = lease.until_us.saturating_sub(lease.from_us);
        let replied_us = self.replied_us.load(Relaxed);
        let silent_us = now_us.saturating_sub(replied_us);
        match self.stop_over(lease.until_us, now_us) {
            // If the store had not replied for a long time before the stop, it would not have renewed the lease anyway.
            Some((from_us, until_us)) if from_us.saturating_sub(replied_us) < length_us / 2 => {
                LostReason::Stopped { lasted: Duration::from_micros(until_us - from_us) }
            }
            _ if silent_us >= length_us / 3 => LostReason::Unreachable { lasted: Duration::from_micros(silent_us) },
            _ => LostReason::Expired,
        }
    }

    /// Returns the stop in which the lease ended, if there was one: the thread was due before that end, and did not run
    /// until after it.
    fn stop_over(&self, end_us: u64, now_us: u64) -> Option<(u64, u64)> {
        let past = (self.late_from_us.load(Relaxed), self.late_until_us.load(Relaxed));
        // The stop goes on, or is over and the caller runs before the thread.
        let present = (self.due_us.load(Relaxed), now_us);
        let is_late = |(from_us, until_us): &(u64, u64)| *from_us > 0 && until_us.saturating_sub(*from_us) > LATE_US;
        [past, present].into_iter().find(|stop| is_late(stop) && stop.0 < end_us && end_us <= stop.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// A lease of 30 s that was renewed at 100 s.
    const LEASE: Span = Span { from_us: 100 * SECOND, until_us: 130 * SECOND };

    fn contact(replied_s: u64, due_s: u64) -> Contact {
        let contact = Contact::default();
        contact.replied(replied_s * SECOND);
        contact.sleeps(due_s * SECOND);
        contact
    }

    fn seconds(of: u64) -> Duration {
        Duration::from_secs(of)
    }

    #[test]
    fn a_store_that_has_not_replied_is_the_cause() {
        let contact = contact(109, 130);
        assert_eq!(contact.why_expired(LEASE, 130 * SECOND), LostReason::Unreachable { lasted: seconds(21) });
    }

    #[test]
    fn a_store_that_has_replied_is_not() {
        // To another lease, or to a ping.
        assert_eq!(contact(125, 130).why_expired(LEASE, 130 * SECOND), LostReason::Expired);
    }

    #[test]
    fn a_stop_over_the_end_is_the_cause_whoever_runs_first() {
        let stopped = LostReason::Stopped { lasted: seconds(3_490) };
        let contact = contact(100, 110);
        assert_eq!(contact.why_expired(LEASE, 3_600 * SECOND), stopped, "the caller");
        contact.woke(3_600 * SECOND);
        contact.sleeps(3_601 * SECOND);
        contact.replied(3_600 * SECOND);
        assert_eq!(contact.why_expired(LEASE, 3_600 * SECOND + 1), stopped, "the thread of the session");
    }

    #[test]
    fn a_stop_that_was_over_before_the_end_is_not_the_cause() {
        let contact = contact(100, 101);
        contact.woke(110 * SECOND);
        contact.sleeps(130 * SECOND);
        assert_eq!(contact.why_expired(LEASE, 130 * SECOND), LostReason::Unreachable { lasted: seconds(30) });
    }

    #[test]
    fn a_stop_in_an_outage_is_not_the_cause() {
        let lost = contact(100, 129).why_expired(LEASE, 140 * SECOND);
        assert_eq!(lost, LostReason::Unreachable { lasted: seconds(40) });
    }

    #[test]
    fn a_thread_that_is_a_little_late_was_not_stopped() {
        let contact = contact(100, 0);
        contact.sleeps(130 * SECOND - 1_000);
        let lost = contact.why_expired(LEASE, 130 * SECOND + 1_000);
        assert_eq!(lost, LostReason::Unreachable { lasted: Duration::from_micros(30_001_000) });
    }
}
