//! A scene: a lock of a tutorial, the processes that use it, the faults that it meets, and the harm that follows.

use crate::client::ThreadId;
use crate::judge::{Harm, Observable};
use crate::scenes;
use crate::world::{Bounds, Choice, Found, Row, Search, Stage, Verdict};

/// One hazard, as a lock of a tutorial meets it.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The short name, such as H3.
    pub id: &'static str,
    /// The hazard in a few words.
    pub title: &'static str,
    /// The lock in a few words.
    pub lock: &'static str,
    /// The schedule that does harm, told in words.
    pub story: &'static str,
    /// The mechanism by which Leasehold prevents the harm.
    pub remedy: &'static str,
    /// The harm that the scene looks for.
    pub seeks: Observable,
    /// The processes with the lock of the tutorial.
    pub flawed: fn(&mut Stage),
    /// Processes with Leasehold that meet the same faults.
    pub ours: Ours,
    /// The faults, and the bounds of the search.
    pub bounds: Bounds,
}

/// A scene with Leasehold.
#[derive(Clone, Copy, Debug)]
pub struct Ours {
    /// The store, such as `redis://`.
    pub store: &'static str,
    /// The processes.
    pub stage: fn(&mut Stage),
    /// The guarantee of the store that permits the harm. `None`: the harm must not happen.
    pub permits: Option<&'static str>,
}

/// The results of both searches of a scene.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The search for the harm of the tutorial's lock.
    pub flawed: Found,
    /// The search of all schedules of Leasehold's.
    pub ours: Found,
}

/// A schedule, played and written down.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The names of the threads.
    pub names: Vec<String>,
    /// The process of each thread, and the time by which its clock is ahead, in milliseconds.
    pub processes: Vec<(usize, u64)>,
    /// The lines.
    pub rows: Vec<Row>,
}

impl Scene {
    /// Returns all scenes.
    #[must_use]
    pub fn all() -> &'static [Self] {
        scenes::ALL
    }

    /// Returns the scene with this short name, in capitals or not.
    #[must_use]
    pub fn find(id: &str) -> Option<&'static Self> {
        Self::all().iter().find(|scene| scene.id.eq_ignore_ascii_case(id))
    }

    /// Returns the search with the lock of the tutorial.
    #[must_use]
    pub fn flawed_search(&self) -> Search {
        Search { stage: self.flawed, bounds: self.bounds, most_states: Search::MOST_STATES }
    }

    /// Returns the search with Leasehold.
    #[must_use]
    pub fn our_search(&self) -> Search {
        Search { stage: self.ours.stage, bounds: self.bounds, most_states: Search::MOST_STATES }
    }

    /// Searches for the shortest schedule that breaks the lock of the tutorial.
    #[must_use]
    pub fn break_it(&self) -> Found {
        let seeks = self.seeks;
        self.flawed_search().run(|harm| if seeks.is_met_by(harm) { Verdict::Ends } else { Verdict::Ignores })
    }

    /// Searches all schedules of Leasehold. The search ends if it finds a harm that no guarantee permits.
    #[must_use]
    pub fn try_ours(&self) -> Found {
        self.try_ours_up_to(Search::MOST_STATES)
    }

    /// Searches schedules of Leasehold until this many states are reached. The shorter ones come first.
    #[must_use]
    pub fn try_ours_up_to(&self, most_states: usize) -> Found {
        let (seeks, permits) = (self.seeks, self.ours.permits);
        let search = Search { most_states, ..self.our_search() };
        search.run(|harm| match harm {
            Harm::TokenOrder(_) => Verdict::Ends,
            Harm::ShutOut(_) if permits.is_none() => Verdict::Ends,
            Harm::StaleWrite(_) | Harm::Refused(_) => Verdict::Counts,
            Harm::Overlap(..) | Harm::Overstay(..) if permits.is_some() => Verdict::Counts,
            Harm::Overlap(..) | Harm::Overstay(..) => Verdict::Ends,
            _ if seeks.is_met_by(harm) => Verdict::Ends,
            _ => seeks.measure(harm).map_or(Verdict::Ignores, Verdict::Measures),
        })
    }

    /// Searches both.
    #[must_use]
    pub fn search(&self) -> Findings {
        Findings { flawed: self.break_it(), ours: self.try_ours() }
    }
}

impl Timeline {
    /// Plays a schedule of a search, and writes it down.
    #[must_use]
    pub fn of(search: &Search, schedule: &[Choice]) -> Self {
        let world = search.play_recorded(schedule);
        Self { names: world.names(), processes: world.processes(), rows: world.rows() }
    }

    /// Whether a thread does anything, or waits for anything.
    #[must_use]
    pub fn acts(&self, thread: ThreadId) -> bool {
        self.rows.iter().any(|row| {
            let is_inside = row.inside.iter().chain(&row.late).any(|holder| holder.thread == thread);
            is_inside || row.thread == Some(thread) || row.waiting.iter().any(|waiter| waiter.thread == thread)
        })
    }

    /// Returns the name of a thread in a sentence: the name of its process, if no other thread of the process acts.
    #[must_use]
    pub fn spoken(&self, thread: ThreadId) -> String {
        let name = &self.names[thread];
        let Some((process, number)) = name.split_once(", ") else { return name.clone() };
        let is_other = |other: &ThreadId| *other != thread && self.processes[*other].0 == self.processes[thread].0;
        match (0..self.names.len()).filter(is_other).any(|other| self.acts(other)) {
            true => format!("{number} of {process}"),
            false => process.to_owned(),
        }
    }
}

impl Found {
    /// Returns the length of the schedule that was found.
    #[must_use]
    pub fn steps(&self) -> Option<usize> {
        self.schedule.as_ref().map(|(schedule, _)| schedule.len())
    }

    /// Returns how often two holders were counted.
    #[must_use]
    pub fn overlaps(&self) -> usize {
        self.count(|harm| matches!(harm, Harm::Overlap(..) | Harm::Overstay(..)))
    }

    /// Returns how often the fence refused a write.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.count(|harm| matches!(harm, Harm::Refused(_)))
    }

    /// Returns how often a harm was counted.
    #[must_use]
    pub fn count(&self, is_meant: impl Fn(Harm) -> bool) -> usize {
        self.noted.iter().filter(|(harm, ..)| is_meant(*harm)).map(|(_, times, _)| times).sum()
    }
}
