//! The command `leasehold`: runs commands under a lock, lists locks, and shows their holders.
//!
//! Each verb has its file. `args.rs` describes the command line. Standard output gets only data: text for people, or JSON
//! for programs with `--json`. Messages go to standard error.

mod args;
mod exit;
#[cfg(test)]
mod fuzz;
mod inspect;
mod json;
#[cfg(feature = "lab")]
mod lab;
mod ls;
mod pages;
mod quorum;
mod revoke;
mod run;
mod show;
mod store;
mod tips;

use std::process::ExitCode;

use tokio::runtime::Runtime;

use crate::args::{Arguments, Verb};
use crate::exit::Failure;

fn main() -> ExitCode {
    let done = match Arguments::read().map(|args| args.verb) {
        Err(done) => done,
        // Its exit status is that of its command.
        Ok(Verb::Run(args)) => return run::run(*args),
        Ok(Verb::Elect(args)) => return run::elect(*args),
        Ok(Verb::Minder(args)) => return run::mind(&args),
        Ok(Verb::Interrupt(args)) => return run::interrupt(&args),
        Ok(Verb::Place) => return run::hold_place(),
        Ok(Verb::Inspect(args)) => inspect::run(&args),
        Ok(Verb::Ls(args)) => ls::run(&args),
        Ok(Verb::Revoke(args)) => revoke::run(&args),
        Ok(Verb::Quorum(args)) => quorum::run(&args),
        #[cfg(feature = "lab")]
        Ok(Verb::Lab(args)) => lab::run(&args),
        #[cfg(feature = "lab")]
        Ok(Verb::Worker(args)) => lab::work(&args),
        Ok(Verb::Completions(args)) => pages::completions(args.shell),
        Ok(Verb::Man(args)) => pages::man(args.verb.as_deref()),
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
