//! The promises that a fault breaks by its nature, and until when. Any other broken promise is a violation.
//!
//! | fault | it breaks | for how long |
//! |---|---|---|
//! | restart, flush or failover that loses writes | exclusion | until the leases that were granted before would have ended |
//! | the server's clock is set forward | exclusion | the same, and for as long as the replies with the new clock can be delayed: a grant that is pushed meanwhile is dated by the old clock |
//! | the same two | the order of tokens | for as long as a client hands the lease over locally without a reply |
//! | lost records, and a clock that is behind the time at which they were lost | the order of tokens | until it has caught up |
//! | revocation (one name alone) | exclusion | until the lease would have ended: the client records it |
//! | a client that is stopped, slow or killed between its check and the end of a write | writes without a fence | that write alone: the client records it |
//!
//! A quorum has only the last two excuses: a node that has lost something is in quarantine for as long as the loss
//! matters. So neither exclusion nor the order of tokens is lost, even when most of the nodes forget at once. (Their
//! clocks are not set: see `quorum.rs`.) A quorum does not promise which waiter is served first, and the lab does not
//! judge it.
//!
//! Nothing else has an excuse: no cut, no pause, no late or lost message, no crash of a server that flushes before it
//! replies, no dead client. And no fault at all excuses the fenced register.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_spec::limits::RUN_SILENT_US;
use leasehold_testkit::boottime_us;
use leasehold_testkit::history::{Event, Promise};

use super::names::Class;
use super::options::Store;

/// A declared time during which a promise does not hold, for every name.
#[derive(Clone, Copy, Debug)]
struct Excuse {
    breaks: Promise,
    from_us: u64,
    to_us: u64,
    tail: Tail,
    why: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Tail {
    /// The excuse continues for the longest lease of the name.
    Lease,
    None,
}

/// The longest stall, plus some latency.
const DELAY_US: u64 = 4_000_000;

/// The longest time for which a client hands over locally without a reply from its store (P20), plus half a second for
/// the machine.
const SILENT_RUN_US: u64 = RUN_SILENT_US + 500_000;

/// The declared excuses. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excuses(Arc<Mutex<Vec<Excuse>>>);

impl Excuses {
    /// Declares that leases granted before were lost or shortened at some time between these.
    pub(crate) fn leases(&self, from_us: u64, to_us: u64, why: &'static str) {
        self.add(Excuse { breaks: Promise::Exclusion, from_us, to_us, tail: Tail::Lease, why });
    }

    /// Declares that the clock was set forward at this time.
    pub(crate) fn clock(&self, from_us: u64) {
        let to_us = boottime_us() + DELAY_US;
        let why = "the server's clock was set forward";
        self.add(Excuse { breaks: Promise::Exclusion, from_us, to_us, tail: Tail::Lease, why });
        self.handed_on(from_us);
    }

    /// Declares that grants have ended at the server since `from_us` without the knowledge of their clients: the tokens
    /// of their local hand-overs are older than the token of the next holder.
    fn handed_on(&self, from_us: u64) {
        let to_us = boottime_us() + SILENT_RUN_US;
        let why = "a client hands a lease over locally that the server has ended";
        self.add(Excuse { breaks: Promise::Tokens, from_us, to_us, tail: Tail::None, why });
    }

    /// Declares that records were lost, or that the clock was set back after that: until it has caught up, it gives no
    /// order.
    pub(crate) fn tokens(&self, from_us: u64, clock: &ClockLog) {
        let behind = clock.behind();
        if behind.is_zero() {
            return;
        }
        let to_us = boottime_us() + u64::try_from(behind.as_micros()).expect("less than an age");
        let why = "records were lost while the clock was behind";
        self.add(Excuse { breaks: Promise::Tokens, from_us, to_us, tail: Tail::None, why });
    }

    /// Declares that grants and their tokens were lost at some time since `from_us`.
    pub(crate) fn lost(&self, from_us: u64, clock: &ClockLog, why: &'static str) {
        self.leases(from_us, boottime_us(), why);
        self.handed_on(from_us);
        clock.lose();
        self.tokens(from_us, clock);
    }

    /// Returns the excuses for these names, in the checker's form.
    pub(crate) fn events<'a>(&self, names: impl IntoIterator<Item = &'a String>) -> Vec<Event> {
        let excuses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |name: &'a String| {
            let lease = Class::of(name).longest_lease(Store::Redis);
            excuses.iter().map(move |excuse| excuse.event(name, lease)).collect::<Vec<_>>()
        };
        names.into_iter().flat_map(of).collect()
    }

    fn add(&self, excuse: Excuse) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(excuse);
    }
}

impl Excuse {
    fn event(&self, name: &str, lease: Duration) -> Event {
        let tail_us = match self.tail {
            Tail::Lease => u64::try_from(lease.as_micros()).expect("seconds"),
            Tail::None => 0,
        };
        let (name, why) = (name.into(), self.why.into());
        Event::Fault { name, breaks: self.breaks, from_us: self.from_us, to_us: self.to_us + tail_us, why }
    }
}

/// The times that a server's clock has shown, and the time at which records were lost. Clones share it.
///
/// Tokens are made from the clock and the last token that is remembered. If a record was lost while the clock showed T,
/// and the clock shows less than T, now or after it was set back later, then nothing makes tokens increase.
#[derive(Clone, Debug)]
pub(crate) struct ClockLog(Arc<Mutex<Shown>>);

#[derive(Clone, Copy, Debug)]
struct Shown {
    shift_us: i64,
    peak_us: i64,
    /// The latest time that it had shown when records were lost.
    lost_us: i64,
}

impl ClockLog {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Shown { shift_us: 0, peak_us: i64::MIN, lost_us: i64::MIN })))
    }

    /// Returns how far it is ahead of the machine's clock.
    pub(crate) fn shift_us(&self) -> i64 {
        self.shown().shift_us
    }

    /// Records that the clock is about to be set.
    pub(crate) fn set(&self, shift_us: i64) {
        let mut shown = self.shown();
        shown.peak_us = shown.peak_us.max(wall_us() + shown.shift_us);
        shown.shift_us = shift_us;
    }

    /// Records that data was lost until now.
    pub(crate) fn lose(&self) {
        let mut shown = self.shown();
        shown.lost_us = shown.peak_us.max(wall_us() + shown.shift_us);
    }

    /// Returns for how long the clock will show times that it had shown before records were lost.
    pub(crate) fn behind(&self) -> Duration {
        let shown = self.shown();
        let behind_us = shown.lost_us.saturating_sub(wall_us() + shown.shift_us).max(0);
        Duration::from_micros(behind_us.unsigned_abs())
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wall_us() -> i64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    i64::try_from(wall.as_micros()).expect("a clock before the year 292,000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_behind_what_it_showed_when_records_were_lost() {
        let clock = ClockLog::new();
        let behind_s = || clock.behind().as_secs_f64().round();
        clock.set(20_000_000);
        clock.set(17_000_000);
        assert_eq!(behind_s(), 0.0, "nothing was lost");
        clock.lose();
        assert_eq!(behind_s(), 3.0, "the latest time, not the most recent one");
        clock.set(40_000_000);
        assert_eq!(behind_s(), 0.0);
        clock.set(10_000_000);
        assert_eq!(behind_s(), 10.0, "set back after the loss");
        clock.lose();
        assert_eq!(behind_s(), 30.0);
    }

    #[test]
    fn an_excuse_for_leases_lasts_for_the_longest_lease_of_the_name() {
        let excuses = Excuses::default();
        excuses.leases(100, 200, "flushed");
        let events = excuses.events(&["r1.warm2".to_owned(), "r1.cold2".to_owned()]);
        let until = |event: &Event| match event {
            Event::Fault { to_us, .. } => *to_us,
            other => panic!("{other:?}"),
        };
        assert_eq!(events.iter().map(until).collect::<Vec<_>>(), [400_200, 3_000_200]);
    }
}
