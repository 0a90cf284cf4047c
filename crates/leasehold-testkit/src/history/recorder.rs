//! Takes a history down, with every time read on the side that makes the claim smaller.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Answered, Ended, Event, Fenced, GaveUp, History, Promise, line};
use crate::clock::boottime_us;

/// Takes down what clients do. Clones write to the same history, by the same clock.
#[derive(Clone)]
pub struct Recorder {
    sink: Arc<Mutex<Sink>>,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
    attempts: Arc<AtomicU64>,
}

enum Sink {
    Memory(Vec<Event>),
    File(File),
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// Keeps events in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::to(Sink::Memory(Vec::new()))
    }

    /// Appends events to a file, each at once. One file for each process.
    pub fn append_to(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self::to(Sink::File(file)))
    }

    fn to(sink: Sink) -> Self {
        Self { sink: Arc::new(Mutex::new(sink)), clock: Arc::new(boottime_us), attempts: Arc::default() }
    }

    /// Reads times from this clock, in microseconds, in place of the machine's: for virtual time.
    #[must_use]
    pub fn on_clock(mut self, now_us: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(now_us);
        self
    }

    /// The time by this recorder's clock.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        (self.clock)()
    }

    /// What was recorded so far.
    ///
    /// # Panics
    /// For a recorder that writes to a file: [`History::read`] that.
    #[must_use]
    pub fn history(&self) -> History {
        match &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Memory(events) => History { events: events.clone() },
            Sink::File(_) => panic!("this recorder writes to a file: read the history from there"),
        }
    }

    /// Takes down an event.
    ///
    /// # Panics
    /// When the file cannot be written: a history with holes would pass for a good one.
    pub fn record(&self, event: Event) {
        match &mut *self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Memory(events) => events.push(event),
            Sink::File(file) => {
                let written = line(&event).and_then(|line| file.write_all(&line));
                written.expect("the history can be written");
            }
        }
    }

    /// To be called before a lock is asked for. No two clients of a history, in whatever process, have the same name.
    ///
    /// The attempt is open until it is said what became of it, or until its client [died](Recorder::died): one that is
    /// only dropped counts as somebody who waits for ever.
    pub fn attempt(&self, name: &str, client: &str) -> Attempt {
        let asked_us = self.now_us();
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let (name, client) = (name.to_owned(), client.to_owned());
        self.record(Event::Asked { name: name.clone(), client: client.clone(), attempt, at_us: asked_us });
        Attempt { recorder: self.clone(), name, client, attempt, units: 1, asked_us, queued_us: None }
    }

    /// Declares that from now on, and for so long, a promise does not hold for this name.
    pub fn excuse(&self, name: &str, breaks: Promise, within: Duration, why: &str) {
        let from_us = self.now_us();
        let to_us = from_us + u64::try_from(within.as_micros()).expect("less than half a million years");
        self.record(Event::Fault { name: name.into(), breaks, from_us, to_us, why: why.into() });
    }

    /// To be called before a fault that the system must bear is injected.
    pub fn injected(&self, fault: &str) {
        self.record(Event::Injected { fault: fault.into(), at_us: self.now_us() });
    }

    /// To be called when the last fault is over: whoever waits from now on must be served in time.
    pub fn healed(&self) {
        self.record(Event::Healed { at_us: self.now_us() });
    }

    /// To be called when this client is surely dead.
    pub fn died(&self, client: &str) {
        self.record(Event::Died { client: client.into(), at_us: self.now_us() });
    }

    /// How much of it was left at the end, also if that was nothing: it shows that somebody looked.
    pub fn residue(&self, what: &str, count: u64) {
        self.record(Event::Residue { what: what.into(), count });
    }
}

/// Somebody asks for a lock.
#[derive(Clone, Debug)]
#[must_use = "say what became of it"]
pub struct Attempt {
    recorder: Recorder,
    name: String,
    client: String,
    attempt: u64,
    units: u32,
    asked_us: u64,
    queued_us: Option<u64>,
}

impl Attempt {
    /// It asks for so many units of the limit.
    pub fn units(mut self, units: u32) -> Self {
        self.units = units;
        self
    }

    /// It is known to stand in the queue now.
    pub fn queued(&mut self) {
        self.queued_us.get_or_insert_with(|| self.recorder.now_us());
    }

    /// It was granted with this token.
    pub fn granted(self, token: u64) -> Held {
        let Self { recorder, name, client, attempt, units, asked_us, queued_us } = self;
        let granted_us = recorder.now_us();
        let held = Held { recorder, name: name.clone(), client: client.clone(), token, granted_us };
        held.recorder.record(Event::Granted { name, client, attempt, token, units, asked_us, queued_us, granted_us });
        held
    }

    /// It ended without a grant.
    pub fn gave_up(self, why: GaveUp) {
        let Self { recorder, name, client, attempt, .. } = self;
        let at_us = recorder.now_us();
        recorder.record(Event::GaveUp { name, client, attempt, at_us, why });
    }
}

/// Somebody holds a lock, or did.
#[derive(Clone, Debug)]
pub struct Held {
    recorder: Recorder,
    name: String,
    client: String,
    token: u64,
    granted_us: u64,
}

impl Held {
    /// Asks the holder whether its lease is valid, and takes down a yes with the time before the question.
    pub fn claims(&self, is_valid: impl FnOnce() -> bool) -> bool {
        let at_us = self.recorder.now_us();
        let valid = is_valid();
        if valid {
            let (name, client) = self.who();
            self.recorder.record(Event::Claimed { name, client, token: self.token, at_us });
        }
        valid
    }

    /// To be called before it is given back, or after its loss was heard of.
    pub fn ended(&self, how: Ended) {
        let ((name, client), at_us) = (self.who(), self.recorder.now_us());
        self.recorder.record(Event::Ended { name, client, token: self.token, at_us, how });
    }

    /// Takes down what the fenced register answered.
    pub fn fenced(&self, answer: Fenced) {
        let ((name, client), at_us) = (self.who(), self.recorder.now_us());
        self.recorder.record(Event::Fenced { name, client, token: self.token, at_us, answer });
    }

    /// To be called before the other register is read.
    #[must_use = "say what was written"]
    pub fn counting(&self) -> Counting<'_> {
        Counting { held: self, read_us: self.recorder.now_us() }
    }

    /// Takes down a write of `read + 1` to the other register, which was read some time after the grant.
    pub fn counted(&self, read: u64, answer: Answered) {
        Counting { held: self, read_us: self.granted_us }.wrote(read, answer);
    }

    fn who(&self) -> (String, String) {
        (self.name.clone(), self.client.clone())
    }
}

/// A read of the other register, and the write that follows.
#[derive(Debug)]
pub struct Counting<'a> {
    held: &'a Held,
    read_us: u64,
}

impl Counting<'_> {
    /// Takes down that `read + 1` was written, where `read` was read.
    pub fn wrote(self, read: u64, answer: Answered) {
        let ((name, client), at_us) = (self.held.who(), self.held.recorder.now_us());
        self.held.recorder.record(Event::Counted { name, client, read_us: self.read_us, at_us, read, answer });
    }
}
