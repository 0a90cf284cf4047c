//! The report at the end of a run, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_spec::mark::Mark;
use serde::Serialize;

use super::judge::Score;
use super::kind::Kind;
use super::options::{Options, Store};
use super::plan::kinds;

/// The minimum mean of grants in the calm seconds: fewer prove nothing.
const MEAN_MIN: u64 = 25;

/// The prefix of a path in the tally of a client.
pub(crate) const PATH: &str = "path: ";

/// The figures of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) store: &'static str,
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) rounds: u64,
    pub(crate) grants: u64,
    pub(crate) fenced_writes: u64,
    pub(crate) refused_by_the_fence: u64,
    pub(crate) unfenced_lost_updates: u64,
    /// Calls whose duration and result were judged, while no store was broken.
    pub(crate) calm_calls: u64,
    /// The longest time by which such a call outlasted its wait.
    pub(crate) calm_longest_us: u64,
    /// Waiters that came one after the other, and whose order was judged.
    pub(crate) in_line: u64,
    pub(crate) calm_grants_per_s_least: u64,
    pub(crate) calm_grants_per_s_mean: u64,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) faults_in_all: u64,
    pub(crate) excused: BTreeMap<String, u64>,
    pub(crate) clients: BTreeMap<String, u64>,
    /// Labels of the library's rare paths, from processes that were not killed.
    pub(crate) paths: BTreeMap<String, u64>,
    pub(crate) paths_not_taken: Vec<String>,
    pub(crate) violations: Vec<String>,
}

impl Report {
    pub(crate) fn new(
        (options, time, rounds): (&Options, Duration, u64),
        score: Score,
        struck: &BTreeMap<Kind, u64>,
        tallies: BTreeMap<String, u64>,
        mut violations: Vec<String>,
    ) -> Self {
        if violations.is_empty() && options.time >= options.store.whole() {
            let never = kinds(options.store).into_iter().filter(|kind| !struck.contains_key(kind));
            violations.extend(never.map(|kind| format!("{kind:?} never struck in {rounds} rounds")));
        }
        let calm = &score.calm_grants_per_s;
        let mean = calm.iter().sum::<u64>() / (calm.len() as u64).max(1);
        if violations.is_empty() && mean < MEAN_MIN {
            violations.push(format!("only {mean} grants in a calm second on average, at least {MEAN_MIN} wanted"));
        }
        if violations.is_empty() && score.calm_calls == 0 {
            violations.push("no call was judged while no store was broken".into());
        }
        let is_whole = options.time >= options.store.whole();
        if violations.is_empty() && is_whole && options.store.keeps_order() && score.in_line == 0 {
            violations.push("the order of no waiter was judged".into());
        }
        let (paths, clients): (BTreeMap<_, _>, BTreeMap<_, _>) =
            tallies.into_iter().partition(|(what, _)| what.starts_with(PATH));
        let times = |mark: &Mark| paths.get(&format!("{PATH}{}", mark.name())).copied().unwrap_or(0);
        let (taken, not_taken): (Vec<Mark>, Vec<Mark>) = marks(options.store).partition(|mark| times(mark) > 0);
        Self {
            store: options.store.name(),
            seed: options.seed,
            seconds: time.as_secs(),
            rounds,
            grants: score.grants,
            fenced_writes: score.writes,
            refused_by_the_fence: score.refused,
            unfenced_lost_updates: score.lost_updates,
            calm_calls: score.calm_calls,
            calm_longest_us: score.calm_longest_us,
            in_line: score.in_line,
            calm_grants_per_s_least: calm.iter().min().copied().unwrap_or(0),
            calm_grants_per_s_mean: mean,
            faults: struck.iter().map(|(kind, count)| (format!("{kind:?}"), *count)).collect(),
            faults_in_all: struck.values().sum(),
            excused: score.excused,
            clients,
            paths: taken.iter().map(|mark| (mark.name().to_owned(), times(mark))).collect(),
            paths_not_taken: not_taken.iter().map(|mark| mark.name().to_owned()).collect(),
            violations,
        }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data")
    }

    pub(crate) fn words(&self) -> String {
        let mut words = format!(
            "\nchaos of {}, seed {}: {} rounds in {} s, {} grants, {} faults\n",
            self.store, self.seed, self.rounds, self.seconds, self.grants, self.faults_in_all
        );
        words += &format!(
            "  before faults: {} grants a second on average, {} in the worst round\n",
            self.calm_grants_per_s_mean, self.calm_grants_per_s_least
        );
        let (calls, longest) = (self.calm_calls, Duration::from_micros(self.calm_longest_us));
        words += &format!("  {calls} calls were judged while no store was broken, the longest for {longest:.1?}\n");
        words += &format!("  the order of {} waiters was judged\n", self.in_line);
        words += &format!(
            "  the fenced register: {} writes, {} old tokens refused; the unfenced one lost {} updates\n",
            self.fenced_writes, self.refused_by_the_fence, self.unfenced_lost_updates
        );
        for (title, counts) in [
            ("faults", &self.faults),
            ("overlaps and falls of tokens that a fault excuses", &self.excused),
            ("events of clients", &self.clients),
        ] {
            let counts: Vec<String> = counts.iter().map(|(what, count)| format!("{what} {count}")).collect();
            words += &format!("  {title}: {}\n", counts.join(", "));
        }
        let (taken, left) = (self.paths.len(), self.paths_not_taken.join(", "));
        words += &format!("  {taken} rare paths of the library were taken (not taken, which is no failure: {left})\n");
        words
            + &match self.violations.len() {
                0 => "  no violation\n".to_owned(),
                n => format!("  VIOLATIONS: {n}\n"),
            }
    }
}

/// Returns the labels that a run on this store can reach. On a Redis a script makes the step, which has no labels.
fn marks(store: Store) -> impl Iterator<Item = Mark> {
    const FIRST_OF_SESSION: Mark = Mark::OlderAnswer;
    let is_there = move |mark: &Mark| match store {
        Store::File => !mark.is_of_quorum(),
        Store::Redis => *mark as u8 >= FIRST_OF_SESSION as u8 && !mark.is_of_quorum(),
        Store::Quorum => *mark as u8 >= FIRST_OF_SESSION as u8,
    };
    Mark::ALL.iter().copied().filter(is_there)
}
