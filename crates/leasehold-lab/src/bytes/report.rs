//! Many seeds, and their totals.

use leasehold_testkit::coverage::{Coverage, Kind};

use super::nemesis::FAULTS;
use super::options::Options;
use super::run::{Verdict, play};
use super::trace::Form;
use crate::usage::replay;

/// The least mean number of grants per seed: fewer grants prove nothing.
const GRANTS_MEAN: u64 = 40;

/// From this many seeds on, every fault must have occurred.
const COVERS: u64 = 50;
/// The number of failures that are printed.
const PRINTED: usize = 20;

/// The totals of many seeds.
#[derive(Debug, Default)]
pub(super) struct Total {
    seeds: u64,
    /// The failures, each with its seed.
    pub(super) wrong: Vec<(u64, String)>,
    /// The failures of all seeds together, which no single seed can show.
    pub(super) vacuous: Vec<String>,
    /// The hash of all traces.
    hash: u64,
    coverage: Coverage,
    grants: u64,
    simulated_us: u64,
    refused: u64,
    lost_updates: u64,
    excused: u64,
}

/// Plays seeds on every core, each on one thread. If every event is printed, plays them one after the other.
pub(super) fn play_all(options: &Options) -> Total {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let workers = if options.form == Form::Long { 1 } else { cores.min(options.seeds) };
    let part = |worker: u64| -> Vec<Verdict> {
        let seeds = (worker..options.seeds).step_by(usize::try_from(workers).expect("few threads"));
        seeds.map(|seed| play(options.from.wrapping_add(seed), options.form)).collect()
    };
    let mut verdicts: Vec<Verdict> = std::thread::scope(|scope| {
        let part = &part;
        let parts: Vec<_> = (0..workers).map(|worker| scope.spawn(move || part(worker))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("a seed does not panic")).collect()
    });
    verdicts.sort_by_key(|verdict| verdict.seed);
    let mut total = Total::default();
    verdicts.into_iter().for_each(|verdict| total.add(verdict));
    total.judge();
    total
}

impl Total {
    fn add(&mut self, verdict: Verdict) {
        let Verdict { seed, hash, counts, simulated_us, report, wrong } = verdict;
        self.seeds += 1;
        self.wrong.extend(wrong.into_iter().map(|wrong| (seed, wrong)));
        self.hash = self.hash.rotate_left(5) ^ hash;
        self.simulated_us += simulated_us;
        self.grants += report.grants;
        self.refused += report.refused;
        self.lost_updates += report.lost_updates;
        self.excused += report.excused.len() as u64;
        let is_fault = |what: &str| FAULTS.iter().any(|(_, label)| *label == what);
        for (what, times) in counts {
            self.coverage.count(if is_fault(what) { Kind::Fault } else { Kind::Event }, what, times);
        }
    }

    /// Judges all seeds together: whether they proved anything.
    fn judge(&mut self) {
        if self.seeds < COVERS {
            return;
        }
        let never = self.coverage.missing(Kind::Fault, FAULTS.iter().map(|(_, label)| *label));
        if !never.is_empty() {
            self.vacuous.push(format!("these never occurred in {} seeds: {}", self.seeds, never.join(", ")));
        }
        let mean = self.grants / self.seeds;
        if mean < GRANTS_MEAN {
            self.vacuous.push(format!("{mean} grants per seed prove nothing: at least {GRANTS_MEAN} are required"));
        }
    }

    /// Prints the events and the failures.
    pub(super) fn print(&self) {
        println!(
            "{} seeds, {} s simulated, {} grants; the fenced register refused {} old tokens, the unfenced one lost {} \
             updates; {} broken promises excused",
            self.seeds,
            self.simulated_us / 1_000_000,
            self.grants,
            self.refused,
            self.lost_updates,
            self.excused
        );
        for kind in [Kind::Fault, Kind::Event] {
            let counts: Vec<String> = self.coverage.iter(kind).map(|(what, times)| format!("{what} {times}")).collect();
            println!("{}", counts.join(", "));
        }
        println!("trace {:016x}", self.hash);
        for (seed, wrong) in self.wrong.iter().take(PRINTED) {
            println!("WRONG in seed {seed}: {wrong}\n  {}", replay(&format!("bytes --seed {seed} -v")));
        }
        self.vacuous.iter().for_each(|what| println!("VACUOUS: {what}"));
    }
}
