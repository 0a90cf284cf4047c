//! A cell that is being played on a thread of its own, and the thread that waits for it.
//!
//! A call that hangs takes its thread with it. The waiting thread gives up after a limit, and records that.

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::bounds::Bound;

/// How long anything that is not measured may take.
pub(super) const SOON: Duration = Duration::from_secs(30);
/// How long after its documented bound a call is given up.
const HANGS: Duration = Duration::from_secs(5);

/// How long a call took, and what was wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The first call.
    pub first: Option<Duration>,
    /// The best of the later ones.
    pub again: Option<Duration>,
    /// The first defect found.
    pub wrong: Option<String>,
}

/// An event of a cell.
pub(super) enum Event {
    /// The call is about to be made.
    Ready,
    /// How long the first call took.
    First(Duration),
    /// How long one of the later calls took.
    Again(Duration),
    Wrong(String),
    /// Its client is closed, and its threads have ended.
    Ended,
}

/// The channel from a cell to the thread that waits for it. An error on it means that the thread waits no more.
pub(super) struct Wire {
    events: Sender<Event>,
    go: Receiver<()>,
    done: Receiver<()>,
}

/// A gate right before a call.
pub(super) enum Gate<'a> {
    /// The first call waits here until the store is silent.
    First(&'a Wire),
    /// Later calls do not wait.
    Later,
}

impl Wire {
    pub(super) fn say(&self, event: Event) {
        drop(self.events.send(event));
    }

    /// Waits until the store answers again.
    pub(super) fn await_done(&self) {
        let _ = self.done.recv();
    }
}

impl Gate<'_> {
    /// Waits until the call may begin, and returns that moment.
    pub(super) fn pass(&self) -> Instant {
        if let Self::First(wire) = self {
            wire.say(Event::Ready);
            let _ = wire.go.recv();
        }
        Instant::now()
    }
}

pub(super) struct Playing {
    bound: Bound,
    limit: Duration,
    events: Receiver<Event>,
    go: Sender<()>,
    done: Sender<()>,
    measured: Measured,
}

impl Playing {
    pub(super) fn begin(bound: Bound, play: impl FnOnce(&Wire) + Send + 'static) -> Self {
        let ((events, heard), (go, may_go), (done, is_done)) = (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let wire = Wire { events, go: may_go, done: is_done };
        let play = move || play(&wire);
        thread::Builder::new().name("cell".into()).spawn(play).expect("the system has threads left");
        let limit = bound.documented + HANGS;
        Self { bound, limit, events: heard, go, done, measured: Measured::default() }
    }

    /// Waits until the call is about to be made.
    pub(super) fn ready(&mut self) {
        drop(self.next(SOON, "beginning"));
    }

    /// Lets the call be made.
    pub(super) fn go(&self) {
        let _ = self.go.send(());
    }

    /// Waits for the end of the first call.
    pub(super) fn first(&mut self) {
        if let Some(Event::First(took)) = self.next(self.limit, "answer") {
            self.measured.first = Some(took);
        }
    }

    /// Whether the first call still waits.
    pub(super) fn still_waits(&mut self) -> bool {
        match self.events.try_recv() {
            Err(_) => self.measured.wrong.is_none(),
            Ok(_) => false,
        }
    }

    /// Waits for the later calls, and for the end.
    pub(super) fn rest(&mut self) {
        let _ = self.done.send(());
        while let Some(event) = self.next(self.limit + SOON, "end") {
            match event {
                Event::Again(took) => {
                    let best = self.measured.again.map_or(took, |best| best.min(took));
                    self.measured.again = Some(best);
                }
                Event::Ended => break,
                Event::Ready | Event::First(_) | Event::Wrong(_) => {}
            }
        }
    }

    /// Records a defect, unless there is one already.
    pub(super) fn wrong(&mut self, wrong: String) {
        self.measured.wrong.get_or_insert(wrong);
    }

    /// Subtracts the time that the first call had to wait by its nature.
    pub(super) fn take_off(&mut self, waited: Duration) {
        self.measured.first = self.measured.first.map(|took| took.saturating_sub(waited));
    }

    /// Compares the measurements with the bound.
    pub(super) fn judged(mut self) -> Measured {
        let Bound { first, again, .. } = self.bound;
        if let Some(took) = self.measured.first.filter(|took| *took > first) {
            self.wrong(format!("the first call took {took:.1?}, and may take {first:?}"));
        }
        if let Some(took) = self.measured.again.filter(|took| *took > again) {
            self.wrong(format!("each later call took {took:.1?} at least, and may take {again:?}"));
        }
        self.measured
    }

    /// Returns the next event, if it comes in time. After a defect no event matters.
    fn next(&mut self, within: Duration, awaited: &str) -> Option<Event> {
        if self.measured.wrong.is_some() {
            return None;
        }
        match self.events.recv_timeout(within) {
            Ok(Event::Wrong(wrong)) => self.wrong(wrong),
            Ok(event) => return Some(event),
            Err(mpsc::RecvTimeoutError::Timeout) => self.wrong(format!("HANGS: no {awaited} in {within:?}")),
            Err(mpsc::RecvTimeoutError::Disconnected) => self.wrong(format!("no {awaited}: it panicked")),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const BOUND: Bound = Bound { documented: MS, first: Duration::from_secs(1), again: Duration::from_millis(100) };

    /// Returns the measurements of a cell that plays this.
    fn measured(play: impl FnOnce(&Wire) + Send + 'static) -> Measured {
        measured_within(SOON, play)
    }

    fn measured_within(limit: Duration, play: impl FnOnce(&Wire) + Send + 'static) -> Measured {
        let mut playing = Playing::begin(BOUND, play);
        playing.limit = limit;
        playing.ready();
        playing.go();
        playing.first();
        playing.rest();
        playing.judged()
    }

    fn answers(wire: &Wire, took: [Duration; 3]) {
        Gate::First(wire).pass();
        wire.say(Event::First(took[0]));
        wire.say(Event::Again(took[1]));
        wire.say(Event::Again(took[2]));
        wire.say(Event::Ended);
    }

    #[test]
    fn the_first_call_and_the_best_of_the_later_ones_are_measured() {
        let measured = measured(|wire| answers(wire, [900 * MS, 500 * MS, 90 * MS]));
        assert_eq!(measured, Measured { first: Some(900 * MS), again: Some(90 * MS), wrong: None });
    }

    #[test]
    fn a_slow_call_breaks_its_bound() {
        let slow = measured(|wire| answers(wire, [1001 * MS, MS, MS])).wrong.expect("it is");
        assert!(slow.starts_with("the first call took 1.0s"), "{slow}");
        let slow = measured(|wire| answers(wire, [MS, 101 * MS, 102 * MS])).wrong.expect("they are");
        assert!(slow.starts_with("each later call took 101.0ms at least"), "{slow}");
    }

    #[test]
    fn a_call_that_hangs_is_given_up() {
        let begun = Instant::now();
        let hung = measured_within(20 * MS, |wire| {
            Gate::First(wire).pass();
            let _never = wire.done.recv();
            let _never = wire.done.recv();
        });
        assert_eq!(hung.wrong.as_deref(), Some("HANGS: no answer in 20ms"));
        assert!(begun.elapsed() < SOON);
    }

    #[test]
    fn a_cell_that_panics_is_wrong() {
        let panicked = measured(|wire| {
            Gate::First(wire).pass();
            panic!("on purpose");
        });
        assert_eq!(panicked.wrong.as_deref(), Some("no answer: it panicked"));
    }

    #[test]
    fn an_error_is_wrong() {
        let wrong = measured(|wire| {
            Gate::First(wire).pass();
            wire.say(Event::First(MS));
            wire.say(Event::Wrong("Unreachable".into()));
        });
        assert_eq!(wrong, Measured { first: Some(MS), again: None, wrong: Some("Unreachable".into()) });
    }
}
