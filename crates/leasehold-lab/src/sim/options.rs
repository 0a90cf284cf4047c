//! The options of the command line.

use std::time::Duration;

use super::plan::Plan;
use super::quorum;

#[derive(Debug)]
pub(crate) struct Options {
    pub(super) seeds: u64,
    pub(super) from: u64,
    pub(super) at_most: Option<Duration>,
    /// The only seed to play.
    pub(super) seed: Option<u64>,
    /// Plays a quorum of nodes instead of one server.
    pub(super) is_quorum: bool,
    pub(super) verbose: bool,
    pub(super) json: bool,
    pub(super) mutant: Option<String>,
}

pub(crate) const USAGE: &str = "leasehold-lab sim [--quorum] [--seeds N] [--from S] [--minutes M] [--json]
       leasehold-lab sim [--quorum] --seed S [-v]
       leasehold-lab sim [--quorum] --mutant P12FromReceipt|all [--seeds N]";

impl Options {
    /// Returns the plan of a seed.
    pub(super) fn plan(&self, seed: u64) -> Plan {
        if self.is_quorum { quorum::plan(seed) } else { Plan::of(seed) }
    }

    /// Parses the arguments. Returns `None` if they are not valid.
    pub(crate) fn of(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self {
            seeds: 1000,
            from: 1,
            at_most: None,
            seed: None,
            is_quorum: false,
            verbose: false,
            json: false,
            mutant: None,
        };
        let mut are_counted = false;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--seeds" => {
                    (options.seeds, are_counted) = (args.next()?.parse().ok().filter(|&seeds| seeds > 0)?, true);
                }
                "--from" => options.from = args.next()?.parse().ok()?,
                "--minutes" => {
                    let minutes: f64 = args.next()?.parse().ok()?;
                    options.at_most = Some(Duration::try_from_secs_f64(minutes * 60.0).ok()?);
                }
                "--seed" => options.seed = Some(args.next()?.parse().ok()?),
                "--mutant" => options.mutant = Some(args.next()?),
                "--quorum" => options.is_quorum = true,
                "--json" => options.json = true,
                "-v" => options.verbose = true,
                _ => return None,
            }
        }
        // Minutes without a count mean as many seeds as there is time for.
        if options.at_most.is_some() && !are_counted {
            options.seeds = u64::MAX;
        }
        Some(options)
    }
}
