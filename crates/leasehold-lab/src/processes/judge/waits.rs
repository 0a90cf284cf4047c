//! The waits of all workers.
//!
//! A waiter may have to wait for the leases of several processes that die one after the other. So the bound is not one for
//! the whole wait: it is for each part of it in which no process dies.

use std::collections::{BTreeMap, HashMap};

use super::Lives;
use crate::processes::notes::{Event, Note, WorkerId};
use crate::processes::scene::{LEASE, Scene, WAIT_MAX};

/// A wait, until it ended or its process died.
#[derive(Clone, Copy, Debug)]
struct Wait {
    who: WorkerId,
    from_us: u64,
    until_us: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Entered,
    Unserved,
    Stopped,
    Died,
    /// The wait had not ended at the last note.
    Open,
}

/// The longest waits of a run, and the violations.
#[derive(Debug, Default)]
pub(super) struct Waits {
    pub(super) longest_us: u64,
    pub(super) longest_part_us: u64,
    pub(super) violations: Vec<String>,
}

pub(super) fn judge(scene: Scene, notes: &[Note], lives: &Lives) -> Waits {
    let all = waits(notes, lives);
    let mut changes: Vec<u64> = lives.deaths.values().copied().collect();
    if scene.needs_all() {
        // There, a waiter may need a process that was killed, so the bound begins anew when it starts again.
        changes.extend(&lives.restarts);
    }
    changes.sort_unstable();
    let mut judged = Waits::default();
    for wait in &all {
        if wait.end != End::Died {
            judged.longest_us = judged.longest_us.max(wait.until_us - wait.from_us);
        }
        let part_us = longest_part_us(wait, &changes);
        judged.longest_part_us = judged.longest_part_us.max(part_us);
        if u128::from(part_us) > WAIT_MAX.as_micros() {
            let WorkerId { number, life } = wait.who;
            let process = format!("process {number}.{life}");
            judged.violations.push(format!("{process} waited for {part_us} us, and no process died meanwhile"));
        }
    }
    if scene == Scene::Rounds {
        judged.violations.extend(early_starts(scene, &all));
    }
    judged
}

fn waits(notes: &[Note], lives: &Lives) -> Vec<Wait> {
    let (mut open, mut waits) = (HashMap::new(), Vec::new());
    for note in notes {
        let end = match note.event {
            Event::Wait => {
                open.insert(note.who, note.at_us);
                continue;
            }
            Event::Enter(_) => End::Entered,
            Event::Unserved => End::Unserved,
            Event::Stopped => End::Stopped,
            _ => continue,
        };
        if let Some(from_us) = open.remove(&note.who) {
            waits.push(Wait { who: note.who, from_us, until_us: note.at_us, end });
        }
    }
    // The waits that are left ended when their processes died, or were open at the last note. A death is recorded just
    // before the signal is sent, so the process may have written a note after that time.
    let last_us = notes.last().map_or(0, |note| note.at_us);
    waits.extend(open.into_iter().map(|(who, from_us)| {
        let (until_us, end) = lives.deaths.get(&who).map_or((last_us, End::Open), |death_us| (*death_us, End::Died));
        Wait { who, from_us, until_us: until_us.max(from_us), end }
    }));
    waits
}

/// Returns the longest part of a wait without a change.
fn longest_part_us(wait: &Wait, changes: &[u64]) -> u64 {
    let first = changes.partition_point(|change_us| *change_us <= wait.from_us);
    let inside = changes[first..].iter().copied().take_while(|change_us| *change_us < wait.until_us);
    let mut since_us = wait.from_us;
    inside.chain([wait.until_us]).fold(0, |longest_us, at_us| {
        let part_us = at_us - since_us;
        since_us = at_us;
        longest_us.max(part_us)
    })
}

/// Finds processes that began a round before enough others had arrived. A barrier may count a process that has just died,
/// and the process that replaces it, too. It also counts one that has just stopped, until the departure has arrived.
fn early_starts(scene: Scene, all: &[Wait]) -> Vec<String> {
    let grace_us = u64::try_from(LEASE.as_micros()).expect("a short time");
    let counts_until_us =
        |wait: &Wait| wait.until_us + if matches!(wait.end, End::Died | End::Stopped) { grace_us } else { 0 };
    let mut by_worker: BTreeMap<WorkerId, Vec<Wait>> = BTreeMap::new();
    all.iter().for_each(|wait| by_worker.entry(wait.who).or_default().push(*wait));
    by_worker.values_mut().for_each(|its| its.sort_unstable_by_key(|wait| wait.from_us));
    let mut violations = Vec::new();
    for one in all.iter().filter(|wait| wait.end == End::Entered) {
        // Of the waits of a worker that began before this round did, the last one ended last.
        let last = |its: &[Wait]| its[..its.partition_point(|wait| wait.from_us <= one.until_us)].last().copied();
        let before: Vec<_> = by_worker.values().filter_map(|its| last(its)).collect();
        let arrived = before.iter().filter(|wait| counts_until_us(wait) >= one.from_us).count();
        if arrived < scene.processes() {
            let who = super::words(one.who);
            violations.push(format!(
                "{who} waited from {} to {} us and began a round, and only {arrived} had arrived: {before:?}",
                one.from_us, one.until_us
            ));
        }
    }
    violations
}
