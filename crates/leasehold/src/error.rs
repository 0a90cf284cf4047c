//! The errors of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use leasehold_spec::BadName;

use crate::descriptors;

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason for which a call failed. `Display` says what failed, on which lock, why, and what to do about it: `cannot
/// lock "stock:42": the store does not reply: …`. [`Error::kind`], [`Error::operation`] and [`Error::name`] are for
/// programs.
///
/// It is not an error if somebody else holds the lock: `try_lock` then returns `None`.
pub struct Error(Box<Inner>);

/// Boxed, because every call returns a `Result`, and almost none of them an error.
struct Inner {
    kind: ErrorKind,
    message: String,
    acted: Acted,
    operation: Option<Operation>,
    name: Option<Box<str>>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The operations that fail with an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Connecting to a store, or to the Redis of a fence.
    Connect,
    /// Acquiring a lock: `lock`, `try_lock`, `try_lock_for`, `lock_or_cancel`, and the beginning of `run`.
    Lock,
    /// Acquiring permits of a semaphore.
    Acquire,
    /// Making a read guard a write guard: `UpgradeableReadGuard::upgrade`.
    Upgrade,
    /// Changing the number of permits: `Semaphore::resize`.
    Resize,
    /// Waiting for a notification, a latch or a barrier: `Condvar::wait`, `Latch::wait`, `Barrier::wait` and their like.
    Wait,
    /// Notifying waiters: `Condvar::notify_one` and `Condvar::notify_all`.
    Notify,
    /// Creating a latch or reading its state: `Latch::create` and `Latch::remaining`.
    Create,
    /// Counting a latch down: `Latch::count_down` and its like.
    CountDown,
    /// Deleting a latch: `Latch::delete`.
    Delete,
    /// Changing the value of a leader: `Leadership::put`.
    Put,
    /// Handing the leadership to a named candidate: `Leadership::hand_to`.
    HandTo,
    /// Releasing a lock: `Guard::release`.
    Release,
    /// Reading the state of a lock: `Mutex::inspect`.
    Inspect,
    /// Revoking a lease: `Mutex::revoke`.
    Revoke,
    /// Listing the names of a store: `Leasehold::names`.
    Names,
    /// Initializing a quorum: `quorum::begin` and `quorum::force_begin`.
    Begin,
    /// Accessing a key through a fence.
    Fence,
}

impl Operation {
    /// Returns the beginning of the message, or `None` if the message itself says what failed.
    fn failed(self) -> Option<&'static str> {
        match self {
            Self::Connect | Self::Begin => None,
            Self::Lock => Some("cannot lock"),
            Self::Acquire => Some("cannot acquire permits of"),
            Self::Upgrade => Some("cannot upgrade"),
            Self::Resize => Some("cannot resize"),
            Self::Wait => Some("cannot wait for"),
            Self::Notify => Some("cannot notify"),
            Self::Create => Some("cannot create or read"),
            Self::CountDown => Some("cannot count down"),
            Self::Delete => Some("cannot delete"),
            Self::Put => Some("cannot change the value of"),
            Self::HandTo => Some("cannot hand over"),
            Self::Release => Some("cannot release"),
            Self::Inspect => Some("cannot inspect"),
            Self::Revoke => Some("cannot revoke"),
            Self::Names => Some("cannot list the names"),
            Self::Fence => Some("cannot access"),
        }
    }
}

/// The kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name, duration, label or URL is invalid. Nothing was sent.
    Invalid,
    /// The store cannot be reached, or does not reply.
    Unreachable,
    /// The store denied access: the password is wrong, or the user lacks a permission.
    Denied,
    /// The store does not support this operation, or the client cannot be used from this process (for example after
    /// `fork`).
    Unsupported,
    /// Another program, or a newer version of Leasehold, wrote the data under this name. It is left unchanged.
    Foreign,
    /// The queue of this name is full: 10,000 waiters. Nothing was changed; try again later.
    Full,
    /// The name is of another kind, or has another number of permits. The message names both. Nothing was changed.
    Mismatch,
    /// There is no latch of this name: it was not created, was deleted, or was not used for too long. Nothing was changed.
    Absent,
    /// The round of a barrier was broken: one of its parties is gone or has stopped waiting. Each party that waits gets
    /// this error, and may arrive again.
    Broken,
    /// Too few nodes of a quorum vote. The message names each node that does not vote, and the reason.
    Quorum,
    /// A quorum was not initialized: a node has a holder or a waiter, or was emptied in the meantime. The message names
    /// it.
    InUse,
    /// The lease was lost.
    Lost,
    /// The client was closed.
    Closed,
    /// The store returned an error of its own, or the system refused a thread or a file descriptor.
    Store,
}

/// Whether the store may have executed the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Acted {
    No,
    Maybe,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let (message, acted) = (message.into(), Acted::No);
        Self(Box::new(Inner { kind, message, acted, operation: None, name: None, source: None }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "this client was closed: connect a new one")
    }

    /// Returns the error of a caller that names a latch which does not exist.
    pub(crate) fn absent() -> Self {
        let message = "there is no such latch: it was not created, was deleted, or was not used for too long";
        Self::new(ErrorKind::Absent, message)
    }

    /// Returns the error of a party whose round is over, and was not let through as far as the store knows.
    pub(crate) fn broken() -> Self {
        let message = "the round was broken: a party of it died, was out of reach, or stopped waiting. Arrive again";
        Self::new(ErrorKind::Broken, message)
    }

    /// Returns the error for a thread that cannot be started.
    pub(crate) fn no_thread(which: &str, error: io::Error) -> Self {
        let why = match descriptors::advice(&error) {
            Some(advice) => format!(" ({error}): {advice}"),
            None => ": has the process reached its limit of threads or memory?".to_owned(),
        };
        Self::new(ErrorKind::Store, format!("cannot start {which}{why}")).because(error)
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Adds which call failed, and on which lock or key. The public methods do this, once.
    pub(crate) fn of(mut self, operation: Operation, name: Option<&str>) -> Self {
        self.0.operation = Some(operation);
        self.0.name = name.map(Into::into);
        self
    }

    /// Adds the name of the lock to an error whose message contains it.
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.0.name = Some(name.into());
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

    /// Returns the kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the operation that failed. It is `None` if this error was converted from a [`Lost`](crate::Lost), or from
    /// a stale token.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        self.0.operation
    }

    /// Returns the name of the lock, or the key of the fence. It is `None` if the operation is about no single lock, or
    /// if the name is invalid.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns the message of `Display` without its first part, which says the operation and the name. Use it beside
    /// [`Error::operation`] and [`Error::name`] in a structured log.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.0.message
    }

    /// Returns whether the store may have carried out the request although the call failed.
    ///
    /// After a failed acquire or release the caller has nothing to do: the client repeats requests until nothing is
    /// left in the store. A failed revocation, or a failed write through a fence, may still take effect.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        self.0.acted == Acted::Maybe
    }

    /// Returns whether the same call may succeed later without a change to the program or to the configuration of the
    /// store.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Full, InUse, Quorum, Store, Unreachable};
        matches!(self.0.kind, Unreachable | Full | Quorum | InUse | Store)
    }

    /// Returns the same error for another caller that it concerns.
    pub(crate) fn share(&self) -> Self {
        let Inner { kind, message, acted, operation, name, source } = &*self.0;
        let source = source.as_ref().map(|source| source.to_string().into());
        let (message, name) = (message.clone(), name.clone());
        Self(Box::new(Inner { kind: *kind, message, acted: *acted, operation: *operation, name, source }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { message, operation, name, .. } = &*self.0;
        match (operation.and_then(Operation::failed), name) {
            (Some(failed), Some(name)) => write!(f, "{failed} {name:?}: {message}"),
            (Some(failed), None) => write!(f, "{failed}: {message}"),
            (None, _) => f.write_str(message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, message, operation, name, source, .. } = &*self.0;
        let mut debug = f.debug_struct("Error");
        debug.field("kind", kind);
        if let Some(operation) = operation {
            debug.field("operation", operation);
        }
        if let Some(name) = name {
            debug.field("name", name);
        }
        debug.field("message", message).field("may_have_acted", &self.may_have_acted());
        // `fn main() -> Result` prints this: a source that the message already contains is left out.
        if let Some(source) = source.as_ref().map(ToString::to_string).filter(|source| !message.contains(source)) {
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
