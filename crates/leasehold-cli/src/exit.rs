//! Exit statuses, and the failures that lead to them.

use std::fmt;
use std::io;
use std::process::ExitCode;

use leasehold::{Error, ErrorKind};

/// The result of a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The request was carried out.
    Done,
    /// The store replied, and there was nothing to do.
    Nothing,
    /// The arguments or the store URL are invalid.
    Usage,
    /// The store is unreachable or refuses the request, or a system call failed.
    Failed,
    /// The reader of standard output has closed the pipe.
    Unread,
}

impl Exit {
    /// Returns the status, with the numbers that `timeout` and `env` use: those below 123 are left to the command of a
    /// `run`.
    pub(crate) const fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Nothing => 1,
            Self::Usage => 2,
            Self::Failed => 125,
            // A shell reports this for a program such as `cat` that SIGPIPE ended.
            Self::Unread => 141,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

/// Returns whether the store is unreachable for now, so that a retry may succeed.
pub(crate) fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum)
}

/// The reason why a verb failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: Option<String>,
}

impl Failure {
    /// Returns a failure of the user's arguments.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: Some(message.into()) }
    }

    /// Returns a failure of the store or of the system.
    pub(crate) fn own(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: Some(message.into()) }
    }

    /// Returns the failure of a system call, with advice if the cause is known.
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        let advice = leasehold::seam::descriptors_advice(error);
        let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
        Self::own(format!("{what}: {error}{advice}"))
    }

    /// Returns the silent failure of a write to a closed pipe: `leasehold ls | head -1` is not an error.
    pub(crate) const fn unread() -> Self {
        Self { exit: Exit::Unread, message: None }
    }

    /// Returns the error message, if any.
    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message().unwrap_or_default())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid => Self::usage(error.to_string()),
            _ => Self::own(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::seam::error;

    #[test]
    fn a_store_that_is_away_is_neither_busy_nor_misspelt() {
        for kind in [ErrorKind::Unreachable, ErrorKind::Quorum] {
            assert!(is_away(&error(kind, "")));
            assert_eq!(Failure::from(error(kind, "")).exit.status(), 125);
        }
        assert!(!is_away(&error(ErrorKind::Denied, "")));
    }
}
