//! What a fault breaks by its nature, and until when. Everything else that breaks is a violation.
//!
//! | fault | what it breaks | for how long |
//! |---|---|---|
//! | restart, flush or failover that loses writes | exclusion | until the leases that were granted before would have ended |
//! | the server's clock is set forward | exclusion | the same, and for as long as the word of it can be held up on its way: a grant that is pushed meanwhile is placed in time by the old clock |
//! | the same two | the order of tokens | for as long as a client hands on inside itself without an answer |
//! | lost records, and a clock that is behind what it showed when they were lost | the order of tokens | until it has caught up |
//! | revocation (one name alone) | exclusion | until the lease would have ended: the client says so itself |
//! | a client that is stopped, slow or killed between its look and the end of a write | writes without a fence | that write alone: the client says so itself |
//!
//! A quorum has no excuse but the last two: a node that has lost something rests, and rests for as long as matters, so that
//! neither exclusion nor the order of tokens is lost with it, also when most of the nodes forget at once. (Its clocks are
//! not set: see `quorum.rs`.) Who is first served nothing promises there, and nothing judges here.
//!
//! Nothing else has an excuse: no cut, no pause, no late or lost message, no crash of a server that flushes before it
//! answers, no dead client. And no fault at all excuses the fenced register.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_spec::limits::RUN_SILENT_US;
use leasehold_testkit::boottime_us;
use leasehold_testkit::history::{Event, Promise};

use super::names::Class;
use super::options::Store;

/// A declared time in which a promise does not hold, for every name.
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
    /// And for the longest lease of the name.
    Lease,
    None,
}

/// The longest stall, and some latency.
const HELD_UP_US: u64 = 4_000_000;

/// For so long at most a client hands on inside itself without an answer from its store (P20), and half a second for the
/// machine.
const UNHEARD_US: u64 = RUN_SILENT_US + 500_000;

/// What was declared. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excuses(Arc<Mutex<Vec<Excuse>>>);

impl Excuses {
    /// At some time between these, leases were lost or shortened that were granted before.
    pub(crate) fn leases(&self, from_us: u64, to_us: u64, why: &'static str) {
        self.add(Excuse { breaks: Promise::Exclusion, from_us, to_us, tail: Tail::Lease, why });
    }

    /// At this time the clock was set forward.
    pub(crate) fn clock(&self, from_us: u64) {
        let to_us = boottime_us() + HELD_UP_US;
        let why = "the server's clock was set forward";
        self.add(Excuse { breaks: Promise::Exclusion, from_us, to_us, tail: Tail::Lease, why });
        self.handed_on(from_us);
    }

    /// Grants have ended at the server since `from_us`, and their clients do not know: what they hand on inside themselves
    /// has older tokens than the next holder.
    fn handed_on(&self, from_us: u64) {
        let to_us = boottime_us() + UNHEARD_US;
        let why = "a lease that the server has ended is handed on inside its client";
        self.add(Excuse { breaks: Promise::Tokens, from_us, to_us, tail: Tail::None, why });
    }

    /// Records were lost, or the clock was set back after that: what it shows until it has caught up gives no order.
    pub(crate) fn tokens(&self, from_us: u64, clock: &ClockLog) {
        let behind = clock.behind();
        if behind.is_zero() {
            return;
        }
        let to_us = boottime_us() + u64::try_from(behind.as_micros()).expect("less than an age");
        let why = "records were lost while the clock was behind";
        self.add(Excuse { breaks: Promise::Tokens, from_us, to_us, tail: Tail::None, why });
    }

    /// Grants were lost at some time since `from_us`, and the tokens with them.
    pub(crate) fn lost(&self, from_us: u64, clock: &ClockLog, why: &'static str) {
        self.leases(from_us, boottime_us(), why);
        self.handed_on(from_us);
        clock.lose();
        self.tokens(from_us, clock);
    }

    /// As the checker wants them, for these names.
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

/// What a server's clock has shown, and what was lost of it. Clones share it.
///
/// Tokens are made from the clock and the last one that is remembered. Where a record was lost while the clock showed T,
/// and the clock shows less than T, now or after it was set back later, there is nothing left to make them rise.
#[derive(Clone, Debug)]
pub(crate) struct ClockLog(Arc<Mutex<Shown>>);

#[derive(Clone, Copy, Debug)]
struct Shown {
    shift_us: i64,
    peak_us: i64,
    /// The latest that it had shown when records were lost.
    lost_us: i64,
}

impl ClockLog {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Shown { shift_us: 0, peak_us: i64::MIN, lost_us: i64::MIN })))
    }

    /// How far it is ahead of the machine's.
    pub(crate) fn shift_us(&self) -> i64 {
        self.shown().shift_us
    }

    /// It is about to be set.
    pub(crate) fn set(&self, shift_us: i64) {
        let mut shown = self.shown();
        shown.peak_us = shown.peak_us.max(wall_us() + shown.shift_us);
        shown.shift_us = shift_us;
    }

    /// Records were lost until now.
    pub(crate) fn lose(&self) {
        let mut shown = self.shown();
        shown.lost_us = shown.peak_us.max(wall_us() + shown.shift_us);
    }

    /// For how long it shows what it had shown when records were lost.
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
        assert_eq!(behind_s(), 3.0, "the latest, not the last");
        clock.set(40_000_000);
        assert_eq!(behind_s(), 0.0);
        clock.set(10_000_000);
        assert_eq!(behind_s(), 10.0, "set back after the loss");
        clock.lose();
        assert_eq!(behind_s(), 30.0);
    }

    #[test]
    fn leases_are_excused_for_as_long_as_those_of_the_name_are() {
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
