//! Our own child processes: the lab starts itself again, for clients and for what eats processor time.

use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

/// The word by which the lab starts a client.
pub(crate) const CLIENT: &str = "chaos-client";
/// The word by which it starts a process that computes.
pub(crate) const BURN: &str = "chaos-burn";

/// This very program, also when its file was replaced since: a long run outlives a build.
pub(crate) fn us() -> Command {
    Command::new("/proc/self/exe")
}

/// Whoever kills the lab kills us, also while we are stopped.
pub(crate) fn die_with_parent() {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel knows this signal");
}

/// `chaos-burn MS`: computes for so long, and ends by itself whatever happens.
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
