//! Messages on standard error. A separate thread writes them, because the reader may block. A supervisor that blocks does
//! not send renewals to its minder, and would lose the lock for a pager that nobody scrolls.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How long to wait until the last message is written.
const FLUSH_LIMIT: Duration = Duration::from_millis(500);

/// A message, and a sender that is dropped when it is written.
type Line = (String, Option<Sender<()>>);

pub(crate) struct Printer {
    is_quiet: bool,
    /// The writer thread. It is started for the first message.
    writer: Option<(Sender<Line>, Receiver<()>)>,
}

impl Printer {
    pub(crate) fn new(is_quiet: bool) -> Self {
        Self { is_quiet, writer: None }
    }

    /// Prints a notice, unless the run is quiet.
    pub(crate) fn news(&mut self, what: &str) {
        if !self.is_quiet {
            self.error(what);
        }
    }

    /// Prints a notice, and waits for a limited time until it is written: the whole job is stopped next.
    pub(crate) fn news_now(&mut self, what: &str) {
        let (printed, is_printed) = mpsc::channel();
        if !self.is_quiet {
            self.print(what, Some(printed));
            let _printed_or_nobody_reads = is_printed.recv_timeout(FLUSH_LIMIT);
        }
    }

    /// Prints an error.
    pub(crate) fn error(&mut self, what: &str) {
        self.print(what, None);
    }

    fn print(&mut self, what: &str, printed: Option<Sender<()>>) {
        let line = format!("leasehold: {what}\n");
        if self.writer.is_none() {
            self.writer = begin();
        }
        match &self.writer {
            Some((writer, _)) => drop(writer.send((line, printed))),
            None => drop(io::stderr().write_all(line.as_bytes())),
        }
    }

    /// Waits for a limited time until everything is written.
    pub(crate) fn finish(self) {
        if let Some((writer, has_ended)) = self.writer {
            drop(writer);
            let _ended_or_nobody_reads = has_ended.recv_timeout(FLUSH_LIMIT);
        }
    }
}

fn begin() -> Option<(Sender<Line>, Receiver<()>)> {
    let (writer, lines) = mpsc::channel::<Line>();
    let (ends, has_ended) = mpsc::channel::<()>();
    let write = move || {
        for (line, _printed_when_dropped) in lines {
            let _nobody_reads_it = io::stderr().write_all(line.as_bytes());
        }
        drop(ends);
    };
    thread::Builder::new().name("printer".into()).spawn(write).ok()?;
    Some((writer, has_ended))
}
