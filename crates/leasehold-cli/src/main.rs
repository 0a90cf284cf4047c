//! The command `leasehold`. For now it looks at locks; `leasehold run NAME -- CMD` is the next thing to be built.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use leasehold::{Inspection, Leasehold};

/// Distributed locks that are fast, fair, fenced and honest about loss
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true)]
struct Said {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Says who holds a lock, with which token, for how long, and how many wait
    Inspect {
        /// The lock
        name: String,
        /// Where it is: redis://HOST[:PORT][/DB][?prefix=P]. One with a password goes into LEASEHOLD_STORE
        #[arg(long, value_name = "URL")]
        store: Option<String>,
    },
}

/// Own failures, as `timeout` and `env` have them: a command's own status stays below.
const FAILED: u8 = 125;
/// What was said makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let Verb::Inspect { name, store } = Said::parse().verb;
    let Some(store) = store.or_else(|| std::env::var("LEASEHOLD_STORE").ok()) else {
        eprintln!("leasehold: which store? Give --store URL, or set LEASEHOLD_STORE");
        return ExitCode::from(USAGE);
    };
    match inspect(&store, &name) {
        Ok(inspection) => {
            println!("{}", describe(&name, &inspection));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("leasehold: {error}");
            ExitCode::from(FAILED)
        }
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
