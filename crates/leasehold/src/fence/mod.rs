//! Fences: what makes a resource refuse a holder whose lease has ended.
//!
//! A lock that can be lost keeps two holders apart only while they notice the loss. One that is stopped in the middle of
//! its work, by a debugger, a virtual machine's snapshot or a disk that hangs, notices nothing; it goes on where it stood,
//! an hour later, and writes. No lock service can prevent that. The resource can: each grant carries a [`Token`] greater
//! than those before it, and the resource refuses a token below one that it has seen.
//!
//! # Why is a check before each write not enough?
//!
//! The picture that made tokens known (Martin Kleppmann, *How to do distributed locking*, 2016) shows a storage that
//! refuses an old token's **write**. That loses updates all the same:
//!
//! | | A holds 33 | B holds 34 | the resource has seen |
//! |---|---|---|---|
//! | 1 | reads "5 left", stops | | nothing |
//! | 2 | its lease ends | gets the lock | nothing |
//! | 3 | | reads "5 left" | nothing, if reads do not count |
//! | 4 | writes "4 left" | | 33: accepted |
//! | 5 | | writes "4 left" | 34: accepted. Two were sold, one is missing |
//!
//! Nothing arrived out of order. What is needed is that B's *read* closes the door behind A. So everybody **enters** with
//! the token before the first read, and entering raises the mark: A's write in step 4 is then refused by the 34 of
//! step 3.
//!
//! # Two marks
//!
//! Holders of a read-write lock read side by side, in any order of their tokens, and must not shut each other out. So
//! there are two marks: the highest token of a **writer**, and the highest of **all**.
//!
//! | who enters | needs a token at or above | raises |
//! |---|---|---|
//! | [`Access::Read`] | the highest writer's | the mark of all |
//! | [`Access::Write`] | the highest of all | both |
//!
//! *At or above*: a holder enters as often as it likes. (A recipe that refuses an equal token refuses the holder's own
//! second write.) The check, the mark and the effect are one step, or the pause falls between them; and the marks live
//! as long as the data.
//!
//! # Which one?
//!
//! | The data is | Use |
//! |---|---|
//! | in this process | [`Fenced`]: the data behind a gate, for any number of threads |
//! | something else behind a lock or an actor of your own: a file, a device, a row | a [`Gate`] beside it |
//! | a key in Redis | `RedisFence` (feature `redis`) |
//! | in an SQL database | a `WHERE` clause, below |
//! | out of your hands: mail, a payment | the token as the idempotency key, if there is one; there is no fence |
//!
//! Several resources under one lock: enter all of them, in a fixed order, before reading any.
//!
//! # SQL
//!
//! Two columns beside the data, one statement for each step. A statement that changes no row is a stale token (or a row
//! that does not exist): roll back and stop.
//!
//! ```sql
//! ALTER TABLE stock ADD COLUMN fence_writers bigint NOT NULL DEFAULT 0;
//! ALTER TABLE stock ADD COLUMN fence_all     bigint NOT NULL DEFAULT 0;
//!
//! -- Enter and read. Without RETURNING: this UPDATE first, then the SELECT.
//! UPDATE stock SET fence_all = CASE WHEN fence_all < :token THEN :token ELSE fence_all END
//!  WHERE id = :id AND fence_writers <= :token
//! RETURNING pieces;
//!
//! -- Every write.
//! UPDATE stock SET pieces = :pieces, fence_writers = :token, fence_all = :token
//!  WHERE id = :id AND fence_all <= :token;
//! ```
//!
//! Behind a plain mutex, where nobody reads without being able to write, one column does: the one of all.

mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod script;
#[cfg(feature = "redis")]
mod server;

use std::error::Error as StdError;
use std::fmt;

use leasehold_spec::Token;
use leasehold_spec::mutant::{Mutant, is_on};

pub use self::memory::Fenced;
#[cfg(feature = "redis")]
pub use self::redis::RedisFence;
use crate::error::{Error, ErrorKind};

/// What somebody who enters is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read, and leave the data as it is.
    Read,
    /// Change the data.
    Write,
}

/// The two marks and their rule.
///
/// A gate is a plain value, and entering takes it by `&mut`: it belongs under the lock that guards the data, so that the
/// check and the effect are one step. A gate with a lock of its own would let a holder in, and lose it before the effect.
///
/// ```
/// # use leasehold::Token;
/// # use leasehold::fence::{Access, Gate, Stale};
/// # fn main() -> Result<(), Stale> {
/// # let token = |n| Token::new(n).unwrap();
/// let mut gate = Gate::new();
/// gate.enter(token(33), Access::Read)?; // A is about to read
/// gate.enter(token(34), Access::Read)?; // A's lease has ended, and B holds the lock
/// assert!(gate.enter(token(33), Access::Write).is_err()); // what A computed is no longer worth writing
/// gate.enter(token(34), Access::Write)?;
/// # Ok(())
/// # }
/// ```
///
/// With a resource that is used over `await`, lock both together: `tokio::sync::Mutex<(Gate, File)>`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gate {
    writers: Token,
    all: Token,
}

impl Gate {
    /// A gate that nobody has entered.
    #[must_use]
    pub const fn new() -> Self {
        Self { writers: Token::NONE, all: Token::NONE }
    }

    /// A gate with the marks that were kept with the data: of the highest writer, and of all.
    #[must_use]
    pub fn restore(writers: Token, all: Token) -> Self {
        Self { writers, all: all.max(writers) }
    }

    /// Lets the holder of `token` in, and shuts out whoever holds an older one; or changes nothing and says who was
    /// faster. To be called before the first read, and again with each write.
    ///
    /// # Errors
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

    /// The highest token of those who entered to write.
    #[must_use]
    pub const fn writers(&self) -> Token {
        self.writers
    }

    /// The highest token of all who entered.
    #[must_use]
    pub const fn all(&self) -> Token {
        self.all
    }
}

/// A token that came too late: a later holder has entered. Nothing was read or changed.
///
/// As an [`Error`] it has the kind [`ErrorKind::Lost`], and is the source:
/// the fence has found out what the holder did not know yet, and what to do is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stale {
    /// The token that was refused.
    pub token: Token,
    /// The mark that it is below.
    pub mark: Token,
    /// What was to be done.
    pub access: Access,
}

impl Stale {
    /// The stale token behind an error, if that is what it is.
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
            "token {} is stale, and nothing was {done}: the holder of token {} has entered since. The lease is lost: \
             throw the work away, take the lock again and begin with a fresh read",
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
