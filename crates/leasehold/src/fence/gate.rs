//! The rule of a fence, as a plain value.

use std::error::Error as StdError;
use std::fmt;

use leasehold_spec::Token;
use leasehold_spec::mutant::{Mutant, is_on};

use crate::error::{Error, ErrorKind};

/// The kind of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read, without changing the data.
    Read,
    /// Change the data.
    Write,
}

/// The two marks of a fence, and their rule.
///
/// A gate is a plain value, and entering it needs `&mut`. Put it under the lock that guards the data, so that the check
/// and the effect are one step. A gate with a lock of its own could admit a holder and become outdated before the
/// effect.
///
/// ```
/// # use leasehold::Token;
/// # use leasehold::fence::{Access, Gate, Stale};
/// # fn main() -> Result<(), Stale> {
/// # let token = |n| Token::new(n).unwrap();
/// let mut gate = Gate::new();
/// gate.enter(token(33), Access::Read)?; // A is about to read
/// gate.enter(token(34), Access::Read)?; // A's lease has ended, and B holds the lock
/// assert!(gate.enter(token(33), Access::Write).is_err()); // A's result is outdated
/// gate.enter(token(34), Access::Write)?;
/// # Ok(())
/// # }
/// ```
///
/// If the resource is used across `await`, lock both together: `tokio::sync::Mutex<(Gate, File)>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gate {
    writers: Token,
    all: Token,
}

impl Gate {
    /// Returns a gate that nobody has entered.
    #[must_use]
    pub const fn new() -> Self {
        Self { writers: Token::NONE, all: Token::NONE }
    }

    /// Returns a gate with marks that were stored with the data: the largest token of a writer, and of all.
    #[must_use]
    pub fn restore(writers: Token, all: Token) -> Self {
        Self { writers, all: all.max(writers) }
    }

    /// Admits the holder of `token` and excludes all holders of smaller tokens. If a later holder has entered, it
    /// changes nothing and returns an error. Call it before the first read, and again with each write.
    ///
    /// # Errors
    ///
    /// The token is [`Stale`].
    pub fn enter(&mut self, token: Token, access: Access) -> Result<(), Stale> {
        let mark = match access {
            Access::Read if is_on(Mutant::P22OldReader) => Token::NONE,
            Access::Read => self.writers,
            Access::Write => self.all,
        };
        if token < mark {
            return Err(Stale { token, mark, access });
        }
        if access == Access::Write {
            self.writers = token;
        }
        if access == Access::Write || !is_on(Mutant::P22ReadsPass) {
            self.all = self.all.max(token);
        }
        Ok(())
    }

    /// Returns the largest token that has entered to write.
    #[must_use]
    pub const fn writers(&self) -> Token {
        self.writers
    }

    /// Returns the largest token that has entered.
    #[must_use]
    pub const fn all(&self) -> Token {
        self.all
    }
}

/// A token that was refused, because a later holder has entered. Nothing was read or changed.
///
/// As an [`Error`] it has the kind [`ErrorKind::Lost`] and is the source of that error. The fence has noticed a loss
/// that the holder did not know of yet, and the caller has to do the same as after every loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stale {
    /// The token that was refused.
    pub token: Token,
    /// The mark, which is larger.
    pub mark: Token,
    /// The kind of access that was refused.
    pub access: Access,
}

impl Stale {
    /// Returns the stale token that caused this error, if one did.
    #[must_use]
    pub fn behind(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = match self.access {
            Access::Read => "read",
            Access::Write => "written",
        };
        write!(
            f,
            "token {} is stale: the holder of token {} has entered since, and nothing was {done}. The lease is lost: \
             discard the work, lock again and start with a new read",
            self.token, self.mark
        )
    }
}

impl StdError for Stale {}

impl From<Stale> for Error {
    fn from(stale: Stale) -> Self {
        Self::new(ErrorKind::Lost, stale.to_string()).because(stale)
    }
}
