//! Shops sell a counted stock, all at once.
//!
//! A sale is what every such service does: read how many pieces are left, check that there is one, subtract it, write
//! the rest back. Four steps, and between them everybody else. Whatever happens, *sold + left* must be what there was.
//!
//! ```text
//! cargo run --release --example stock                                 # with Leasehold: the books balance
//! cargo run --release --example stock -- --lock none                  # without a lock: sold twice, before your eyes
//! cargo run --release --example stock -- --pause                      # a worker is stopped beyond its lease
//! cargo run --release --example stock -- --pause --fence              # and its old token is refused
//! cargo run --release --example stock -- --store redis://localhost    # the same with processes, on a Redis
//! ```
//!
//! | file | |
//! |---|---|
//! | `said.rs`, `plan.rs` | what the user said, and what it means |
//! | `shop.rs` | the lock and the stock; reading and writing are two steps, as with any database |
//! | `worker.rs` | the sale |
//! | `team.rs`, `manager.rs` | threads or processes full of workers, and who watches them |
//! | `verdict.rs`, `report.rs` | what is to be thought of the figures, and how it is said |

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
