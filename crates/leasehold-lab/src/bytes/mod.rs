//! The byte seam: the real client crate and the real Redis store over a network that a seed owns.
//!
//! A simulation of the protocol finds what is wrong with the protocol. It says nothing of a driver that pairs an answer
//! with the wrong request after a connection broke between two bytes, of a script that is forgotten between two calls, or
//! of a subscription that is gone while its connection looks well. So here everything above the socket is what ships:
//! session, store, scripts' arguments and answers, and the client crate. Below it is turmoil; behind that the front of the
//! test kit (`leasehold-testkit/src/front`), which answers what Redis would, byte for byte, and runs `step`.
//!
//! One seed is one thread, one order of events and one trace: its hash is of every byte that the server read and wrote and
//! of everything that was done and heard, with its time. A seed chooses which faults there are, how often, how long leases
//! are and how programs behave. After ten seconds everything is mended, and everybody who waits has to be served.
//!
//! What is judged: the history, by the test kit's checker; that no call takes longer than its docs say, and answers no
//! error that they do not have; that `close` gives everything back; that nobody waits for ever.

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

/// Plays what was asked for.
pub(crate) fn run(options: &Options) -> ExitCode {
    let began = Instant::now();
    let total = play_all(options);
    total.print();
    println!("took {:.1} s", began.elapsed().as_secs_f64());
    if total.wrong.is_empty() && total.vacuous.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
