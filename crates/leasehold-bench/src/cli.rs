//! What the user said, and what it means.

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, ValueEnum};

use crate::bench::Plan;
use crate::report::Format;
use crate::scenario::{Case, Scenario};
use crate::system::System;

/// Measures Leasehold beside the least that a lock on Redis can cost.
///
/// Systems take turns, each run in fresh processes; figures are medians with their ranges, and ratios are made within a
/// turn. Starts a redis-server of its own on a free loopback port unless it is given a store.
#[derive(Debug, Parser)]
#[command(name = "leasehold-bench", version)]
struct Said {
    /// What to measure.
    #[arg(value_enum, required_unless_present = "worker")]
    scenario: Option<Wanted>,

    #[command(flatten)]
    options: Options,

    /// One process of a run: reads the rest from its standard input.
    #[arg(long, hide = true, exclusive = true)]
    worker: bool,
}

#[derive(Debug, Args)]
struct Options {
    /// Measure this store instead of a new redis-server. Its other keys are left alone.
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// One JSON object a line instead of tables.
    #[arg(long)]
    json: bool,

    /// How many runs of each system, in turns.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,

    /// How long a run counts, after a warm-up of a quarter of it and at most a second.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,

    /// Tasks of each process; several sizes are several cases [default: the scenario's].
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tasks: Vec<u32>,

    /// Threads of each process [default: the scenario's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,

    /// Processes that share the lock (hot).
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,

    /// Pairs of a run (server-cost).
    #[arg(long, value_name = "N", default_value_t = 60_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pairs: u64,

    /// Which systems take turns [default: those that the scenario's bars compare].
    #[arg(long, value_enum, value_name = "NAME,…", value_delimiter = ',')]
    systems: Vec<System>,
}

/// A scenario, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// Each task locks and unlocks its own name
    Uncontended,
    /// All tasks of all processes want one name
    Hot,
    /// The server's own time for a pair
    ServerCost,
    /// All of them
    All,
}

impl Wanted {
    fn scenarios(self) -> Vec<Scenario> {
        match self {
            Self::Uncontended => vec![Scenario::Uncontended],
            Self::Hot => vec![Scenario::Hot],
            Self::ServerCost => vec![Scenario::ServerCost],
            Self::All => Scenario::ALL.to_vec(),
        }
    }
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Be one process of somebody's run.
    Work,
    /// Measure.
    Measure { plan: Plan, store: Option<String>, format: Format },
}

/// Reads the arguments; the error knows how to print itself and which code to exit with.
pub(crate) fn task(arguments: impl IntoIterator<Item = String>) -> Result<Task, clap::Error> {
    let said = Said::try_parse_from(arguments)?;
    let wanted = match said.scenario {
        Some(wanted) if !said.worker => wanted,
        _ => return Ok(Task::Work),
    };
    let options = said.options;
    refuse_contradictions(wanted, &options)?;
    let format = if options.json { Format::Json } else { Format::Table };
    let cases = wanted.scenarios().into_iter().flat_map(|scenario| cases(scenario, &options)).collect();
    Ok(Task::Measure { plan: Plan { cases, runs: options.runs }, store: options.store, format })
}

fn refuse_contradictions(wanted: Wanted, options: &Options) -> Result<(), clap::Error> {
    let refuse = |why: &str| Err(Said::command().error(ErrorKind::ArgumentConflict, why));
    if wanted == Wanted::All && !options.tasks.is_empty() {
        return refuse("--tasks means something else to each scenario: name one instead of `all`");
    }
    let mut systems = options.systems.clone();
    systems.sort();
    systems.dedup();
    if systems.len() != options.systems.len() {
        return refuse("--systems names a system twice: use --runs for more runs");
    }
    match &options.store {
        Some(url) if !["redis://", "rediss://", "unix://"].iter().any(|scheme| url.starts_with(scheme)) => {
            refuse("--store takes a redis:// URL: the systems to compare with speak to nothing else")
        }
        _ => Ok(()),
    }
}

fn cases(scenario: Scenario, options: &Options) -> Vec<(Case, Vec<System>)> {
    let or_else = |said: &[u32], otherwise: &[u32]| if said.is_empty() { otherwise.to_vec() } else { said.to_vec() };
    let systems = if options.systems.is_empty() { scenario.systems().to_vec() } else { options.systems.clone() };
    let case = |names, tasks| Case {
        scenario,
        names,
        processes: if scenario == Scenario::Hot { options.processes } else { 1 },
        tasks,
        threads: options.threads.unwrap_or(scenario.threads()),
        window_ms: options.seconds * 1_000,
        pairs: options.pairs,
    };
    let sizes = or_else(&options.tasks, scenario.tasks());
    let cases = scenario.name_uses().iter().flat_map(|&names| sizes.iter().map(move |&tasks| case(names, tasks)));
    cases.map(|case| (case, systems.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::NameUse;

    fn read(line: &str) -> Result<Task, clap::Error> {
        task(std::iter::once("leasehold-bench").chain(line.split_whitespace()).map(String::from))
    }

    fn plan(line: &str) -> Plan {
        match read(line).unwrap() {
            Task::Measure { plan, .. } => plan,
            Task::Work => panic!("{line} measures"),
        }
    }

    #[test]
    fn the_clap_definition_is_sound() {
        Said::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_bars() {
        let hot = plan("hot");
        assert_eq!(hot.runs, 5);
        let [(case, systems)] = &hot.cases[..] else { panic!("{hot:?}") };
        assert_eq!((case.processes, case.tasks, case.names), (2, 8, NameUse::Shared));
        assert_eq!(systems, &[System::Floor, System::Leasehold]);
        let sizes: Vec<_> = plan("uncontended").cases.iter().map(|(case, _)| (case.processes, case.tasks)).collect();
        assert_eq!(sizes, [(1, 1), (1, 64), (1, 1000)]);
        let names: Vec<_> = plan("server-cost").cases.iter().map(|(case, _)| (case.names, case.pairs)).collect();
        assert_eq!(names, [(NameUse::New, 60_000), (NameUse::Used, 60_000)]);
        assert_eq!(plan("all").cases.len(), 6);
        assert_eq!(plan("all").steps(), 6 * 2 * 5);
    }

    #[test]
    fn options_reach_the_plan() {
        let hot = plan("hot --runs 2 --seconds 7 --tasks 4,64 --processes 3 --threads 2 --systems none,floor,s5");
        assert_eq!(hot.runs, 2);
        let sizes: Vec<_> = hot.cases.iter().map(|(c, _)| (c.processes, c.tasks, c.threads, c.window_ms)).collect();
        assert_eq!(sizes, [(3, 4, 2, 7_000), (3, 64, 2, 7_000)]);
        assert_eq!(hot.cases[0].1, [System::None, System::Floor, System::S5]);
        let given = read("uncontended --store redis://127.0.0.1:7 --json").unwrap();
        assert!(matches!(given, Task::Measure { store: Some(url), format: Format::Json, .. } if url.ends_with(":7")));
    }

    #[test]
    fn a_worker_takes_nothing_else() {
        assert_eq!(read("--worker").unwrap(), Task::Work);
        assert!(read("--worker hot").is_err());
        assert!(read("--worker --runs 2").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_is_measured() {
        for (line, kind) in [
            ("", ErrorKind::MissingRequiredArgument),
            ("cold", ErrorKind::InvalidValue),
            ("hot --runs 0", ErrorKind::ValueValidation),
            ("hot --seconds 0", ErrorKind::ValueValidation),
            ("hot --seconds x", ErrorKind::ValueValidation),
            ("hot --tasks 0", ErrorKind::ValueValidation),
            ("hot --tasks 1,,2", ErrorKind::ValueValidation),
            ("hot --processes 0", ErrorKind::ValueValidation),
            ("server-cost --pairs 0", ErrorKind::ValueValidation),
            ("hot --systems redlock", ErrorKind::InvalidValue),
            ("hot --systems s5,s5", ErrorKind::ArgumentConflict),
            ("all --tasks 3", ErrorKind::ArgumentConflict),
            ("hot --store memory:", ErrorKind::ArgumentConflict),
            ("hot --fast", ErrorKind::UnknownArgument),
        ] {
            assert_eq!(read(line).map(|_| ()).map_err(|error| error.kind()), Err(kind), "{line}");
        }
    }
}
