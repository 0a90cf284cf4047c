//! The byte seam: the real client crate and the real Redis store over a network that a seed controls.
//!
//! A simulation of the protocol finds what is wrong with the protocol. It cannot find a driver that pairs an answer
//! with the wrong request after a connection broke between two bytes, a script that is forgotten between two calls, or
//! a subscription that is gone while its connection seems healthy. So here everything above the socket is what ships:
//! session, store, the arguments and answers of scripts, and the client crate. Below it is turmoil. Behind that is the
//! front of the test kit (`leasehold-testkit/src/front`), which answers what Redis would, byte for byte, and runs
//! `step`.
//!
//! One seed is one thread, one order of events and one trace: its hash covers every byte that the server read and wrote
//! and every event, with its time. A seed chooses which faults there are, how often they occur, how long leases are and
//! how programs behave. After ten seconds everything is healed, and every waiter has to be served.
//!
//! The checks: the history, by the test kit's checker; no call takes longer than its docs say or returns an error that
//! they do not list; `close` gives everything back; no call waits forever.

mod client;
mod nemesis;
mod options;
mod report;
mod run;
mod server;
mod trace;
mod world;

use std::process::ExitCode;
use std::time::Instant;

pub(crate) use options::{Options, USAGE};
use report::play_all;

/// Plays the seeds of these options.
pub(crate) fn run(options: &Options) -> ExitCode {
    let began = Instant::now();
    let total = play_all(options);
    total.print();
    println!("took {:.1} s", began.elapsed().as_secs_f64());
    if total.wrong.is_empty() && total.vacuous.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
