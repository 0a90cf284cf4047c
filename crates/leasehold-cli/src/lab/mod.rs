//! `leasehold lab`: breaks the locks of the tutorials, and tries the same on Leasehold.

mod list;
mod live;
mod report;
mod show;
mod table;
mod worker;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use leasehold_hazards::scene::Scene;

use crate::exit::{Exit, Failure};
pub(crate) use worker::{WorkerArgs, run as work};

/// Arguments of `leasehold lab`.
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Debug, Subcommand)]
enum LabVerb {
    /// List the hazards and the locks that they break
    List,
    /// Show how one lock breaks, and try the same on Leasehold
    #[command(after_help = SHOW)]
    Show(Show),
    /// Write a page with a figure of each schedule into a directory
    #[command(after_help = REPORT)]
    Report(Report),
    /// Print what all searches find, as a Markdown table
    #[command(after_help = TABLE)]
    Table(Live),
}

#[derive(Args, Debug)]
struct Show {
    /// The hazard, as 'leasehold lab list' names it
    #[arg(value_parser = scene)]
    hazard: &'static Scene,
    #[command(flatten)]
    live: Live,
}

#[derive(Args, Debug)]
struct Report {
    /// The directory; it is created if it does not exist
    dir: PathBuf,
}

/// Options of the runs on real servers.
#[derive(Args, Clone, Copy, Debug)]
struct Live {
    /// Also force the schedule on real servers, N times, and try Leasehold
    ///
    /// This needs redis-server in the PATH, and a C compiler for hazards
    /// with clocks that are ahead or jump. The servers are started for
    /// the runs. N is at most 100000.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_RUNS), verbatim_doc_comment)]
    live: Option<u32>,
}

/// The largest number of runs on real servers: some hours.
const MOST_RUNS: i64 = 100_000;

pub(crate) fn run(args: &LabArgs) -> Result<Exit, Failure> {
    match &args.verb {
        LabVerb::List => list::run(),
        LabVerb::Show(args) => show::run(args.hazard, args.live),
        LabVerb::Report(args) => report::run(&args.dir),
        LabVerb::Table(live) => table::run(*live),
    }
}

fn scene(text: &str) -> Result<&'static Scene, String> {
    Scene::find(text).ok_or_else(|| {
        let ids: Vec<_> = Scene::all().iter().map(|scene| scene.id).collect();
        format!("expected one of {}", ids.join(", "))
    })
}

const SHOW: &str = "\
The schedule is a shortest one: a search tries every order in which the processes, the server and the clock can act.
Then it tries all schedules of Leasehold with the same faults. Neither needs a server.

Examples:
  leasehold lab show H3
  leasehold lab show H3 --live 100

Exit status: 0 if the lock of the tutorial broke, and Leasehold kept its promises; 1 otherwise; 2 for invalid arguments;
125 if the servers of --live do not start.";

const REPORT: &str = "\
The page is one file, index.html. It needs no server and no network. The searches take about a minute.

Examples:
  leasehold lab report /tmp/lab && firefox /tmp/lab/index.html

Exit status: 0 if the page is written; 2 for invalid arguments; 125 if it cannot be written.";

const TABLE: &str = "\
Examples:
  leasehold lab table
  leasehold lab table --live 100

Exit status: 0 if all locks of the tutorials broke, and Leasehold kept its promises; 1 otherwise; 125 if the servers of
--live do not start.";
