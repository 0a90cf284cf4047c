//! The notes of a trial: everything that happened, for the judge.

use std::fmt;
use std::time::Duration;

use super::ms;
use super::words::{News, Slot};
use crate::client::{Held, Mark, ThreadId};
use crate::judge::{Harm, Judge};

/// The judge looks at the time this often.
const TICK: Duration = Duration::from_millis(10);
/// More slots than any worker has.
const SLOTS: usize = 8;

/// A thread of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    pub(super) worker: usize,
    pub(super) slot: Slot,
}

impl Who {
    /// Returns another thread of the same worker.
    pub(super) const fn sibling(self) -> Self {
        Self { slot: self.slot + 1, ..self }
    }

    const fn thread(self) -> ThreadId {
        self.worker * SLOTS + self.slot
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worker = u32::try_from(self.worker).unwrap_or(0);
        write!(f, "thread {} of {}", self.slot + 1, char::from_u32('A' as u32 + worker).unwrap_or('?'))
    }
}

/// Something that happened to a thread.
#[derive(Clone, Debug)]
pub(super) enum Note {
    News(News),
    /// A server has certainly seen the request of the thread.
    IsKnown,
    Dies,
    /// One release has sent messages to this many workers.
    Woken(usize),
}

/// Tells the judge of everything, in the order in which it happened.
pub(super) fn judge(notes: &[(Duration, Who, Note)]) -> Vec<Harm> {
    let (mut judge, mut harm) = (Judge::default(), Vec::new());
    let mut time = notes.first().map_or(Duration::ZERO, |(at, ..)| *at);
    for (at, who, note) in notes {
        while time < *at {
            harm.extend(judge.time(ms(time), |_| false));
            time = (time + TICK).min(*at);
        }
        let (at_ms, thread) = (ms(*at), who.thread());
        match note {
            Note::IsKnown => judge.command(at_ms, thread),
            Note::Dies => judge.dies(thread),
            Note::Woken(count) => harm.extend(judge.published(*count)),
            Note::News(News::Writes(token)) => harm.extend(judge.write(thread, Some(*token)).1),
            Note::News(News::Checked(true)) => harm.extend(judge.checks(at_ms, thread)),
            Note::News(news) => {
                let marks = marks(news);
                harm.extend(marks.into_iter().flat_map(|mark| judge.mark(at_ms, thread, mark)));
            }
        }
        harm.extend(judge.time(at_ms, |_| false));
    }
    harm
}

/// Returns what an event is to the judge.
fn marks(news: &News) -> Vec<Mark> {
    match *news {
        News::Wants(limit_ms) => vec![Mark::Wants(limit_ms), Mark::Asks],
        News::Enters(token, until) => {
            let held = Held { token: Some(token), lease_ms: None, until_ms: Some(ms(until)) };
            vec![Mark::Enters(held)]
        }
        News::Believes(until) => vec![Mark::Believes(ms(until))],
        News::GivesUp => vec![Mark::GivesUp],
        News::Leaves => vec![Mark::Leaves],
        News::Ready(_) | News::Checked(_) | News::Writes(_) | News::Released | News::Failed(_) => vec![],
    }
}
