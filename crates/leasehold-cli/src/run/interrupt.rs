//! Ctrl-C for those around us.
//!
//! While the terminal is lent, its INT and QUIT reach the command alone. With every other program they reach the script
//! that started it as well, and a shell goes by how its child ended: `while true; do leasehold run a -- b; done` can be
//! ended by Ctrl-C only if we die of the signal, as the command did. So that is our last act: the whole group gets it, and
//! we with it. Our handlers cannot be taken back, and an exec does it: it starts ourselves again, to do nothing else.

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use clap::Args;
use rustix::process::{DumpableBehavior, Signal, kill_current_process_group, set_dumpable_behavior};

use super::end::{End, FAILED};
use super::minder::OURSELVES;

/// What ends a foreground job from the keyboard.
pub(crate) const KEYS: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// The signal of the terminal's that is passed on. It is said by `leasehold run` and by nobody else.
#[derive(Debug, Args)]
pub(crate) struct InterruptArgs {
    /// The signal's number
    #[arg(long, value_name = "N")]
    signal: i32,
}

/// Ends by the signal, together with our group. Comes back only where that cannot be done.
pub(crate) fn pass_on(signal: Signal) {
    let _no_such_program = Command::new(OURSELVES)
        .arg0("leasehold")
        .arg("interrupt")
        .arg(format!("--signal={}", signal.as_raw()))
        .env_clear()
        .exec();
}

/// What is left of us sends the signal.
pub(crate) fn run(args: &InterruptArgs) -> ExitCode {
    let Some(signal) = KEYS.into_iter().find(|key| key.as_raw() == args.signal) else { return FAILED.into() };
    // A QUIT would leave a core, of which nobody learns anything.
    let _as_it_is = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let _it_ends_us_too = kill_current_process_group(signal);
    // It is ignored here, as it was when we were started.
    End::signal(signal).code.into()
}
