//! Many shops sell from one counted stock at the same time.
//!
//! A sale has four steps: read how many pieces are left, check that there is one, subtract it, and write the result back.
//! Other workers run between these steps. At the end, *sold + left* must be the number of pieces at the start.
//!
//! ```text
//! cargo run --release --example stock                                 # with Leasehold: the books balance
//! cargo run --release --example stock -- --lock none                  # without a lock: pieces are sold twice
//! cargo run --release --example stock -- --pause                      # a worker is stopped beyond its lease
//! cargo run --release --example stock -- --pause --fence              # and its old token is rejected
//! cargo run --release --example stock -- --store redis://localhost    # the same with processes, on Redis
//! ```
//!
//! | file | |
//! |---|---|
//! | `said.rs`, `plan.rs` | the command line, and the plan that is made from it |
//! | `shop.rs` | the lock and the stock; reading and writing are two steps, as with any database |
//! | `worker.rs` | the sale |
//! | `team.rs`, `manager.rs` | threads or processes with workers, and their manager |
//! | `verdict.rs`, `report.rs` | the verdict on the figures, and the report |

mod manager;
mod plan;
mod report;
mod said;
mod shop;
mod team;
mod verdict;
mod worker;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use crate::plan::Plan;
use crate::said::Said;

fn main() -> ExitCode {
    let said = Said::parse();
    let done = match said.team {
        true => team::work_for_a_manager(),
        false => match Plan::of(&said) {
            Ok(plan) => manager::manage(&plan).map(|report| report.show(said.form())),
            Err(why) => Said::command().error(ErrorKind::ValueValidation, why).exit(),
        },
    };
    done.unwrap_or_else(|why| {
        eprintln!("stock: {why}");
        ExitCode::from(report::FAILED)
    })
}
