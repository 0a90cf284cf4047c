//! `leasehold-bench`: what Leasehold costs, beside the least that a lock on Redis can cost.
//!
//! [`cli`] turns arguments into a plan: [`scenario`]s at several sizes, and the [`system`]s that take turns in them.
//! [`mod@bench`] carries it out: for each run a [`crew`] of fresh processes, each a [`worker`], on a [`store`]. [`stats`]
//! makes figures of what they report, [`bars`] says what they should be, [`report`] prints both.

mod bars;
mod bench;
mod cli;
mod crew;
mod error;
mod report;
mod scenario;
mod stats;
mod store;
mod system;
mod worker;

use std::process::ExitCode;

use cli::Task;
use error::{Context, Result};

/// The lock under test let two in.
const EXIT_BROKEN: u8 = 3;

fn main() -> ExitCode {
    let task = match cli::task(std::env::args()) {
        Ok(task) => task,
        Err(error) => error.exit(),
    };
    match carry_out(task) {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("leasehold-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn carry_out(task: Task) -> Result<ExitCode> {
    let (plan, store, format) = match task {
        Task::Work => return worker::main().map(|()| ExitCode::SUCCESS),
        Task::Measure { plan, store, format } => (plan, store, format),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    let mut report = report::Report::new(format, plan.steps());
    runtime.block_on(async {
        let mut store = store::Store::open(store.as_deref()).await?;
        bench::run(&plan, &mut store, &mut report).await
    })?;
    match report.lost_updates() {
        0 => Ok(ExitCode::SUCCESS),
        lost => {
            eprintln!("leasehold-bench: {lost} updates were lost: two were inside one lock");
            Ok(ExitCode::from(EXIT_BROKEN))
        }
    }
}
