//! The command `leasehold`: a command under a lock, what locks there are, and who holds them.
//!
//! A file a verb, each in two steps: what the user said (`said.rs`), and what it means. What is printed on standard output
//! is data, for people or, with `--json`, for programs; whatever else there is to say goes to standard error.

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
        // What it ends with is the command's business.
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

/// Awaits what a verb asks of a store.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    runtime()?.block_on(work)
}

/// One thread is enough: the client has one of its own.
fn runtime() -> Result<Runtime, Failure> {
    leasehold::seam::runtime().map_err(|error| Failure::system("no runtime could be started", &error))
}
