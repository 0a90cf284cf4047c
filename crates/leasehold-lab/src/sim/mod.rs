//! The simulation: the session and the public API as they are shipped, in a simulated world.
//!
//! A lock fails in schedules that no test machine shows: an answer that is late by more than the margin, a process that
//! stands still between its check and its write, a replica that lacks the last grant. Here the world is a program. Time
//! is a number (`exec.rs`), the network is two queues per connection (`conns.rs`, `net.rs`, `link.rs`), the server is the
//! specification over records (`node.rs`), and everything random comes from one seed (`rng.rs`, `plan.rs`): the same
//! seed is the same run, to the last step, in any process. Only the world is simulated, and nothing of the product:
//! `Leasehold`, `Mutex`, `Guard` and the session are those of the crate, through its seam.
//!
//! A seed plays clients that work (`crew.rs`, `acts/`) on the resources that locks protect (`registers.rs`) while
//! faults occur (`faults.rs`, `breaks.rs`, `failover.rs`). Then everything heals. The run waits until all clients are
//! served and have closed, and examines what is left (`run.rs`). The checker of the test kit, which knows nothing of all
//! this, judges the history.

mod acts;
mod aimed;
mod book;
mod breaks;
mod call;
mod conns;
mod core;
mod crew;
mod exec;
mod failover;
mod faults;
mod follow;
mod holders;
mod jumps;
mod kind;
mod link;
mod mutants;
mod net;
mod node;
mod options;
mod pipe;
mod plan;
mod process;
mod quorum;
mod registers;
mod report;
mod rng;
mod roam;
mod run;
mod sent;
mod stage;
mod step_rules;
#[cfg(test)]
mod tests;
mod timer;
mod under;
mod wire;
mod words;
mod worker;

use std::process::ExitCode;

use book::Book;
pub(crate) use options::{Options, USAGE};
use report::{When, play_all, print_failure};

/// Plays the seeds of these options.
pub(crate) fn run(options: &Options) -> ExitCode {
    if let Some(name) = &options.mutant {
        return mutants::run(name, options);
    }
    match options.seed {
        Some(seed) => one(seed, options),
        None => many(options),
    }
}

/// Plays one seed, with a trace if the options ask for it.
fn one(seed: u64, options: &Options) -> ExitCode {
    let book = if options.verbose { Book::with_trace() } else { Book::default() };
    let verdict = run::play(options.plan(seed), book);
    verdict.lines.iter().for_each(|line| println!("{line}"));
    println!("seed {seed}: hash {:016x}, {} steps, {} grants", verdict.hash, verdict.steps, verdict.report.grants);
    if verdict.wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    print_failure(seed, options.is_quorum, verdict.hash, &verdict.wrong);
    ExitCode::FAILURE
}

/// From this many seeds on, every event must have occurred.
const COVERS: u64 = 1000;

fn many(options: &Options) -> ExitCode {
    let total = play_all(options, When::Never);
    match options.json {
        true => total.print_json(),
        false => total.print(),
    }
    let missed = if total.seeds >= COVERS { total.missed() } else { Vec::new() };
    if !missed.is_empty() {
        eprintln!("these never occurred in {} seeds: {}", total.seeds, missed.join(", "));
    }
    if total.grants == 0 {
        println!("no lock was granted, so this run proves nothing");
    }
    let is_clean = total.failed.is_empty() && missed.is_empty() && total.grants > 0;
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
