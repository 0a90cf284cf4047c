//! Many seeds, and their totals.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold_spec::mark::Mark;
use leasehold_testkit::coverage::{Coverage, Kind as Covered};

use super::book::Book;
use super::exec::lock;
use super::kind::Kind;
use super::options::Options;
use super::quorum;
use super::run::{Verdict, play};
use crate::usage::replay;

/// The results of many seeds.
#[derive(Debug, Default)]
pub(super) struct Total {
    pub(super) is_quorum: bool,
    pub(super) seeds: u64,
    pub(super) steps: u64,
    pub(super) simulated_us: u64,
    pub(super) grants: u64,
    pub(super) queued: u64,
    pub(super) refused: u64,
    pub(super) excused: u64,
    pub(super) lost_updates: BTreeMap<&'static str, u64>,
    coverage: Coverage,
    /// The seeds that failed, each with its failures.
    pub(super) failed: BTreeMap<u64, (u64, Vec<String>)>,
    /// Seeds without a grant.
    pub(super) vacuous: u64,
    pub(super) took: Duration,
}

/// When to stop early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Never,
    /// After a seed has failed.
    Failed,
}

/// The number of failures that are printed in full.
const PRINTED: usize = 10;

/// Plays seeds on every core, each on one thread.
pub(super) fn play_all(options: &Options, until: When) -> Total {
    let total = Total { is_quorum: options.is_quorum, ..Total::default() };
    let (next, stop, total) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(total));
    let began = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) && options.at_most.is_none_or(|most| began.elapsed() < most) {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= options.seeds {
                        return;
                    }
                    let verdict = play(options.plan(options.from.wrapping_add(nth)), Book::default());
                    match (verdict.wrong.first(), until) {
                        (Some(_), When::Failed) => stop.store(true, Ordering::Relaxed),
                        // Printed at once: a run of hours may be ended before it prints its totals.
                        (Some(wrong), When::Never) => eprintln!("seed {} FAILED: {wrong}", verdict.seed),
                        (None, _) => {}
                    }
                    lock(&total).add(verdict);
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    total.took = began.elapsed();
    total
}

impl Total {
    pub(super) fn add(&mut self, verdict: Verdict) {
        self.seeds += 1;
        self.steps += verdict.steps;
        self.simulated_us += verdict.simulated_us;
        self.grants += verdict.report.grants;
        self.queued += verdict.report.queued;
        self.refused += verdict.report.refused;
        self.excused += verdict.report.excused.len() as u64;
        self.vacuous += u64::from(verdict.report.grants == 0);
        for why in verdict.lost_updates {
            *self.lost_updates.entry(why).or_default() += 1;
        }
        let kinds = self.kinds();
        let is_fault = |what: &str| kinds.iter().any(|kind| kind.name() == what);
        for (what, times) in verdict.counts {
            self.coverage.count(if is_fault(&what) { Covered::Fault } else { Covered::Event }, &what, times);
        }
        for (mark, times) in verdict.marks {
            self.coverage.count(Covered::Mark, mark.name(), times);
        }
        if !verdict.wrong.is_empty() {
            self.failed.insert(verdict.seed, (verdict.hash, verdict.wrong));
        }
    }

    fn kinds(&self) -> &'static [Kind] {
        if self.is_quorum { Kind::OF_QUORUM } else { Kind::ALL }
    }

    /// Returns the events and paths that many seeds must meet, and that none of them has met.
    pub(super) fn missed(&self) -> Vec<&'static str> {
        let (must, rare) = if self.is_quorum { (quorum::MUST, quorum::RARE) } else { (MUST, RARE) };
        let is_here = |mark: &&Mark| mark.is_of_quorum() == self.is_quorum && !ELSEWHERE.contains(mark);
        let is_due = |mark: &&Mark| is_here(mark) && (self.seeds >= COVERS_RARE || !rare.contains(mark));
        let paths = Mark::ALL.iter().filter(is_due).map(|mark| mark.name());
        let mut missed = self.coverage.missing(Covered::Fault, self.kinds().iter().map(|kind| kind.name()));
        missed.extend(self.coverage.missing(Covered::Event, must.iter().copied()));
        missed.extend(self.coverage.missing(Covered::Mark, paths));
        missed
    }

    pub(super) fn print(&self) {
        let (hours, seconds) = (self.simulated_us as f64 / 3.6e9, self.took.as_secs_f64());
        println!(
            "{} seeds, {hours:.1} h simulated, {} steps, in {seconds:.1} s: {:.0} seeds/s, {:.0} times real time",
            self.seeds,
            self.steps,
            self.seeds as f64 / seconds,
            self.simulated_us as f64 / 1e6 / seconds
        );
        println!(
            "{} grants, {} of them after waiting, none in {} seeds; {} old tokens refused by the fenced register",
            self.grants, self.queued, self.vacuous, self.refused
        );
        let lost: u64 = self.lost_updates.values().sum();
        println!(
            "{} claims or tokens that a fault excuses; {lost} updates lost by the unfenced register:",
            self.excused
        );
        for (why, count) in &self.lost_updates {
            println!("  {count:>8}  {why}");
        }
        for (title, kind) in
            [("faults", Covered::Fault), ("events", Covered::Event), ("paths taken in the product", Covered::Mark)]
        {
            println!("{title}:");
            self.coverage.iter(kind).for_each(|(what, times)| println!("  {times:>8}  {what}"));
        }
        for (seed, (hash, wrong)) in self.failed.iter().take(PRINTED) {
            print_failure(*seed, self.is_quorum, *hash, wrong);
        }
        if self.failed.len() > PRINTED {
            let rest: Vec<String> = self.failed.keys().skip(PRINTED).map(u64::to_string).collect();
            println!("failed as well: {}", rest.join(", "));
        }
        println!("{} seeds failed", self.failed.len());
    }

    /// Prints the totals as JSON, for a program.
    pub(super) fn print_json(&self) {
        let counts = [Covered::Fault, Covered::Event].into_iter().flat_map(|kind| self.coverage.iter(kind));
        let json = serde_json::json!({
            "seeds": self.seeds,
            "simulated_s": self.simulated_us / 1_000_000,
            "grants": self.grants,
            "failed": self.failed.len(),
            "lost_updates": self.lost_updates.values().sum::<u64>(),
            "took_s": self.took.as_secs_f64(),
            "counts": counts.collect::<BTreeMap<_, _>>(),
        });
        println!("{json}");
    }
}

pub(super) fn print_failure(seed: u64, is_quorum: bool, hash: u64, wrong: &[String]) {
    println!("seed {seed} FAILED (hash {hash:016x}):");
    wrong.iter().take(PRINTED).for_each(|what| println!("    {what}"));
    if wrong.len() > PRINTED {
        println!("    and {} more", wrong.len() - PRINTED);
    }
    println!(
        "  to play it again: {}",
        replay(&format!("sim{} --seed {seed} -v", if is_quorum { " --quorum" } else { "" }))
    );
}

/// Paths that no seed takes: the simulation has no ten thousand waiters, and no client that polls. A session gives back
/// the attempts that it no longer makes, so the store has no answer about them for an attempt that still waits. No
/// caller asks for a longer lease on re-entry. And for a caller to leave at the very moment of its pass, two threads
/// are needed.
const ELSEWHERE: &[Mark] = &[
    Mark::QueueFull,
    Mark::PassedSilent,
    Mark::GoneReply,
    Mark::RunLengthened,
    Mark::NextHadGone,
    // No client of the simulation names another kind or number.
    Mark::TakeRefused,
    Mark::Resized,
    Mark::ResizeRefused,
    Mark::PassedTooBig,
];

/// Paths that one seed in a thousand takes, or fewer: two thousand seeds may take them or not.
const RARE: &[Mark] = &[
    Mark::AnswerOfAnotherRun,
    Mark::LapsesFull,
    Mark::NewcomerBehindMore,
    Mark::OlderPush,
    Mark::QueuedWhileHeld,
    Mark::TicketMended,
    Mark::ReserveNotHeld,
    Mark::ReserveUnheard,
    Mark::LowerNotHeld,
    Mark::UpgradeLooked,
    Mark::SpendNotHeld,
    Mark::WokenUnsure,
];
/// From this many seeds on there is no such excuse.
const COVERS_RARE: u64 = 50_000;

/// The events that many seeds must meet. Otherwise the simulation has become weak.
const MUST: &[&str] = &[
    "acquire: granted",
    "acquire: queued",
    "acquire: still queued",
    "acquire: busy",
    "acquire: gone",
    "acquire: late",
    "renew: renewed",
    "renew: lost",
    "renew: late",
    "renew: revoked",
    "release: released",
    "release: not held",
    "reserve: reserved",
    "cool down: held",
    "leave: waited",
    "leave: held",
    "leave: absent",
    "revoke: marked",
    "settle",
    "inspect",
    "a hand-over",
    "more to settle",
    "a push is lost",
    "an acquire finds no memory",
    "a request outlives its connection",
    "an old primary continues",
    "a write arrives after its lease",
    "a dropped future",
    "a dropped release",
    "a release on another runtime",
    "a future that continues on another runtime",
    "a runtime that its caller blocks",
    "a worker on another runtime",
    "the next waiter is served after a death",
    "the next waiter is served after a revocation",
    "a panic under the lock",
    "a re-entry",
    "a re-entry is refused",
    "released",
    "released: not held",
    "lost: expired",
    "lost: revoked",
    "lost: forgotten",
    "lost: superseded",
    "requests leave together",
    "a message of several requests is refused",
];
