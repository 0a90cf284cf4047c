//! The signals that reach the supervisor.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use leasehold::seam::descriptors_advice;
use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Handed on to the command's group; while we wait, those that would end a program leave the queue.
const FORWARDED: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::TERM, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH];

pub(crate) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// Listens. What was ignored when we were started stays ignored, here and for the command: `nohup` means it.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored()?;
        let is_heard = |one: &Signal| ignored & (1 << (one.as_raw() - 1)) == 0;
        let mut signals = Self(Vec::new());
        for one in FORWARDED.into_iter().filter(is_heard) {
            signals.add(one)?;
        }
        // Of children we hear in any case: with an ignored SIGCHLD nobody's status could be had.
        signals.add(Signal::CHILD)?;
        signals.add(Signal::CONT)?;
        Ok(signals)
    }

    pub(crate) fn add(&mut self, one: Signal) -> io::Result<()> {
        self.0.push((one, signal(SignalKind::from_raw(one.as_raw()))?));
        Ok(())
    }

    /// The next one. Several of a kind that came at once are one.
    ///
    /// # Cancel safety
    /// None is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (one, stream) in &mut self.0 {
                if stream.poll_recv(context) == Poll::Ready(Some(())) {
                    return Poll::Ready(*one);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next one that ends a program which does not ask for it.
    ///
    /// # Cancel safety
    /// None is lost.
    pub(crate) async fn leave(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::CHILD | Signal::CONT | Signal::WINCH => {}
                one => return one,
            }
        }
    }
}

/// The signals that we were told to ignore, as bits. None where the system does not say.
///
/// # Errors
/// Where it does not say because no descriptor is left: `nohup` would mean nothing.
fn ignored() -> io::Result<u64> {
    let status = match fs::read_to_string("/proc/self/status") {
        Err(error) if descriptors_advice(&error).is_some() => return Err(error),
        status => status.unwrap_or_default(),
    };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    Ok(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
}
