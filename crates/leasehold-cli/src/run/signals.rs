//! The signals that the supervisor gets.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use leasehold::seam::descriptors_advice;
use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use super::end::End;

/// The signals that are forwarded to the group of the command. While the run waits for the lock, those that end a program
/// by default end the wait.
const FORWARDED: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::TERM, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH];

pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    /// Those that came and end a program by default.
    seen: Vec<Signal>,
}

impl Signals {
    /// Listens for signals. A signal that this process inherited as ignored stays ignored, also for the command: this is
    /// how `nohup` works.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored()?;
        let is_wanted = |one: &Signal| ignored & (1 << (one.as_raw() - 1)) == 0;
        let mut signals = Self { streams: Vec::new(), seen: Vec::new() };
        for one in FORWARDED.into_iter().filter(is_wanted) {
            signals.add(one)?;
        }
        // SIGCHLD is always handled: if it is ignored, the status of a child cannot be read.
        signals.add(Signal::CHILD)?;
        signals.add(Signal::CONT)?;
        Ok(signals)
    }

    pub(crate) fn add(&mut self, one: Signal) -> io::Result<()> {
        self.streams.push((one, signal(SignalKind::from_raw(one.as_raw()))?));
        Ok(())
    }

    /// Waits for the next signal. Several of the same kind may be merged into one.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        let next = poll_fn(|context| {
            for (one, stream) in &mut self.streams {
                if stream.poll_recv(context) == Poll::Ready(Some(())) {
                    return Poll::Ready(*one);
                }
            }
            Poll::Pending
        })
        .await;
        if matches!(next, Signal::HUP | Signal::INT | Signal::TERM | Signal::QUIT) && !self.seen.contains(&next) {
            self.seen.push(next);
        }
        next
    }

    /// Whether a signal has asked this process to end, and not only its command, which has ended with this status. Many
    /// programs read their settings again at a HUP: it counts only if it has ended the command.
    pub(crate) fn has_asked_to_end(&self, status: u8) -> bool {
        self.seen.iter().any(|seen| *seen != Signal::HUP || status == End::signal(Signal::HUP).code)
    }

    /// Waits for the next signal that ends a program by default.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub(crate) async fn leave(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CHILD | Signal::CONT | Signal::WINCH => {}
                one => return one,
            }
        }
    }
}

/// Returns the signals that this process ignores, as bits. If the system does not tell, there are none.
///
/// # Errors
/// If no file descriptor is left to read them: `nohup` would have no effect.
fn ignored() -> io::Result<u64> {
    let status = match fs::read_to_string("/proc/self/status") {
        Err(error) if descriptors_advice(&error).is_some() => return Err(error),
        status => status.unwrap_or_default(),
    };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Ok(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
}
