//! Textbook problems, solved by real processes that are killed: one a second, or up to half of them at once.
//!
//! The state that the locks protect is in files, outside of the store. Each process notes when it enters and leaves a
//! section, in one file that all append to, so the order of the lines is the order of the events. At the end the
//! command reads the notes, and judges whether two sections overlapped, whether tokens rose, whether the state stayed
//! whole, and how much each process achieved.
//!
//! | file | |
//! |---|---|
//! | `scene.rs` | the problems: their processes, and the least progress of each |
//! | `run.rs` | one run: the store, the kills, the end |
//! | `crew.rs` | the worker processes: starts them, kills them, ends them |
//! | `notes.rs` | the lines that workers append |
//! | `judge.rs` | judges the lines: sections, tokens, progress |
//! | `judge/waits.rs` | judges how long each process waited, and who waited at the same time |
//! | `residue.rs` | checks the store when all are dead |
//! | `report.rs` | prints the result |
//! | `worker/` | the worker processes, with a file for each problem |
//!
//! The seed repeats the choice of whom to kill and the choices of each worker, but not the scheduling of the machine.

mod crew;
mod judge;
mod notes;
mod options;
mod report;
mod residue;
mod run;
mod scene;
mod worker;

use std::process::ExitCode;

pub(crate) use options::{Options, USAGE};
pub(crate) use run::run;

/// Runs the hidden subcommand of a worker. Returns `None` for any other word.
pub(crate) fn hidden(word: &str, args: impl Iterator<Item = String>) -> Option<ExitCode> {
    (word == crew::WORKER).then(|| worker::run(args))
}
