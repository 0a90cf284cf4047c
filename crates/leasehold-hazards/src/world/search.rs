//! The search: breadth first, so that the first schedule that it finds is a shortest one.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::choice::{Bounds, Choice};
use super::model::World;
use super::stage::Stage;
use crate::judge::Harm;

/// A search over all schedules of a stage.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Builds the stage. The search builds it again for each schedule that it plays.
    pub stage: fn(&mut Stage),
    /// The bounds of each run.
    pub bounds: Bounds,
    /// The search ends unfinished after this many states.
    pub most_states: usize,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Found {
    /// The shortest schedule that does the harm, and the harm. `None` if no schedule does it.
    pub schedule: Option<(Vec<Choice>, Harm)>,
    /// The number of states that were reached.
    pub states: usize,
    /// Whether all states were reached.
    pub is_whole: bool,
    /// The harm that did not end the search: how often, and the first schedule with it.
    pub noted: Vec<(Harm, usize, Vec<Choice>)>,
    /// The largest size of a harm that was measured.
    pub largest: u64,
    /// The time that the search took.
    pub took: Duration,
}

/// The reaction of the search to a harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The search has found what it looks for.
    Ends,
    /// The search counts it and goes on.
    Counts,
    /// The search remembers its size, if it is the largest one.
    Measures(u64),
    /// The search ignores it.
    Ignores,
}

/// A state, as the choice that leads to it from another one.
struct Node {
    parent: usize,
    choice: Option<Choice>,
}

impl Search {
    /// More states than any scene needs.
    pub const MOST_STATES: usize = 2_000_000;

    /// Searches until a harm ends the search, or until all states are reached.
    #[must_use]
    pub fn run(&self, judge: impl Fn(Harm) -> Verdict) -> Found {
        let began = Instant::now();
        let mut nodes = vec![Node { parent: 0, choice: None }];
        let mut seen = HashSet::from([self.play(&[]).digest()]);
        let mut queue = VecDeque::from([0]);
        let mut found =
            Found { schedule: None, states: 1, is_whole: false, noted: vec![], largest: 0, took: Duration::ZERO };
        while let Some(node) = queue.pop_front() {
            let path = path_to(&nodes, node);
            let world = self.play(&path);
            let choices = world.choices();
            // The first choice goes on in this world, and each other one in a world of its own.
            let mut unused = Some(world);
            for choice in choices {
                let mut world = unused.take().unwrap_or_else(|| self.play(&path));
                for harm in world.choose(choice) {
                    match judge(harm) {
                        Verdict::Ignores => {}
                        Verdict::Measures(size) => found.largest = found.largest.max(size),
                        Verdict::Counts => note(&mut found, harm, &path, choice),
                        Verdict::Ends => {
                            let schedule = path.iter().copied().chain([choice]).collect();
                            let (states, took) = (seen.len(), began.elapsed());
                            return Found { schedule: Some((schedule, harm)), states, took, ..found };
                        }
                    }
                }
                if seen.len() < self.most_states && seen.insert(world.digest()) {
                    nodes.push(Node { parent: node, choice: Some(choice) });
                    queue.push_back(nodes.len() - 1);
                }
            }
        }
        let is_whole = seen.len() < self.most_states;
        Found { states: seen.len(), is_whole, took: began.elapsed(), ..found }
    }

    fn play(&self, schedule: &[Choice]) -> World {
        Self::play_in(World::new(self.build(), self.bounds), schedule)
    }

    /// Plays a schedule, and writes its timeline.
    #[must_use]
    pub fn play_recorded(&self, schedule: &[Choice]) -> World {
        Self::play_in(World::recorded(self.build(), self.bounds), schedule)
    }

    /// Returns the time that each choice of a schedule takes, in milliseconds.
    #[must_use]
    pub fn durations_ms(&self, schedule: &[Choice]) -> Vec<u64> {
        let mut world = World::new(self.build(), self.bounds);
        let mut before_ms = 0;
        let took = schedule.iter().map(|choice| {
            world.choose(*choice);
            let now_ms = world.now_ms();
            now_ms - std::mem::replace(&mut before_ms, now_ms)
        });
        took.collect()
    }

    /// Returns the harm that the last choice of a schedule does.
    #[cfg(feature = "live")]
    pub(crate) fn last_harm(&self, schedule: &[Choice]) -> Vec<Harm> {
        let Some((last, before)) = schedule.split_last() else { return vec![] };
        self.play(before).choose(*last)
    }

    fn build(&self) -> Stage {
        let mut stage = Stage::default();
        (self.stage)(&mut stage);
        stage
    }

    fn play_in(mut world: World, schedule: &[Choice]) -> World {
        for choice in schedule {
            world.choose(*choice);
        }
        world
    }
}

fn note(found: &mut Found, harm: Harm, path: &[Choice], choice: Choice) {
    let same =
        found.noted.iter_mut().find(|(noted, ..)| std::mem::discriminant(noted) == std::mem::discriminant(&harm));
    match same {
        Some((_, times, _)) => *times += 1,
        None => found.noted.push((harm, 1, path.iter().copied().chain([choice]).collect())),
    }
}

fn path_to(nodes: &[Node], mut node: usize) -> Vec<Choice> {
    let mut path = Vec::new();
    while let Some(choice) = nodes[node].choice {
        path.push(choice);
        node = nodes[node].parent;
    }
    path.reverse();
    path
}
