//! `leasehold elect NAME --observe`: prints each leader.

use std::process::ExitCode;
use std::time::Duration;

use leasehold::Leader;
use serde::Serialize;
use tokio::time::sleep;

use super::super::end::End;
use super::super::signals::Signals;
use super::{ElectArgs, Failure};
use crate::exit::{Exit, is_away};
use crate::show::{self, plain};
use crate::store;

/// The pause after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// A change, as JSON. Later versions may add fields.
#[derive(Serialize)]
struct Change<'a> {
    name: &'a str,
    /// Null if nobody leads.
    leader: Option<Seen<'a>>,
}

#[derive(Serialize)]
struct Seen<'a> {
    value: &'a str,
    token: u64,
}

/// Prints the leaders until a signal comes, or until nobody reads them.
pub(super) fn run(args: &ElectArgs) -> ExitCode {
    let done = crate::block_on(async {
        let mut signals = Signals::listen().map_err(|error| Failure::system("cannot listen for signals", &error))?;
        tokio::select! {
            biased;
            signal = signals.leave() => Ok(ExitCode::from(End::signal(signal).code)),
            done = observe(args) => done.map(ExitCode::from),
        }
    });
    done.unwrap_or_else(|failure| {
        if let Some(message) = failure.message() {
            show::warn(message);
        }
        failure.exit.into()
    })
}

async fn observe(args: &ElectArgs) -> Result<Exit, Failure> {
    let client = store::connect(&args.store).await?;
    let mut election = client.election(&args.name);
    if let Some(lease) = args.lease {
        election = election.lease(lease);
    }
    let mut observer = election.observe();
    let mut is_away_since_last = false;
    loop {
        match observer.next().await {
            Ok(leader) => {
                is_away_since_last = false;
                show::print(&[line(args, leader.as_ref())?])?;
            }
            Err(error) if is_away(&error) => {
                if !is_away_since_last && !args.store.quiet {
                    show::warn(&format!("{error}; the last line may be out of date"));
                }
                is_away_since_last = true;
                sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn line(args: &ElectArgs, leader: Option<&Leader>) -> Result<String, Failure> {
    let name = &args.name;
    if args.json {
        let leader = leader.map(|leader| Seen { value: &leader.value, token: leader.token.get() });
        return show::json(&Change { name, leader });
    }
    Ok(match leader {
        Some(leader) => format!("{name}: {} leads; token {}", plain(&leader.value), leader.token),
        None => format!("{name}: nobody leads"),
    })
}
