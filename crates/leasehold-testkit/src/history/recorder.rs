//! Records a history, with every time read on the side that makes the claim smaller.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Answered, Ended, Event, Fenced, GaveUp, History, Promise, Share, line};
use crate::clock::boottime_us;

/// Records the actions of clients. Clones write to the same history, by the same clock.
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

    /// Appends events to a file, each at once. Each process needs its own file.
    pub fn append_to(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self::to(Sink::File(file)))
    }

    fn to(sink: Sink) -> Self {
        Self { sink: Arc::new(Mutex::new(sink)), clock: Arc::new(boottime_us), attempts: Arc::default() }
    }

    /// Reads times from this clock, in microseconds, instead of the machine's: for virtual time.
    #[must_use]
    pub fn on_clock(mut self, now_us: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        self.clock = Arc::new(now_us);
        self
    }

    /// Returns the time by this recorder's clock.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        (self.clock)()
    }

    /// Returns the events recorded so far.
    ///
    /// # Panics
    /// For a recorder that writes to a file: use [`History::read`] instead.
    #[must_use]
    pub fn history(&self) -> History {
        match &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Memory(events) => History { events: events.clone() },
            Sink::File(_) => panic!("this recorder writes to a file: read the history from there"),
        }
    }

    /// Records an event.
    ///
    /// # Panics
    /// When the file cannot be written: a history with missing events would look like a good one.
    pub fn record(&self, event: Event) {
        match &mut *self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Memory(events) => events.push(event),
            Sink::File(file) => {
                let written = line(&event).and_then(|line| file.write_all(&line));
                written.expect("the history can be written");
            }
        }
    }

    /// Records that an attempt begins. Call it before the lock is requested. No two clients of a history, in any
    /// process, may have the same name.
    ///
    /// The attempt is open until its result is recorded, or until its client [died](Recorder::died). An attempt that is
    /// only dropped counts as a client that waits forever.
    pub fn attempt(&self, name: &str, client: &str) -> Attempt {
        let asked_us = self.now_us();
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let (name, client) = (name.to_owned(), client.to_owned());
        self.record(Event::Asked { name: name.clone(), client: client.clone(), attempt, at_us: asked_us });
        let share = Share::Exclusive;
        Attempt { recorder: self.clone(), name, client, attempt, share, asked_us, queued_us: None }
    }

    /// Declares that a promise does not hold for this name, from now on and for this long.
    pub fn excuse(&self, name: &str, breaks: Promise, within: Duration, why: &str) {
        let from_us = self.now_us();
        let to_us = from_us + u64::try_from(within.as_micros()).expect("less than half a million years");
        self.record(Event::Fault { name: name.into(), breaks, from_us, to_us, why: why.into() });
    }

    /// Records a fault that the system must bear. Call it before the fault is injected.
    pub fn injected(&self, fault: &str) {
        self.record(Event::Injected { fault: fault.into(), at_us: self.now_us() });
    }

    /// Records that the last fault is over. Every waiter must be served in time from now on.
    pub fn healed(&self) {
        self.record(Event::Healed { at_us: self.now_us() });
    }

    /// Records that this client is surely dead.
    pub fn died(&self, client: &str) {
        self.record(Event::Died { client: client.into(), at_us: self.now_us() });
    }

    /// Records the amount of residue at the end, also if it is 0: that shows that the test has checked.
    pub fn residue(&self, what: &str, count: u64) {
        self.record(Event::Residue { what: what.into(), count });
    }
}

/// An attempt to get a lock.
#[derive(Clone, Debug)]
#[must_use = "record the result of the attempt"]
pub struct Attempt {
    recorder: Recorder,
    name: String,
    client: String,
    attempt: u64,
    share: Share,
    asked_us: u64,
    queued_us: Option<u64>,
}

impl Attempt {
    /// Sets which part of the name the attempt requests. The default is the whole name.
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Records that the attempt is now known to be in the queue.
    pub fn queued(&mut self) {
        self.queued_us.get_or_insert_with(|| self.recorder.now_us());
    }

    /// Records that the attempt was granted with this token.
    pub fn granted(self, token: u64) -> Held {
        let Self { recorder, name, client, attempt, share, asked_us, queued_us } = self;
        let granted_us = recorder.now_us();
        let held = Held { recorder, name: name.clone(), client: client.clone(), token, granted_us };
        held.recorder.record(Event::Granted { name, client, attempt, token, share, asked_us, queued_us, granted_us });
        held
    }

    /// Records that the attempt ended without a grant.
    pub fn gave_up(self, why: GaveUp) {
        let Self { recorder, name, client, attempt, .. } = self;
        let at_us = recorder.now_us();
        recorder.record(Event::GaveUp { name, client, attempt, at_us, why });
    }
}

/// A grant of a lock, current or past.
#[derive(Clone, Debug)]
pub struct Held {
    recorder: Recorder,
    name: String,
    client: String,
    token: u64,
    granted_us: u64,
}

impl Held {
    /// Asks the holder whether its lease is valid, and records a yes with the time before the question.
    pub fn claims(&self, is_valid: impl FnOnce() -> bool) -> bool {
        let at_us = self.recorder.now_us();
        let valid = is_valid();
        if valid {
            let (name, client) = self.identity();
            self.recorder.record(Event::Claimed { name, client, token: self.token, at_us });
        }
        valid
    }

    /// Records the end of the grant. Call it before the release, or after the client was notified of the loss.
    pub fn ended(&self, how: Ended) {
        let ((name, client), at_us) = (self.identity(), self.recorder.now_us());
        self.recorder.record(Event::Ended { name, client, token: self.token, at_us, how });
    }

    /// Records the reply of the fenced register.
    pub fn fenced(&self, answer: Fenced) {
        let ((name, client), at_us) = (self.identity(), self.recorder.now_us());
        self.recorder.record(Event::Fenced { name, client, token: self.token, at_us, answer });
    }

    /// Begins an update of the unfenced register. Call it before the register is read.
    #[must_use = "record the write"]
    pub fn counting(&self) -> Counting<'_> {
        Counting { held: self, read_us: self.recorder.now_us() }
    }

    /// Records a write of `read + 1` to the unfenced register, which was read some time after the grant.
    pub fn counted(&self, read: u64, answer: Answered) {
        Counting { held: self, read_us: self.granted_us }.wrote(read, answer);
    }

    /// Reads the unfenced register under a shared grant, and records the number if there is one.
    pub fn read(&self, read: impl FnOnce() -> Option<u64>) -> Option<u64> {
        let read_us = self.recorder.now_us();
        let number = read()?;
        let ((name, client), token, at_us) = (self.identity(), self.token, self.recorder.now_us());
        self.recorder.record(Event::Read { name, client, token, read_us, at_us, number });
        Some(number)
    }

    fn identity(&self) -> (String, String) {
        (self.name.clone(), self.client.clone())
    }
}

/// A read of the unfenced register, and the write that follows.
#[derive(Debug)]
pub struct Counting<'a> {
    held: &'a Held,
    read_us: u64,
}

impl Counting<'_> {
    /// Records that `read + 1` was written after `read` was read.
    pub fn wrote(self, read: u64, answer: Answered) {
        let Self { held, read_us } = self;
        let ((name, client), token, at_us) = (held.identity(), held.token, held.recorder.now_us());
        held.recorder.record(Event::Counted { name, client, token, read_us, at_us, read, answer });
    }
}
