//! `leasehold-bench`: the cost of Leasehold, compared with other locks, and with the least that a lock on Redis can cost.
//!
//! [`cli`] turns arguments into a plan: [`scenario`]s at several sizes, and the [`system`]s and [`peers`] that take turns
//! in them. [`mod@bench`] carries the plan out: for each run a [`crew`] of new processes, each a [`worker`], on a
//! [`store`] and perhaps the [`nodes`] of a quorum; a [`monitor`] finds out beforehand which commands a peer sends.
//! [`stats`] makes figures of the reports, a [`record`] is a line of figures, [`bars`] has the limits of the figures.
//! [`output`] prints the figures, as a [`table`] or as lines; [`page`] and [`chart`] make a report of lines.

mod awake;
mod bars;
mod bench;
mod chart;
mod cli;
mod crew;
mod error;
mod machine;
mod monitor;
mod nodes;
mod output;
mod page;
mod peers;
mod record;
mod scenario;
mod stats;
mod store;
mod system;
mod table;
mod worker;

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use cli::Task;
use error::{Context, Result};

/// The exit code if the lock under test was held twice at a time.
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
    match task {
        Task::Work => worker::main().map(|()| ExitCode::SUCCESS),
        Task::Report { dir } => page::write(&dir).map(|()| ExitCode::SUCCESS),
        Task::Measure { plan, store, format, plot } => {
            let mut output = output::Output::new(format, plan.steps());
            measure(plan, store.as_deref(), &mut output)?;
            if let Some(dir) = plot {
                chart::write(&dir, output.rows())?;
            }
            Ok(verdict(&output))
        }
    }
}

fn measure(plan: bench::Plan, store: Option<&str>, output: &mut output::Output) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        let store = store::Store::open(store).await?;
        tokio::select! {
            ended = bench::run(plan, store, output) => ended,
            // Workers have process groups of their own, and end when the future is dropped here.
            stopped = stop() => stopped.and(Err("stopped by a signal".into())),
        }
    })
}

/// Returns when a signal asks this program to end.
async fn stop() -> Result<()> {
    let listen = |kind| signal(kind).context("listening for signals");
    let (mut interrupted, mut terminated) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}

fn verdict(output: &output::Output) -> ExitCode {
    match output.lost_updates() {
        0 => ExitCode::SUCCESS,
        lost => {
            eprintln!("leasehold-bench: {lost} updates were lost: a lock had two holders at a time");
            ExitCode::from(EXIT_BROKEN)
        }
    }
}
