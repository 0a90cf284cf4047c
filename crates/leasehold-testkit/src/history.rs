//! What clients did and were told: the history that the [checker](crate::checker) judges, apart from the system under
//! test.
//!
//! A history is worth what its times are worth. All are on [`boottime_us`], which every process of a machine shares, and
//! each is read on the side that makes the claim *smaller*: an attempt begins before the call, a grant is complete after
//! it, and a lease was claimed at a time that was read *before* the check that said yes. A checker fed with larger claims
//! would call a correct lock broken; one fed with smaller ones can only miss an overlap of microseconds. [`Recorder`]
//! reads them in that order, so that no test needs to.
//!
//! On disk a history is JSON, one event to a line, written line by line: what a process did before it was killed counts.
//!
//! ```
//! use leasehold_testkit::checker::{Rules, check};
//! use leasehold_testkit::history::{Ended, Recorder};
//!
//! let recorder = Recorder::in_memory();
//! let attempt = recorder.attempt("stock", "client 1");   // before `lock()`
//! let held = attempt.granted(17);                        // after it
//! assert!(held.claims(|| true));                         // `guard.check().is_ok()`
//! held.ended(Ended::Released);                           // before `release()`
//! check(&recorder.history(), &Rules::mutex().at_least(1)).assert_clean();
//! ```

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::clock::boottime_us;

/// One thing that happened to one name. A grant is known by name, client and token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "name, client and token are the same in all of them")]
pub enum Event {
    /// An attempt succeeded. A re-entry is none: it has the token of the grant that it enters again.
    Granted {
        name: String,
        client: String,
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
    /// The client believed that its lease was valid, at this time or later.
    Claimed { name: String, client: String, token: u64, at_us: u64 },
    /// The client stopped believing it, or stopped caring.
    Ended { name: String, client: String, token: u64, at_us: u64, how: Ended },
    /// A write to the register that refuses old tokens.
    Fenced { name: String, client: String, token: u64, at_us: u64, answer: Fenced },
    /// A write of `read + 1` to the register that refuses nothing.
    Counted { name: String, client: String, at_us: u64, read: u64, answer: Answered },
    /// What the fenced register has counted, at the end.
    FinalFenced { name: String, count: u64 },
    /// What the other register has, at the end. It began with 0.
    FinalCounted { name: String, count: u64 },
    /// The test did something against which a promise does not hold, between these times. What then breaks is counted and
    /// is no violation.
    Fault { name: String, breaks: Promise, from_us: u64, to_us: u64, why: String },
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
}

impl Event {
    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Granted { name, .. }
            | Self::Claimed { name, .. }
            | Self::Ended { name, .. }
            | Self::Fenced { name, .. }
            | Self::Counted { name, .. }
            | Self::FinalFenced { name, .. }
            | Self::FinalCounted { name, .. }
            | Self::Fault { name, .. } => name,
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

fn line(event: &Event) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line)
}

/// Takes down what clients do. Clones write to the same history.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Sink>>);

#[derive(Debug)]
enum Sink {
    Memory(Vec<Event>),
    File(File),
}

impl Recorder {
    /// Keeps events in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self(Arc::new(Mutex::new(Sink::Memory(Vec::new()))))
    }

    /// Appends events to a file, each at once. One file for each process.
    pub fn append_to(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Self(Arc::new(Mutex::new(Sink::File(file)))))
    }

    /// What was recorded so far.
    ///
    /// # Panics
    /// For a recorder that writes to a file: [`History::read`] that.
    #[must_use]
    pub fn history(&self) -> History {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Memory(events) => History { events: events.clone() },
            Sink::File(_) => panic!("this recorder writes to a file: read the history from there"),
        }
    }

    /// Takes down an event.
    ///
    /// # Panics
    /// When the file cannot be written: a history with holes would pass for a good one.
    pub fn record(&self, event: Event) {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Sink::Memory(events) => events.push(event),
            Sink::File(file) => {
                let written = line(&event).and_then(|line| file.write_all(&line));
                written.expect("the history can be written");
            }
        }
    }

    /// To be called before a lock is asked for. No two clients of a history, in whatever process, have the same name.
    pub fn attempt(&self, name: &str, client: &str) -> Attempt {
        let (name, client) = (name.to_owned(), client.to_owned());
        Attempt { recorder: self.clone(), name, client, units: 1, asked_us: boottime_us(), queued_us: None }
    }

    /// Declares that from now on, and for so long, a promise does not hold for this name.
    pub fn excuse(&self, name: &str, breaks: Promise, within: std::time::Duration, why: &str) {
        let from_us = boottime_us();
        let to_us = from_us + u64::try_from(within.as_micros()).expect("less than half a million years");
        self.record(Event::Fault { name: name.into(), breaks, from_us, to_us, why: why.into() });
    }
}

/// Somebody asks for a lock.
#[derive(Clone, Debug)]
#[must_use = "say whether it was granted"]
pub struct Attempt {
    recorder: Recorder,
    name: String,
    client: String,
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
        self.queued_us.get_or_insert_with(boottime_us);
    }

    /// It was granted with this token.
    pub fn granted(self, token: u64) -> Held {
        let Self { recorder, name, client, units, asked_us, queued_us } = self;
        let granted_us = boottime_us();
        let (held_name, held_client) = (name.clone(), client.clone());
        recorder.record(Event::Granted { name, client, token, units, asked_us, queued_us, granted_us });
        Held { recorder, name: held_name, client: held_client, token }
    }
}

/// Somebody holds a lock, or did.
#[derive(Clone, Debug)]
pub struct Held {
    recorder: Recorder,
    name: String,
    client: String,
    token: u64,
}

impl Held {
    /// Asks the holder whether its lease is valid, and takes down a yes with the time before the question.
    pub fn claims(&self, is_valid: impl FnOnce() -> bool) -> bool {
        let at_us = boottime_us();
        let valid = is_valid();
        if valid {
            let (name, client) = self.who();
            self.recorder.record(Event::Claimed { name, client, token: self.token, at_us });
        }
        valid
    }

    /// To be called before it is given back, or after its loss was heard of.
    pub fn ended(&self, how: Ended) {
        let (name, client) = self.who();
        self.recorder.record(Event::Ended { name, client, token: self.token, at_us: boottime_us(), how });
    }

    /// Takes down what the fenced register answered.
    pub fn fenced(&self, answer: Fenced) {
        let (name, client) = self.who();
        self.recorder.record(Event::Fenced { name, client, token: self.token, at_us: boottime_us(), answer });
    }

    /// Takes down a write of `read + 1` to the other register.
    pub fn counted(&self, read: u64, answer: Answered) {
        let (name, client) = self.who();
        self.recorder.record(Event::Counted { name, client, at_us: boottime_us(), read, answer });
    }

    fn who(&self) -> (String, String) {
        (self.name.clone(), self.client.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each(recorder: &Recorder) {
        let mut attempt = recorder.attempt("n\n\"ä", "c").units(3);
        attempt.queued();
        let held = attempt.granted((1 << 53) - 1);
        held.claims(|| true);
        held.claims(|| false);
        held.fenced(Fenced::Accepted(1));
        held.fenced(Fenced::Refused);
        held.counted(4, Answered::Unknown);
        held.ended(Ended::Lost("expired".into()));
        recorder.excuse("n", Promise::Exclusion, std::time::Duration::from_secs(1), "the clock jumps");
        recorder.record(Event::FinalFenced { name: "n".into(), count: 1 });
        recorder.record(Event::FinalCounted { name: "n".into(), count: 5 });
    }

    #[test]
    fn a_claim_is_no_later_than_its_question_and_a_grant_no_earlier_than_its_answer() {
        let recorder = Recorder::in_memory();
        let attempt = recorder.attempt("n", "c");
        let asked = boottime_us();
        let held = attempt.granted(1);
        let mut checked = 0;
        held.claims(|| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            checked = boottime_us();
            true
        });
        let events = recorder.history().events;
        let [Event::Granted { asked_us, granted_us, .. }, Event::Claimed { at_us, .. }] = &events[..] else {
            panic!("{events:?}");
        };
        assert!(*asked_us <= asked && asked <= *granted_us && granted_us <= at_us && *at_us < checked, "{events:?}");
    }

    #[test]
    fn a_written_history_reads_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let memory = Recorder::in_memory();
        one_of_each(&memory);
        let history = memory.history();
        assert_eq!(history.events.len(), 9);
        history.write(&path).unwrap();
        assert_eq!(History::read(&path).unwrap(), history);
    }

    #[test]
    fn what_a_killed_process_wrote_last_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        one_of_each(&Recorder::append_to(&path).unwrap());
        let whole = History::read(&path).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"event\":\"gran").unwrap();
        assert_eq!(History::read(&path).unwrap(), whole);
        file.write_all(b"\n").unwrap();
        assert!(History::read(&path).is_err(), "a broken line in the middle is no accident");
    }

    #[test]
    fn parts_of_several_processes_are_one_history() {
        let (one, two) = (Recorder::in_memory(), Recorder::in_memory());
        one_of_each(&one);
        one_of_each(&two);
        let mut history = one.history();
        history.add(two.history());
        assert_eq!(history.events.len(), 18);
    }
}
