//! The ends of a run: its exit status and its last message.

use rustix::process::{Signal, WaitStatus};

use crate::exit::{Exit, Failure};

pub(crate) const LOST: u8 = 123;
pub(crate) const BUSY: u8 = 124;
pub(crate) const FAILED: u8 = Exit::Failed.status();
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// The exit status of a command that signal n ended is this plus n.
const SIGNALLED: u8 = 128;

/// The end of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) code: u8,
    pub(crate) why: Why,
    /// The signal that this process sends to its group and dies of (`interrupt.rs`).
    pub(crate) interrupt: Option<Signal>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Silent,
    /// A notice: not printed with `--quiet`.
    News(String),
    /// An error.
    Error(String),
}

impl End {
    pub(crate) fn error(code: u8, what: &impl ToString) -> Self {
        Self { code, why: Why::Error(what.to_string()), interrupt: None }
    }

    pub(crate) fn news(code: u8, what: &impl ToString) -> Self {
        Self { code, why: Why::News(what.to_string()), interrupt: None }
    }

    /// Returns an end without a message, or whose message is already printed.
    pub(crate) fn silent(code: u8) -> Self {
        Self { code, why: Why::Silent, interrupt: None }
    }

    /// Returns the end of a command that this signal ended.
    pub(crate) fn signal(signal: Signal) -> Self {
        Self::silent(signalled(signal.as_raw()))
    }

    /// Returns the end of a command with this status.
    pub(crate) fn status(status: WaitStatus) -> Self {
        Self::silent(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
            (None, signal) => signalled(signal.unwrap_or(0)),
        })
    }
}

fn signalled(number: i32) -> u8 {
    u8::try_from(number).map_or(u8::MAX, |number| SIGNALLED.saturating_add(number))
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::error(failure.exit.status(), &failure)
    }
}

impl From<leasehold::Error> for End {
    fn from(error: leasehold::Error) -> Self {
        Failure::from(error).into()
    }
}
