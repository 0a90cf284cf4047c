//! What can go wrong, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use leasehold_spec::BadName;

use crate::descriptors;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Its `Display` says what to do; [`Error::kind`] is for programs.
///
/// That somebody else holds the lock is not an error: `try_lock` answers `None`.
pub struct Error(Box<Inner>);

/// Boxed: every call answers with a `Result`, and nearly none of them with an error.
struct Inner {
    kind: ErrorKind,
    message: String,
    acted: Acted,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name, a duration, a label or a URL is not acceptable. Nothing was sent.
    Invalid,
    /// The store cannot be reached, or does not answer.
    Unreachable,
    /// The store refuses us: wrong password, or a right is missing.
    Denied,
    /// This store cannot give what was asked for, or this program may not ask here.
    Unsupported,
    /// Under our name is something that Leasehold did not write, or that a newer Leasehold wrote. It is left alone.
    Foreign,
    /// Too many wait for this name already: 10,000. Nothing was done; try again later.
    Full,
    /// Too few nodes of a quorum vote. The message names each that does not, and why.
    Quorum,
    /// A quorum was not begun: a node knows a holder or a waiter, or was emptied while it was asked. The message says
    /// which.
    InUse,
    /// The lease was lost.
    Lost,
    /// The client was closed.
    Closed,
    /// The store answered with an error of its own.
    Store,
}

/// Whether the store may have carried the request out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Acted {
    No,
    Maybe,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), acted: Acted::No, source: None }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "this client was closed: connect a new one")
    }

    /// A thread of ours cannot be started.
    pub(crate) fn no_thread(which: &str, error: io::Error) -> Self {
        let why = match descriptors::advice(&error) {
            Some(advice) => format!(" ({error}): {advice}"),
            None => ": are threads or memory used up?".to_owned(),
        };
        Self::new(ErrorKind::Store, format!("{which} cannot be started{why}")).because(error)
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn may_act(mut self) -> Self {
        self.0.acted = Acted::Maybe;
        self
    }

    pub(crate) fn was_not_sent(mut self) -> Self {
        self.0.acted = Acted::No;
        self
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the store may have carried the request out although it failed here. Of a lock: the session goes on until
    /// what it may have taken is given back, and nothing is left to do for the caller. Of a revocation, or of a write under
    /// a fence: it may still be on its way.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        self.0.acted == Acted::Maybe
    }

    /// Whether the same call may succeed later, without a change to the program or the store's configuration.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Full, InUse, Quorum, Store, Unreachable};
        matches!(self.0.kind, Unreachable | Full | Quorum | InUse | Store)
    }

    /// The same error, for another of the callers that it concerns.
    pub(crate) fn share(&self) -> Self {
        let Inner { kind, message, acted, source } = &*self.0;
        let source = source.as_ref().map(|source| source.to_string().into());
        Self(Box::new(Inner { kind: *kind, message: message.clone(), acted: *acted, source }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, message, source, .. } = &*self.0;
        let mut debug = f.debug_struct("Error");
        debug.field("kind", kind).field("message", message).field("may_have_acted", &self.may_have_acted());
        // Not what the message has told already: this is what `fn main() -> Result` prints.
        if let Some(source) = source.as_ref().map(ToString::to_string).filter(|told| !message.contains(told)) {
            debug.field("source", &source);
        }
        debug.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<BadName> for Error {
    fn from(bad: BadName) -> Self {
        Self::invalid(bad.to_string())
    }
}

/// Why a lease is not, or no longer, ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// It ended: not renewed in time, a fixed lease that ran out, or `max_hold` reached.
    Expired,
    /// Somebody revoked it.
    Revoked,
    /// The store no longer knows of it: it restarted empty, was flushed, or failed over to a node that missed the grant.
    Forgotten,
    /// Somebody else holds it already.
    Superseded,
    /// The client was closed.
    Closed,
    /// It was not lost: its guard gave it back.
    Released,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease has ended: stop the work, its effects are no longer exclusive",
            Self::Revoked => "the lease was revoked: stop the work",
            Self::Forgotten => "the store has forgotten the lease (restart, flush or failover): stop the work",
            Self::Superseded => "the lease has passed to another holder: stop the work",
            Self::Closed => "the client was closed, and its leases with it: stop the work",
            Self::Released => "the lease was given back by its guard",
        })
    }
}

impl StdError for Lost {}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::new(ErrorKind::Lost, lost.to_string()).because(lost)
    }
}
