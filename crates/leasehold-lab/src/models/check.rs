//! The search of one model, from its first state to its last.

use std::cell::RefCell;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stateright::{Checker, DiscoveryClassification, HasDiscoveries, Model};

use super::rules::Off;
use super::world::{Act, Play};

/// The result of a search.
pub(crate) struct Found<A = Act> {
    pub(crate) states: usize,
    pub(crate) depth: usize,
    pub(crate) took: Duration,
    /// The violation that was found, and the shortest schedule that leads to it.
    pub(crate) harm: Option<Schedule<A>>,
    /// The states that the search should have reached, and did not.
    pub(crate) missed: Vec<&'static str>,
}

pub(crate) struct Schedule<A = Act> {
    pub(crate) harm: &'static str,
    pub(crate) acts: Vec<A>,
}

/// Searches a model of the protocol. The store's flaw is switched for the whole process, so only one search runs at a
/// time.
pub(crate) fn search(play: &Play) -> Found {
    alone(play.off, || explore(play.clone(), play.watch.is_some()))
}

/// Runs a search, or the replay of a schedule, with this flaw of the store, while no other search runs.
pub(super) fn alone<T>(off: Off, run: impl FnOnce() -> T) -> T {
    let _turn = Turn::take(off);
    run()
}

/// Searches any model, breadth first, to the end or to the first violation. One thread finds the shortest schedule; if
/// no violation is expected, two threads are faster.
pub(super) fn explore<M>(model: M, is_flawed: bool) -> Found<M::Action>
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq + Send + Sync>
        + Send
        + Sync
        + 'static,
{
    let began = Instant::now();
    let names: Vec<&'static str> = model.properties().iter().map(|property| property.name).collect();
    let threads = if is_flawed { 1 } else { 2 };
    let checker = model.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut found = Found {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: began.elapsed(),
        harm: None,
        missed: names,
    };
    let discoveries = checker.discoveries();
    let is_example = |name| matches!(checker.discovery_classification(name), DiscoveryClassification::Example);
    found.missed.retain(|name| is_example(name) && !discoveries.contains_key(name));
    let harm = discoveries.into_iter().find(|(name, _)| !is_example(name));
    found.harm = harm.map(|(harm, path)| Schedule { harm, acts: path.into_actions() });
    found
}

/// Describes a schedule in words, line by line.
pub(crate) fn describe(play: &Play, acts: &[Act]) -> Vec<String> {
    let _turn = Turn::take(play.off);
    let mut world = play.init_states().remove(0);
    let log = RefCell::new(Vec::new());
    for act in acts {
        world.act(play, *act, Some(&log));
    }
    log.into_inner()
}

/// The right to run a search. The store's flaw is switched for the whole process, so only one search runs at a time.
struct Turn {
    _alone: MutexGuard<'static, ()>,
}

impl Turn {
    fn take(off: Off) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let turn = Self { _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner) };
        off.apply();
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        Off::Nothing.apply();
    }
}
