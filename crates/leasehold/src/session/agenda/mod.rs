//! When: the alarms, windows and timers by which the session's thread knows what to do next. Every structure whose size
//! grows with the number of leases is here, or is a table of [`CounterMap`](super::counters::CounterMap).

mod alarms;
pub(crate) mod batches;
mod pace;
pub(crate) mod window;

use leasehold_spec::Name;
use tokio::sync::oneshot;

use self::alarms::Alarms;
use self::batches::Batches;
use self::pace::Pace;
use self::window::{Kind, Windows};

pub(crate) struct Agenda {
    /// The alarms of attempts.
    pub(crate) attempts: Alarms<u64>,
    /// The alarms of local queues: the next deadline of a waiter.
    pub(crate) queues: Alarms<u64>,
    /// The alarms of names: the end of a lease that somebody else holds.
    pub(crate) names: Alarms<Name>,
    /// The renewals in flight.
    pub(crate) batches: Batches,
    pub(crate) windows: Windows,
    pub(crate) pace: Pace,
    /// The timers of callers, and when they fire.
    timers: Vec<(u64, oneshot::Sender<()>)>,
    /// When the session's thread runs next without a wake-up; 0 while it runs.
    planned_us: u64,
    thread: Thread,
}

/// Whether the session's thread has to be woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Thread {
    #[default]
    Sleeps,
    Wakes,
}

impl Agenda {
    pub(crate) fn new() -> Self {
        Self {
            attempts: Alarms::default(),
            queues: Alarms::default(),
            names: Alarms::default(),
            batches: Batches::default(),
            windows: Windows::default(),
            pace: Pace::default(),
            timers: Vec::new(),
            planned_us: 0,
            thread: Thread::Sleeps,
        }
    }

    /// Wakes the thread.
    pub(crate) fn wake(&mut self) {
        self.thread = Thread::Wakes;
    }

    /// Wakes the thread if it would run later than this without a wake-up.
    pub(crate) fn wake_by(&mut self, at_us: u64) {
        if at_us < self.planned_us {
            self.wake();
        }
    }

    /// Returns whether the thread has to be woken now, and resets that.
    pub(crate) fn take_wake(&mut self) -> Thread {
        std::mem::take(&mut self.thread)
    }

    /// Notes when the thread runs next; 0 while it runs.
    pub(crate) fn plan(&mut self, at_us: u64) {
        self.planned_us = at_us;
    }

    /// Notes that requests of this kind were answered, or will never be. Wakes the thread if others wait for their turn.
    pub(crate) fn end_requests(&mut self, kind: Kind, count: usize) {
        self.windows.ended(kind, count);
        if self.windows.is_due() || self.windows.may_settle() {
            self.wake();
        }
    }

    pub(crate) fn set_timer(&mut self, at_us: u64, timer: oneshot::Sender<()>) {
        self.timers.push((at_us, timer));
        self.wake_by(at_us);
    }

    /// Removes and returns the timers that fire now, and those that nobody waits for.
    pub(crate) fn take_fired(&mut self, now_us: u64) -> Vec<oneshot::Sender<()>> {
        let is_over = |(at_us, timer): &mut (u64, oneshot::Sender<()>)| *at_us <= now_us || timer.is_closed();
        self.timers.extract_if(.., is_over).map(|(_, timer)| timer).collect()
    }

    /// Returns when the thread has to run at the latest, apart from the alarms of names, which need a connection.
    pub(crate) fn next_us(&mut self) -> u64 {
        let timer_us = self.timers.iter().map(|(at_us, _)| *at_us).min();
        let alarms = [self.attempts.next_us(), self.queues.next_us(), self.batches.next_us(), timer_us];
        alarms.into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}
