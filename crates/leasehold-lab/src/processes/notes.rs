//! The lines that workers append to one file.
//!
//! Each line is one write, so the kernel puts it behind all lines before. A line begins with a line feed, too: a process
//! that is killed during its write may leave a part of a line, which must not spoil the next one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use leasehold_testkit::boottime_us;
use serde::{Deserialize, Serialize};

/// A worker process: its number, and how many processes had this number before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct WorkerId {
    pub(crate) number: usize,
    pub(crate) life: u64,
}

/// How a section uses a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Share {
    Alone,
    Shared,
    /// This many of the units that a semaphore guards.
    Units(u32),
}

/// A resource of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Use {
    pub(crate) resource: usize,
    pub(crate) share: Share,
    pub(crate) token: u64,
}

/// How a section ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    /// The lease was valid to the end.
    Whole,
    /// The guard reported that its lease was lost.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The process begins to wait.
    Wait,
    /// The wait has ended with a section.
    Enter(Vec<Use>),
    /// The wait has ended without a section: its time was over, or its round was broken.
    Unserved,
    /// The wait has ended because the process has to stop.
    Stopped,
    Leave(Ending),
    /// The two halves of a record differ, as they do if a writer died between them.
    Torn {
        resource: usize,
    },
    /// The state is not what the locks promise.
    Wrong(String),
}

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) who: WorkerId,
    /// Counts the sections of this process.
    pub(crate) section: u64,
    pub(crate) at_us: u64,
    pub(crate) event: Event,
}

/// Appends the lines of one worker.
#[derive(Debug)]
pub(crate) struct Notes {
    who: WorkerId,
    file: File,
}

impl Notes {
    pub(crate) fn append_to(path: &Path, who: WorkerId) -> io::Result<Self> {
        Ok(Self { who, file: File::options().create(true).append(true).open(path)? })
    }

    pub(crate) fn write(&mut self, section: u64, event: Event) {
        let note = Note { who: self.who, section, at_us: boottime_us(), event };
        let line = serde_json::to_string(&note).expect("a note is plain data");
        self.file.write_all(format!("\n{line}\n").as_bytes()).expect("a directory of the lab can be written");
    }
}

/// Reads the lines. Returns how many are only parts of lines, too.
pub(crate) fn read(path: &Path) -> io::Result<(Vec<Note>, usize)> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        text => text?,
    };
    let (mut notes, mut parts) = (Vec::new(), 0);
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(note) => notes.push(note),
            Err(_) => parts += 1,
        }
    }
    Ok((notes, parts))
}
