//! What is said on standard error, by a thread of its own: whoever reads it may not be reading. A supervisor that stands
//! still in the middle of a deadline renews nothing for its minder, and would lose the lock for a pager that is not
//! scrolled on.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How long the last words are waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// What is said, and who waits for that.
type Line = (String, Option<Sender<()>>);

pub(crate) struct Teller {
    is_quiet: bool,
    /// From the first word on.
    voice: Option<(Sender<Line>, Receiver<()>)>,
}

impl Teller {
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_quiet, voice: None }
    }

    /// What is good to know.
    pub(crate) fn news(&mut self, what: &str) {
        if !self.is_quiet {
            self.error(what);
        }
    }

    /// The same, and waits until it is said, within bounds: all of us are stopped next.
    pub(crate) fn news_now(&mut self, what: &str) {
        let (said, is_said) = mpsc::channel();
        if !self.is_quiet {
            self.say(what, Some(said));
            let _said_or_nobody_reads = is_said.recv_timeout(LAST_WORDS);
        }
    }

    /// What has to be known.
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

    /// Waits until everything is said, within bounds.
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
