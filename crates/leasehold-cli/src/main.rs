//! The command `leasehold`.

mod run;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use leasehold::{ErrorKind, Inspection, Leasehold};

/// Distributed locks that are fast, fair, fenced and honest about loss
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true, after_help = STATUS)]
struct Said {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<run::RunArgs>),
    /// Watches over the command of a `leasehold run`, which starts it
    #[command(hide = true)]
    Minder(run::MinderArgs),
    /// Leads a process group for a minder, which starts it
    #[command(hide = true)]
    Place,
    /// Says who holds a lock, with which token, for how long, and how many wait
    #[command(after_help = EXAMPLE)]
    Inspect {
        /// The lock
        name: String,
        /// Where it is: redis://HOST[:PORT][/DB][?prefix=P], with the prefix that the program uses. One with a password
        /// goes into LEASEHOLD_STORE
        #[arg(long, value_name = "URL")]
        store: Option<String>,
    },
}

const EXAMPLE: &str = "\
Example:
  leasehold inspect stock:42 --store redis://localhost
  LEASEHOLD_STORE=redis://:PASSWORD@HOST leasehold inspect stock:42";

const STATUS: &str = "\
Exit status:
  0    it could be told
  2    what was said makes no sense
  125  it could not be told: the store is not there, or refuses";

/// Own failures, as `timeout` and `env` have them: a command's own status stays below.
const FAILED: u8 = 125;
/// What was said makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let (name, store) = match Said::parse().verb {
        Verb::Run(said) => return run::run(*said),
        Verb::Minder(said) => return run::mind(&said),
        Verb::Place => return run::hold_place(),
        Verb::Inspect { name, store } => (name, store),
    };
    let store = match which(store) {
        Ok(store) => store,
        Err(why) => {
            eprintln!("leasehold: {why}");
            return ExitCode::from(USAGE);
        }
    };
    match inspect(&store, &name) {
        Ok(inspection) => {
            // Who reads it through a pipe may have gone.
            match writeln!(io::stdout(), "{}", describe(&name, &inspection)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::from(FAILED),
            }
        }
        Err(error) => {
            eprintln!("leasehold: {error}");
            ExitCode::from(if error.kind() == ErrorKind::Invalid { USAGE } else { FAILED })
        }
    }
}

/// The URL of the store. An error does not repeat it: it may have a password in it.
fn which(said: Option<String>) -> Result<String, &'static str> {
    if said.as_ref().is_some_and(|url| url.contains('@')) {
        return Err(
            "a URL with a user or password is not taken from the command line, where everybody on this machine \
                    can read it: put it into the environment variable LEASEHOLD_STORE",
        );
    }
    let set = || std::env::var("LEASEHOLD_STORE").ok().filter(|url| !url.is_empty());
    let url = said.or_else(set).ok_or("which store? Give --store URL, or set LEASEHOLD_STORE")?;
    match url.get(.."memory:".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("memory:")) {
        // Here every lock is free, whoever holds it there.
        true => Err("memory: is inside of each program, and cannot be looked at from another: give a redis://HOST"),
        false => Ok(url),
    }
}

fn inspect(store: &str, name: &str) -> leasehold::Result<Inspection> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime of one thread");
    runtime.block_on(async { Leasehold::connect(store).await?.mutex(name).inspect().await })
}

fn describe(name: &str, inspection: &Inspection) -> String {
    let waiting = match inspection.waiters {
        0 => "nobody waits".to_owned(),
        1 => "1 waits".to_owned(),
        many => format!("{many} wait"),
    };
    let Some(holder) = &inspection.holder else { return format!("{name}: free; {waiting}") };
    let told = if holder.is_revoked { ", told to stop" } else { "" };
    format!(
        "{name}: held by {} (grant {}){told}; token {}; {:.1} s left; {waiting}",
        holder.label,
        holder.id(),
        holder.token,
        holder.remaining.as_secs_f64(),
    )
}
