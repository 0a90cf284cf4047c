//! The user's arguments; [`meaning`] interprets them.

mod meaning;

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};

use crate::bench::Plan;
use crate::output::Format;
use crate::scenario::Scenario;

/// The directory of the peers in this repository.
const PEERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/peers");

/// Compares Leasehold with other locks, and with the least that a lock on Redis can cost.
///
/// Systems take turns, each run in new processes; figures are medians with their ranges, and ratios are made within a
/// turn. Starts a redis-server on a free loopback port unless it is given a store, and five more for a quorum.
#[derive(Debug, Parser)]
#[command(name = "leasehold-bench", version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    /// The scenario to measure.
    #[arg(value_enum, required_unless_present = "worker")]
    scenario: Option<Wanted>,

    #[command(flatten)]
    options: Options,

    /// Be one process of a run: the task comes from standard input.
    #[arg(long, hide = true, exclusive = true)]
    worker: bool,

    #[command(subcommand)]
    command: Option<Other>,
}

/// Commands that are no scenario.
#[derive(Debug, Subcommand)]
enum Other {
    /// Make a page, DIR/REPORT.md, and its charts from the lines in DIR/raw, DIR/front.md and DIR/losses.md.
    Report {
        /// The directory of the report.
        dir: PathBuf,
    },
}

#[derive(Debug, Args)]
struct Options {
    /// Measure this store instead of a new redis-server. Its other keys are left alone.
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// Other libraries that also take turns (uncontended, hot, server-cost, quorum, quorum-hot, rwlock,
    /// semaphore): their names in `bench/peers/systems.json`, or `all` for every library that can run the scenario. They
    /// are built if necessary.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    peers: Vec<String>,

    /// The directory of the peers.
    #[arg(long, value_name = "DIR", hide = true, default_value = PEERS)]
    peers_dir: PathBuf,

    /// One JSON object a line instead of tables.
    #[arg(long)]
    json: bool,

    /// Draw a chart of each case, as SVG, in this directory.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,

    /// How many runs of each system, in turns [default: 5; leases: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: Option<u32>,

    /// How long a run counts, in seconds [default: 3; leases: 60]. The warm-up before it takes a quarter of it, and at
    /// most a second; for a peer as long as the run, and at most a second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,

    /// Tasks of each process (queue: waiters; leases: leases); several sizes are several cases [default: the scenario's].
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tasks: Vec<u32>,

    /// Threads of each process [default: the scenario's; uncontended with 64 tasks runs with 2 and with 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,

    /// Processes that share the lock (hot, quorum-hot, rwlock, semaphore) [default: 2; quorum-hot: 2, and 8, and 32].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: Option<u32>,

    /// Pairs of a run (server-cost) [default: 60000].
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pairs: Option<u64>,

    /// How long a holder computes (hot-local) [default: 0,1,10].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    busy_us: Vec<u64>,

    /// How long leases are (leases, takeover) [default: 10000, and 1000 and 3000].
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(100..=600_000))]
    lease_ms: Vec<u64>,

    /// Keep the processors awake, by a loop on each that runs when nothing else does. If idle processors wake slowly,
    /// their sleep is measured otherwise.
    #[arg(long)]
    awake: bool,

    /// The systems that take turns: ours (s5, s5-batched, floor, leasehold, leasehold-fair, leasehold-remote, fan,
    /// tokio-mutex, none) or peers [default: our systems that the scenario's bars compare, and s5-batched beside s5 in
    /// uncontended].
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    systems: Vec<String>,
}

/// A scenario, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    One(Scenario),
    All,
}

impl ValueEnum for Wanted {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Wanted; Scenario::ALL.len() + 1] = {
            let mut all = [Wanted::All; Scenario::ALL.len() + 1];
            let mut at = 0;
            while at < Scenario::ALL.len() {
                all[at] = Wanted::One(Scenario::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            Self::One(scenario) => Some(clap::builder::PossibleValue::new(scenario.name()).help(scenario.question())),
            Self::All => Some(clap::builder::PossibleValue::new("all").help("All of them")),
        }
    }
}

impl Wanted {
    fn scenarios(self) -> Vec<Scenario> {
        match self {
            Self::One(scenario) => vec![scenario],
            Self::All => Scenario::ALL.to_vec(),
        }
    }
}

/// The task of the program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Be one process of a run.
    Work,
    /// Measure systems.
    Measure { plan: Plan, store: Option<String>, format: Format, plot: Option<PathBuf> },
    /// Make a page of the measurements.
    Report { dir: PathBuf },
}

/// Parses the arguments. The error can print itself and knows the exit code.
pub(crate) fn task(arguments: impl IntoIterator<Item = String>) -> Result<Task, clap::Error> {
    let parsed = Arguments::try_parse_from(arguments)?;
    if let Some(Other::Report { dir }) = parsed.command {
        return Ok(Task::Report { dir });
    }
    let wanted = match parsed.scenario {
        Some(wanted) if !parsed.worker => wanted,
        _ => return Ok(Task::Work),
    };
    let plan = meaning::plan(wanted, &parsed.options).map_err(|why| refused(&why))?;
    let Options { store, json, plot, .. } = parsed.options;
    Ok(Task::Measure { plan, store, format: if json { Format::Json } else { Format::Table }, plot })
}

fn refused(why: &str) -> clap::Error {
    Arguments::command().error(ErrorKind::ArgumentConflict, why)
}

#[cfg(test)]
mod tests;
