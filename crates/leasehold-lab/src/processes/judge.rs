//! Judges the lines of all workers.
//!
//! Two sections overlap if one begins before the other has ended, and at least one of them needs the resource alone. A
//! section ends when its process says so, or when its process is killed. An overlap is excused if the guard of the
//! earlier section reported that its lease was lost: such a section may go on for as long as a process can be stopped
//! between two checks.

mod waits;

use std::collections::{BTreeMap, HashMap};

use super::notes::{Ending, Event, Note, Share, Use, WorkerId};
use super::scene::{Scene, Victim};
use super::worker::MACHINES;

/// When processes died, and when new ones replaced them.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// The time of each death, just before the signal.
    pub(crate) deaths: HashMap<WorkerId, u64>,
    pub(crate) restarts: Vec<u64>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// The number of sections that each worker achieved, over all its lives.
    pub(crate) progress: Vec<u64>,
    /// Sections that ended with the death of their process.
    pub(crate) cut: u64,
    /// Sections whose lease was lost, and overlaps that this excuses.
    pub(crate) lost: u64,
    pub(crate) excused: u64,
    /// Records that a killed writer left half written.
    pub(crate) torn: u64,
    pub(crate) longest_wait_us: u64,
    /// The longest part of a wait in which no process died.
    pub(crate) longest_part_us: u64,
    pub(crate) violations: Vec<String>,
}

/// A section that is open on a resource.
#[derive(Clone, Copy, Debug)]
struct Open {
    who: WorkerId,
    section: u64,
    share: Share,
    since_us: u64,
}

/// The state of a resource, as far as the notes show it.
#[derive(Debug, Default)]
struct Resource {
    open: Vec<Open>,
    /// The writer that entered last.
    last: Option<Open>,
    highest: u64,
    highest_alone: u64,
}

struct Judge<'a> {
    deaths: &'a HashMap<WorkerId, u64>,
    endings: HashMap<(WorkerId, u64), Ending>,
    resources: BTreeMap<usize, Resource>,
    verdict: Verdict,
}

/// Judges the lines of a run of this scene.
pub(crate) fn judge(scene: Scene, notes: &[Note], lives: &Lives) -> Verdict {
    let endings = notes.iter().filter_map(|note| match note.event {
        Event::Leave(ending) => Some(((note.who, note.section), ending)),
        _ => None,
    });
    let waits = waits::judge(scene, notes, lives);
    let verdict = Verdict {
        progress: vec![0; scene.processes()],
        longest_wait_us: waits.longest_us,
        longest_part_us: waits.longest_part_us,
        violations: waits.violations,
        ..Verdict::default()
    };
    let mut judge = Judge { deaths: &lives.deaths, endings: endings.collect(), resources: BTreeMap::new(), verdict };
    for note in notes {
        judge.note(note, scene.victim());
    }
    judge.verdict
}

impl Judge<'_> {
    fn note(&mut self, note: &Note, victim: Victim) {
        let counts = match &note.event {
            Event::Wait | Event::Unserved | Event::Stopped => false,
            Event::Enter(uses) => {
                uses.iter().for_each(|used| self.enter(note, *used));
                if !self.endings.contains_key(&(note.who, note.section)) {
                    self.cut(note);
                }
                victim == Victim::Holder
            }
            Event::Leave(ending) => {
                self.leave(note);
                if *ending == Ending::Lost {
                    self.verdict.lost += 1;
                }
                victim == Victim::Anybody && *ending == Ending::Whole
            }
            Event::Torn { resource } => {
                self.torn(note, *resource);
                false
            }
            Event::Wrong(what) => {
                self.verdict.violations.push(format!("{}: {what}", words(note.who)));
                false
            }
        };
        if counts && let Some(progress) = self.verdict.progress.get_mut(note.who.number) {
            *progress += 1;
        }
    }

    /// Counts a section without an end. It is a violation unless its process was killed.
    fn cut(&mut self, note: &Note) {
        self.verdict.cut += 1;
        if !self.deaths.contains_key(&note.who) {
            let who = words(note.who);
            self.verdict.violations.push(format!("{who} never left section {}, and was not killed", note.section));
        }
    }

    fn enter(&mut self, note: &Note, used: Use) {
        let Use { resource: number, share, token } = used;
        let resource = self.resources.entry(number).or_default();
        resource.open.retain(|open| self.deaths.get(&open.who).is_none_or(|death_us| *death_us > note.at_us));
        let mut inside = units(share);
        for other in &resource.open {
            let is_lost = matches!(self.endings.get(&(other.who, other.section)), Some(Ending::Lost));
            inside += if is_lost { 0 } else { units(other.share) };
            let excludes = match (share, other.share) {
                (Share::Shared, Share::Shared) => false,
                (Share::Units(_), Share::Units(_)) => inside > MACHINES,
                _ => true,
            };
            match (excludes, is_lost) {
                (false, _) => {}
                (true, true) => self.verdict.excused += 1,
                (true, false) => self.verdict.violations.push(format!(
                    "{} entered {number} at {} us, while {} was inside since {} us",
                    words(note.who),
                    note.at_us,
                    words(other.who),
                    other.since_us
                )),
            }
        }
        let floor = if share == Share::Alone { resource.highest } else { resource.highest_alone };
        if token <= floor {
            let who = words(note.who);
            self.verdict.violations.push(format!("{who} entered {number} with token {token}, after token {floor}"));
        }
        resource.highest = resource.highest.max(token);
        let open = Open { who: note.who, section: note.section, share, since_us: note.at_us };
        if share == Share::Alone {
            resource.highest_alone = resource.highest_alone.max(token);
            resource.last = Some(open);
        }
        resource.open.push(open);
    }

    fn leave(&mut self, note: &Note) {
        for resource in self.resources.values_mut() {
            resource.open.retain(|open| (open.who, open.section) != (note.who, note.section));
        }
    }

    /// A record is torn. That is right only if the writer before died in its section, or lost its lease there.
    fn torn(&mut self, note: &Note, number: usize) {
        self.verdict.torn += 1;
        let earlier = self.resources.get(&number).and_then(|resource| resource.last);
        let is_cut = earlier.is_some_and(|open| match self.endings.get(&(open.who, open.section)) {
            Some(Ending::Whole) => false,
            Some(Ending::Lost) => true,
            None => self.deaths.get(&open.who).is_some_and(|death_us| *death_us <= note.at_us),
        });
        if !is_cut {
            let who = words(note.who);
            self.verdict.violations.push(format!("{who} read a torn record, and no writer had died"));
        }
    }
}

/// Returns how many units of a semaphore a section uses.
fn units(share: Share) -> u32 {
    if let Share::Units(units) = share { units } else { 0 }
}

fn words(who: WorkerId) -> String {
    format!("process {}.{}", who.number, who.life)
}

#[cfg(test)]
mod tests;
