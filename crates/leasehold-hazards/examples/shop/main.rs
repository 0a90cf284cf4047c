//! The stock service of the tutorials: HTTP services sell one counted stock, and a load generator hammers them.
//!
//! A sale reads the stock from Redis, checks that something is left, works for 1 ms, and writes the stock minus one. Only
//! the lock around it differs between runs. At the end, sold + left must be the stock at the start.
//!
//! ```text
//! cargo run --release -p leasehold-hazards --features live --example shop -- --lock local      # oversells
//! cargo run --release -p leasehold-hazards --features live --example shop -- --lock leasehold  # does not
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `args.rs`, `plan.rs` | the command line, and the plan that the services get |
//! | `locks.rs` | the names of the locks |
//! | `manager.rs`, `process.rs` | the run: servers, services, load, count |
//! | `load.rs` | the load generator |
//! | `service.rs`, `sale.rs`, `stock.rs` | an HTTP service, its sales, and the stock on Redis |
//! | `report.rs` | the summary and the verdict |

mod args;
mod load;
mod locks;
mod manager;
mod plan;
mod process;
mod report;
mod sale;
mod service;
mod stock;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::Args;

/// The exit status of a run that could not be completed.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match args.serve {
        true => service::serve(),
        false => manager::run(&args).map(|report| report.show(args.json)),
    };
    done.unwrap_or_else(|why| {
        eprintln!("shop: {why}");
        ExitCode::from(FAILED)
    })
}
