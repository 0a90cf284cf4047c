//! How it ends, and what the caller is told.

use rustix::process::{Signal, WaitStatus};

use crate::exit::{Exit, Failure};

pub(crate) const LOST: u8 = 123;
pub(crate) const BUSY: u8 = 124;
pub(crate) const FAILED: u8 = Exit::Failed.status();
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
/// Ended by signal n: 128 + n.
const SIGNALLED: u8 = 128;

/// An end, and what is said about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) code: u8,
    pub(crate) why: Why,
    /// What our group is to get, and we to end by (`interrupt.rs`).
    pub(crate) interrupt: Option<Signal>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Silent,
    /// News: not with `--quiet`.
    News(String),
    /// An error of our own, or of the caller's.
    Error(String),
}

impl End {
    pub(crate) fn error(code: u8, what: &impl ToString) -> Self {
        Self { code, why: Why::Error(what.to_string()), interrupt: None }
    }

    pub(crate) fn news(code: u8, what: &impl ToString) -> Self {
        Self { code, why: Why::News(what.to_string()), interrupt: None }
    }

    /// There is nothing to say, or it was said already.
    pub(crate) fn silent(code: u8) -> Self {
        Self { code, why: Why::Silent, interrupt: None }
    }

    /// As a command ends that this signal ended.
    pub(crate) fn signal(signal: Signal) -> Self {
        Self::silent(signalled(signal.as_raw()))
    }

    /// As the command has ended.
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
