//! A client's history file: the checker's events, with the lab's own notes between them.
//!
//! A process that is killed during a write has recorded no reply, and the write may have been carried out. So the
//! intention is noted first. If no reply follows, the write is taken as unanswered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_testkit::boottime_us;
use leasehold_testkit::history::{Event, Fenced, Promise};
use serde::{Deserialize, Serialize};

/// A line of a client's file that is not an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case")]
pub(crate) enum Note {
    /// A write to the fenced register, which refuses old tokens, is about to be sent.
    Fencing { name: String, client: String, token: u64, at_us: u64 },
    /// A write to the unfenced register is about to be sent.
    Counting { name: String, client: String, at_us: u64 },
    /// A call has returned. Its duration and result are promised while no store is broken.
    Called(Call),
}

/// A call that has returned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) client: String,
    pub(crate) what: String,
    pub(crate) began_us: u64,
    pub(crate) ended_us: u64,
    /// How long its caller was willing to wait for the lock.
    pub(crate) wait_us: u64,
    /// The longest duration that is allowed.
    pub(crate) within_us: u64,
    /// The kind of its error.
    pub(crate) error: Option<String>,
}

/// The contents of the file of one process.
#[derive(Debug, Default)]
pub(crate) struct ClientFile {
    pub(crate) events: Vec<Event>,
    pub(crate) calls: Vec<Call>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Event(Event),
    Note(Note),
}

/// Writes notes into the file of a recorder. Both append whole lines.
#[derive(Clone, Debug)]
pub(crate) struct Notes(Arc<Mutex<File>>);

impl Notes {
    pub(crate) fn append_to(path: &Path) -> io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(File::options().create(true).append(true).open(path)?))))
    }

    pub(crate) fn fencing(&self, name: &str, client: &str, token: u64) {
        self.write(&Note::Fencing { name: name.into(), client: client.into(), token, at_us: boottime_us() });
    }

    pub(crate) fn counting(&self, name: &str, client: &str) {
        self.write(&Note::Counting { name: name.into(), client: client.into(), at_us: boottime_us() });
    }

    pub(crate) fn called(&self, call: Call) {
        self.write(&Note::Called(call));
    }

    fn write(&self, note: &Note) {
        let mut line = serde_json::to_vec(note).expect("a note is plain data");
        line.push(b'\n');
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&line).expect("a history with holes would pass for a good one");
    }
}

/// Reads the file of one process. For a killed process, events are added for the requests that were in flight at its
/// end: `now_us` is a time when it was surely dead.
pub(crate) fn read(path: &Path, now_us: u64) -> io::Result<ClientFile> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let ClientFile { mut events, mut calls } = ClientFile::default();
    // Each client of the process writes one thing at a time.
    let (mut fencing, mut counting) = (BTreeMap::new(), BTreeMap::new());
    for line in whole.lines() {
        match serde_json::from_str(line)? {
            Line::Note(Note::Fencing { name, client, token, at_us }) => {
                fencing.insert(client, (name, token, at_us));
            }
            Line::Note(Note::Counting { name, client, at_us }) => {
                counting.insert(client, (name, at_us));
            }
            Line::Note(Note::Called(call)) => calls.push(call),
            Line::Event(event) => {
                match &event {
                    Event::Fenced { client, .. } => drop(fencing.remove(client)),
                    Event::Counted { client, .. } => drop(counting.remove(client)),
                    _ => {}
                }
                events.push(event);
            }
        }
    }
    let unanswered = fencing.into_iter().map(|(client, (name, token, at_us))| Event::Fenced {
        name,
        client,
        token,
        at_us,
        answer: Fenced::Unknown,
    });
    events.extend(unanswered);
    let killed = counting.into_values().map(|(name, from_us)| Event::Fault {
        name,
        breaks: Promise::UnfencedWrites,
        from_us,
        to_us: now_us,
        why: "its writer was killed with a write in flight".into(),
    });
    events.extend(killed);
    Ok(ClientFile { events, calls })
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::Recorder;
    use leasehold_testkit::history::Answered;

    use super::*;

    #[test]
    fn requests_in_flight_at_the_end_get_events() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("c1.1");
        let recorder = Recorder::append_to(&path).expect("a file");
        let notes = Notes::append_to(&path).expect("a file");
        let held = recorder.attempt("n", "c1.1/t1").granted(7);
        notes.fencing("n", "c1.1/t1", 7);
        held.fenced(Fenced::Accepted(1));
        notes.counting("n", "c1.1/t1");
        held.counted(0, Answered::Acknowledged);
        assert_eq!(read(&path, 1).expect("whole").events.len(), 4, "every write has a reply");
        notes.fencing("n", "c1.1/t1", 7);
        notes.counting("n", "c1.1/t2");
        let call = Call {
            client: "c1.1/t3".into(),
            what: "lock".into(),
            began_us: 1,
            ended_us: 2,
            wait_us: 0,
            within_us: 3,
            error: Some("Unreachable".into()),
        };
        notes.called(call.clone());
        notes.0.lock().expect("sound").write_all(b"{\"event\":").expect("appended");
        let file = read(&path, 1 << 50).expect("the last line is left out");
        assert_eq!(file.calls, [call]);
        let events = file.events;
        assert!(matches!(&events[4], Event::Fenced { answer: Fenced::Unknown, token: 7, .. }), "{events:?}");
        assert!(matches!(&events[5], Event::Fault { breaks: Promise::UnfencedWrites, .. }), "{events:?}");
        assert_eq!(events.len(), 6);
    }
}
