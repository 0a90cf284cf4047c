//! Ctrl-C for the script around `leasehold run`.
//!
//! While the terminal is lent, INT and QUIT of the terminal reach only the command. With other programs they also reach the
//! script that started it, and a shell checks how its child ended: Ctrl-C ends `while true; do leasehold run a -- b; done`
//! only if `leasehold run` dies of the signal, as the command did. So at the end the whole group gets the signal, including
//! this process. Its signal handlers cannot be removed, so it executes itself again, only to send the signal.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{DumpableBehavior, Signal, kill_current_process_group, set_dumpable_behavior};

use super::end::{End, FAILED};
use super::minder::OURSELVES;

/// The signals of the keyboard that end a foreground job.
pub(crate) const KEYS: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// The arguments of the process that passes on a signal. Only `leasehold run` starts one.
#[derive(Debug, Args)]
pub(crate) struct InterruptArgs {
    /// The number of the signal
    #[arg(long, value_name = "N")]
    signal: i32,
}

/// Ends this process and its group by the signal. Returns only if that fails.
pub(crate) fn pass_on(signal: Signal) {
    let _no_such_program = Command::new(OURSELVES)
        .arg0("leasehold")
        .arg("interrupt")
        .arg(format!("--signal={}", signal.as_raw()))
        .env_clear()
        .exec();
}

/// Sends the signal to the group of this process.
pub(crate) fn run(args: &InterruptArgs) -> ExitCode {
    let Some(signal) = KEYS.into_iter().find(|key| key.as_raw() == args.signal) else { return FAILED.into() };
    // QUIT would leave a core file, which helps nobody.
    let _as_it_is = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _it_ends_us_too = kill_current_process_group(signal);
    // The signal is ignored, as this process inherited it.
    End::signal(signal).code.into()
}
