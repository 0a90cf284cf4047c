//! The search: one model, from its first state to its last.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use stateright::{Checker, DiscoveryClassification, HasDiscoveries, Model};

use super::rules::Off;
use super::world::{Act, Play};

/// What a search has found.
pub(crate) struct Found {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) took: Duration,
    /// What must never be, and the shortest way to it.
    pub(crate) harm: Option<Schedule>,
    /// What the search never came by, although it should have.
    pub(crate) missed: Vec<&'static str>,
}

pub(crate) struct Schedule {
    pub(crate) harm: &'static str,
    pub(crate) acts: Vec<Act>,
}

/// Breadth first, to the end or to the first harm. One thread finds the shortest way; where none is to be found two are
/// faster.
pub(crate) fn search(play: &Play) -> Found {
    // The store's flaw is switched for the whole process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    play.off.apply();
    let began = Instant::now();
    let threads = if play.watch.is_some() { 1 } else { 2 };
    let checker = play.clone().checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut found = Found {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: began.elapsed(),
        harm: None,
        missed: play.properties().iter().map(|p| p.name).collect(),
    };
    let discoveries = checker.discoveries();
    let is_example = |name| matches!(checker.discovery_classification(name), DiscoveryClassification::Example);
    found.missed.retain(|name| is_example(name) && !discoveries.contains_key(name));
    let harm = discoveries.into_iter().find(|(name, _)| !is_example(name));
    found.harm = harm.map(|(harm, path)| Schedule { harm, acts: path.into_actions() });
    Off::Nothing.apply();
    found
}

/// A schedule in words, line by line.
pub(crate) fn tell(play: &Play, acts: &[Act]) -> Vec<String> {
    play.off.apply();
    let mut world = play.init_states().remove(0);
    let log = RefCell::new(Vec::new());
    for act in acts {
        world.act(play, *act, Some(&log));
    }
    Off::Nothing.apply();
    log.into_inner()
}
