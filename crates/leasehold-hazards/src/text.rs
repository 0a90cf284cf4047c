//! Scenes and timelines as text, for terminals and pages.

use crate::judge::{Harm, Observable};
use crate::redis::seconds;
use crate::scene::{Scene, Timeline};
use crate::world::{Action, Found, Row};

impl Harm {
    /// Tells the harm in a sentence.
    #[must_use]
    pub fn tell(&self, names: &[String]) -> String {
        let name = |thread: usize| names.get(thread).map_or("a thread", String::as_str);
        match *self {
            Self::Overlap(first, second) => {
                format!("{} and {} are in their critical sections at the same time.", name(first), name(second))
            }
            Self::Overstay(first, second) => {
                format!("{} enters, and {} is still in its critical section.", name(second), name(first))
            }
            Self::StaleWrite(thread) => format!("{} writes after a later holder has written.", name(thread)),
            Self::TokenOrder(thread) => format!("The token of {} is too small.", name(thread)),
            Self::Refused(thread) => format!("The fence refuses the write of {}.", name(thread)),
            Self::ShutOut(thread) => {
                format!("The fence refuses the write of {}, although nobody has entered after it.", name(thread))
            }
            Self::Idle(ms) => format!("Somebody waits, and nobody has held the lock for {} s.", seconds(ms)),
            Self::Overtaken(thread, times) => format!("{} has been overtaken {times} times.", name(thread)),
            Self::Woken(clients) => format!("One release has woken {clients} clients."),
            Self::Overrun(thread, ms) => {
                format!("{} still waits, {} s after its limit.", name(thread), seconds(ms))
            }
        }
    }
}

impl Timeline {
    /// Returns the timeline as a table with columns for the time, the actor, the action, and the contents of the servers.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut cells = vec![["time", "who", "what", "the server holds then"].map(str::to_owned)];
        let mut before_ms = None;
        for row in &self.rows {
            let time = if before_ms == Some(row.at_ms) { String::new() } else { format!("{} s", seconds(row.at_ms)) };
            before_ms = Some(row.at_ms);
            cells.push([time, row.actor.clone(), self.tell(row), row.holds.clone()]);
        }
        table(&cells)
    }

    /// Tells the action of a row, its reply, and the threads that the server sends a message.
    #[must_use]
    pub fn tell(&self, row: &Row) -> String {
        let reply = row.reply.as_ref().map_or_else(String::new, |reply| format!(" → {reply}"));
        let receivers: Vec<_> = match &row.action {
            Action::Command(_, _, receivers) => {
                let others = receivers.iter().filter(|receiver| row.thread != Some(**receiver));
                others.map(|receiver| self.names[*receiver].clone()).collect()
            }
            _ => vec![],
        };
        let messages = match receivers.len() {
            0 => String::new(),
            1 => format!(", message to {}", receivers[0]),
            _ => format!(", messages to {}", list(&receivers)),
        };
        format!("{}{reply}{messages}", row.what)
    }
}

impl Scene {
    /// Tells what the search of all schedules of Leasehold found: the exclusion, and the resource that checks tokens.
    #[must_use]
    pub fn tell_ours(&self, found: &Found) -> [String; 2] {
        let broken_by = found.schedule.as_ref().map(|(_, harm)| *harm);
        let exclusion = match (broken_by, found.overlaps(), self.ours.permits) {
            (Some(Harm::Overlap(..) | Harm::Overstay(..)), ..) => "BROKEN: two holders".to_owned(),
            (_, 0, _) => "never two holders".to_owned(),
            (.., overlaps, permits) => {
                format!("two holders {overlaps} times, as documented ({})", permits.unwrap_or_default())
            }
        };
        let fenced = match (broken_by, found.refused()) {
            (Some(Harm::TokenOrder(_)), _) => "BROKEN: a token is too small".to_owned(),
            (_, 0) => "no late write".to_owned(),
            (_, late) => format!("{late} late writes{}, and each is refused", self.why_late()),
        };
        [exclusion, fenced]
    }

    /// Tells why a write can come late, unless that follows from the two holders.
    pub(crate) const fn why_late(&self) -> &'static str {
        match self.ours.permits {
            Some(_) => "",
            None => " (no lock can recall a write that has left)",
        }
    }

    /// Tells the worst that the search of Leasehold's schedules has met, if the scene is not about exclusion: the longest
    /// stall, the number of messages of a release, and so on.
    #[must_use]
    pub fn tell_worst(&self, found: &Found) -> Option<String> {
        match &found.schedule {
            Some((_, harm)) if self.seeks.measure(*harm).is_some() => Some(format!("BROKEN: {}", self.seeks)),
            _ => self.seeks.tell(found.largest),
        }
    }
}

impl Observable {
    /// Tells the largest harm of this kind, if it has a size.
    #[must_use]
    pub fn tell(self, largest: u64) -> Option<String> {
        match self {
            Self::Overlap | Self::Overstay => None,
            Self::Stall(_) => Some(format!("{} s without a holder", seconds(largest))),
            Self::Starvation(_) if largest == 0 => Some("never overtaken".into()),
            Self::Starvation(_) if largest == 1 => Some("overtaken once".into()),
            Self::Starvation(_) => Some(format!("overtaken {largest} times")),
            Self::Herd(_) if largest == 1 => Some("one release notifies 1 client".into()),
            Self::Herd(_) => Some(format!("one release notifies {largest} clients")),
            Self::Overrun(_) => Some(format!("a wait ends {} s too late", seconds(largest))),
        }
    }
}

/// Writes names as a list: "A", "A and B", "A, B and C".
pub(crate) fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

/// Aligns columns.
#[must_use]
pub fn table<const N: usize>(cells: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    cells.iter().map(line).collect()
}
