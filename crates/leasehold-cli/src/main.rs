//! The command `leasehold`: runs commands under a lock, lists locks, and shows their holders.
//!
//! Each verb has its file. `said.rs` describes the command line. Standard output gets only data: text for people, or JSON
//! for programs with `--json`. Messages go to standard error.

mod exit;
mod inspect;
mod ls;
mod pages;
mod quorum;
mod revoke;
mod run;
mod said;
mod show;
mod store;
mod tips;

use std::process::ExitCode;

use tokio::runtime::Runtime;

use crate::exit::Failure;
use crate::said::{Said, Verb};

fn main() -> ExitCode {
    let done = match Said::read().map(|said| said.verb) {
        Err(done) => done,
        // Its exit status is that of its command.
        Ok(Verb::Run(said)) => return run::run(*said),
        Ok(Verb::Minder(said)) => return run::mind(&said),
        Ok(Verb::Interrupt(said)) => return run::interrupt(&said),
        Ok(Verb::Place) => return run::hold_place(),
        Ok(Verb::Inspect(said)) => inspect::run(&said),
        Ok(Verb::Ls(said)) => ls::run(&said),
        Ok(Verb::Revoke(said)) => revoke::run(&said),
        Ok(Verb::Quorum(said)) => quorum::run(&said),
        Ok(Verb::Completions(said)) => pages::completions(said.shell),
        Ok(Verb::Man(said)) => pages::man(said.verb.as_deref()),
    };
    done.unwrap_or_else(|failure| {
        if let Some(message) = failure.message() {
            show::warn(message);
        }
        failure.exit
    })
    .into()
}

/// Runs the requests of a verb to the store.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    runtime()?.block_on(work)
}

/// Starts a runtime of one thread, which is enough: the client has a thread of its own.
fn runtime() -> Result<Runtime, Failure> {
    leasehold::seam::runtime().map_err(|error| Failure::system("cannot start the async runtime", &error))
}
