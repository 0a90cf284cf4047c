//! Messages on standard error. A thread of its own writes them, because the reader may block. A supervisor that blocks does
//! not send renewals to its minder, and would lose the lock for a pager that nobody scrolls.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How long to wait until the last message is written.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A message, and a sender that is dropped when it is written.
type Line = (String, Option<Sender<()>>);

pub(crate) struct Teller {
    is_quiet: bool,
    /// The writer thread. It is started for the first message.
    voice: Option<(Sender<Line>, Receiver<()>)>,
}

impl Teller {
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_quiet, voice: None }
    }

    /// Prints a notice, unless the run is quiet.
    pub(crate) fn news(&mut self, what: &str) {
        if !self.is_quiet {
            self.error(what);
        }
    }

    /// Prints a notice, and waits for a limited time until it is written: the whole job is stopped next.
    pub(crate) fn news_now(&mut self, what: &str) {
        let (said, is_said) = mpsc::channel();
        if !self.is_quiet {
            self.say(what, Some(said));
            let _said_or_nobody_reads = is_said.recv_timeout(LAST_WORDS);
        }
    }

    /// Prints an error.
    pub(crate) fn error(&mut self, what: &str) {
        self.say(what, None);
    }

    fn say(&mut self, what: &str, said: Option<Sender<()>>) {
        let line = format!("leasehold: {what}\n");
        if self.voice.is_none() {
            self.voice = begin();
        }
        match &self.voice {
            Some((voice, _)) => drop(voice.send((line, said))),
            None => drop(io::stderr().write_all(line.as_bytes())),
        }
    }

    /// Waits for a limited time until everything is written.
    pub(crate) fn finish(self) {
        if let Some((voice, has_ended)) = self.voice {
            drop(voice);
            let _ended_or_nobody_reads = has_ended.recv_timeout(LAST_WORDS);
        }
    }
}

fn begin() -> Option<(Sender<Line>, Receiver<()>)> {
    let (voice, lines) = mpsc::channel::<Line>();
    let (ends, has_ended) = mpsc::channel::<()>();
    let speak = move || {
        for (line, _said_when_dropped) in lines {
            let _nobody_reads_it = io::stderr().write_all(line.as_bytes());
        }
        drop(ends);
    };
    thread::Builder::new().name("teller".into()).spawn(speak).ok()?;
    Some((voice, has_ended))
}
