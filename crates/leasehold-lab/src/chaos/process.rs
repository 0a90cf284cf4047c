//! The lab's own child processes: it starts itself again, for clients and for processes that consume processor time.

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

/// The subcommand of a client.
pub(crate) const CLIENT: &str = "chaos-client";
/// The subcommand of a process that computes.
pub(crate) const BURN: &str = "chaos-burn";

/// Returns a command that starts this very program, even if its file was replaced since: a long run outlives a build.
pub(crate) fn us() -> Command {
    Command::new("/proc/self/exe")
}

/// Ensures that this process is killed when the lab is, even while it is stopped.
pub(crate) fn die_with_parent() {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel knows this signal");
}

/// Runs `chaos-burn MS`: computes for this time, and ends by itself in any case.
pub(crate) fn burn(mut args: impl Iterator<Item = String>) -> ExitCode {
    let Some(ms) = args.next().and_then(|ms| ms.parse().ok()) else { return ExitCode::from(2) };
    die_with_parent();
    let (begun, time) = (Instant::now(), Duration::from_millis(ms));
    let mut number = 0u64;
    while begun.elapsed() < time {
        for _ in 0..10_000 {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
    ExitCode::SUCCESS
}
