//! With which status the command ends, and what it says before.

use std::fmt;
use std::io;
use std::process::ExitCode;

use leasehold::{Error, ErrorKind};

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for was done.
    Done,
    /// It could be asked, and there was nothing to do.
    Nothing,
    /// What was said makes no sense.
    Usage,
    /// The store is not there or refuses, or the system does.
    Failed,
    /// Whoever read what was printed has gone.
    Unread,
}

impl Exit {
    /// As `timeout` and `env` have them: a command's own status stays below 123.
    pub(crate) const fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Nothing => 1,
            Self::Usage => 2,
            Self::Failed => 125,
            // What a shell says of whoever a SIGPIPE ended, as it does `cat`.
            Self::Unread => 141,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

/// Whether there is no store to speak with, and the next try may find one.
pub(crate) fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum)
}

/// Why a verb could not be carried out.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: Option<String>,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: Some(message.into()) }
    }

    pub(crate) fn own(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: Some(message.into()) }
    }

    /// The failure of a system call, with advice if the cause is known.
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        let advice = leasehold::seam::descriptors_advice(error);
        let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
        Self::own(format!("{what}: {error}{advice}"))
    }

    /// Nothing is said of it: `leasehold ls | head -1` is no error, and nobody is left to read what there is.
    pub(crate) const fn unread() -> Self {
        Self { exit: Exit::Unread, message: None }
    }

    /// What there is to say.
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
