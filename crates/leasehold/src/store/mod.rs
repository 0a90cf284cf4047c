//! The contract between a session and a store: [`Store`] and [`Link`].
//!
//! A store decides nothing: it runs [`step`](leasehold_spec::step), or a script that does the same.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use humantime::format_duration;
use leasehold_spec::limits::LEASE_DEFAULT_MS;
use leasehold_spec::{Acquire, Answer, Contention, Delivery, GrantId, Kind, Name, Op, Renew, SessionId, Take, Token};

use crate::error::{Error, ErrorKind};
use crate::inspection::NodeView;
use crate::world::Pending;

pub(crate) mod choose;
#[cfg(all(feature = "file", target_os = "linux"))]
pub(crate) mod file;
mod memory;
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod scheme;
#[cfg(feature = "redis")]
pub(crate) mod secrets;

/// A store of locks. It opens links.
///
/// The trait has no default bodies: each store answers every question about itself.
pub trait Store: Send + Sync + 'static {
    /// Opens a link. The runtime that polls this future drives the link. The caller bounds the time.
    ///
    /// # Errors
    ///
    /// After `Unreachable` and `Quorum` the caller may try again. Every other kind of error is final.
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>>;

    /// Returns what never changes about this store.
    fn profile(&self) -> StoreProfile;

    /// Returns why the store does not reply at the moment. `None` if the store knows no reason.
    fn silence(&self) -> Option<Error>;

    /// Returns a descriptor that keeps the leases of the session from being given back early: the session counts as alive
    /// as long as any process has the descriptor open. `None` if the store cannot detect the death of a process.
    fn life(&self) -> Option<OwnedFd>;
}

/// The static properties of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreProfile {
    /// The kinds of names that the store has.
    pub kinds: &'static [Kind],
    /// The longest lease in milliseconds, if the store has a limit of its own: the `max_lease` of a quorum. The default
    /// lease is no longer than that.
    pub longest_lease_ms: Option<u64>,
    /// Whether it takes several mutexes by one request: [`Link::acquire_all`].
    pub takes_together: bool,
    /// Whether a holder can name the waiter that holds next: [`Op::HandTo`].
    pub names_successors: bool,
    /// Whether a part of the store may still keep a grant after the store has reported the end of the grant. The session
    /// gives such a grant back anyway.
    pub partial_grants: bool,
    /// Whether the tokens that a grant reserved and did not use stay taken after its release. The next token is above all
    /// of them, so a session reserves few tokens while there is no contention.
    pub burns_unused_tokens: bool,
    /// Whether the inbox of a session can move from one link to another: [`Link::detach`], [`Link::check_read`].
    pub moves_inbox: bool,
}

impl Default for StoreProfile {
    /// Returns the profile of a store of mutexes, without a limit of its own.
    fn default() -> Self {
        let kinds = &[Kind::Mutex];
        Self {
            kinds,
            longest_lease_ms: None,
            takes_together: false,
            names_successors: false,
            partial_grants: false,
            burns_unused_tokens: false,
            moves_inbox: false,
        }
    }
}

impl StoreProfile {
    /// Checks that the store has names of this kind.
    pub(crate) fn check_take(&self, take: &Take) -> Result<(), Error> {
        if self.kinds.contains(&take.kind) {
            return Ok(());
        }
        Err(not_a_kind(take.kind))
    }

    /// Checks a lease against the limit of the store.
    ///
    /// The store also refuses a request with a lease that is too long. A session calls this before a re-entry lengthens a
    /// lease.
    pub(crate) fn check_lease(&self, lease_ms: u64) -> Result<(), Error> {
        let Some(longest_ms) = self.longest_lease_ms.filter(|longest_ms| lease_ms > *longest_ms) else { return Ok(()) };
        let [lease, longest] = [lease_ms, longest_ms].map(|ms| format_duration(Duration::from_millis(ms)));
        let message = format!(
            "a lease of {lease} is longer than the max_lease of this quorum, {longest}: use a shorter one, or set \
             max_lease in the URL of all clients"
        );
        Err(Error::invalid(message))
    }

    /// Returns the lease of callers that set none: 30 s, or the longest lease of the store if that is shorter.
    pub(crate) fn default_lease(&self) -> Duration {
        let longest_ms = self.longest_lease_ms.unwrap_or(LEASE_DEFAULT_MS);
        Duration::from_millis(longest_ms.min(LEASE_DEFAULT_MS))
    }
}

/// Returns the error of a store that has no names of this kind. The session finds it before it sends anything.
pub(crate) fn not_a_kind(kind: Kind) -> Error {
    let message = format!(
        "this store has no {}: a quorum has only mutexes and elections, and other stores have all",
        kind.word()
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns the error of a store that lacks an operation.
pub(crate) fn lacks(op: &Op) -> Error {
    let no_op = || format!("this store has no operation {:?}, which a quorum lacks and other stores have", op.word());
    op.kind().map_or_else(|| Error::new(ErrorKind::Unsupported, no_op()), not_a_kind)
}

/// The record of a name, as far as the session knows it. A link may choose the encoding of its request by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guess {
    /// The kind of the name.
    pub kind: Kind,
    /// The latest known contention of the name.
    pub contention: Contention,
}

impl From<Contention> for Guess {
    /// Returns the guess for a mutex.
    fn from(contention: Contention) -> Self {
        Self { kind: Kind::Mutex, contention }
    }
}

/// One ordered path to a store.
///
/// The store carries out requests about one grant in the order in which their futures were first polled, so that a leave
/// never overtakes the acquire that it ends. The same holds for all acquires of one name, and no acquire overtakes a
/// release or a leave. The store may carry out other requests earlier, so that a client that asks for thousands of locks
/// still renews, releases and re-checks in time. A server that refuses a script, because it has forgotten it or for another
/// reason, carries its requests out later, in the order in which their callers send them again.
///
/// The trait has no default bodies: each link answers every question about itself.
pub trait Link: Send + Sync + 'static {
    /// Sends one request about one name, and returns the answer. `guess` selects the faster script and never the outcome.
    ///
    /// The answer `Released` may have a `now_us` of 0: then the store did not read its clock. Every other answer has the
    /// time.
    fn apply(&self, name: &Name, op: &Op, guess: Guess) -> Pending<Result<Answer, Fault>>;

    /// Sends [`Op::Inspect`], and returns the answer and the view of each node. A store without nodes returns no views
    /// ([`inspect_whole`]).
    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>>;

    /// Renews many grants of names of one kind, and returns one answer for each, in order. A fault of one name does not
    /// affect the others.
    fn renew(&self, batch: &[(Name, Renew)], kind: Kind) -> Pending<Vec<Result<Answer, Fault>>>;

    /// Acquires several mutexes of distinct names, and returns an answer for each. Returns `None` if it has acquired none,
    /// which is no statement about any of them (P46). The request is sent once.
    ///
    /// A link of a store without [`StoreProfile::takes_together`] returns `None`.
    fn acquire_all(&self, members: &[(Name, Acquire)]) -> Pending<Result<Option<Vec<Answer>>, Fault>>;

    /// Returns a page of the names that have a record, in no order, and the number of the next page. Page 0 is the first,
    /// and the number 0 comes with the last. A name may appear twice. A name that comes or goes meanwhile may be missing.
    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>>;

    /// Attaches the inbox of a session, and proves it: the future ends when a probe has arrived.
    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>>;

    /// Detaches the inbox of a session. Until the store has done so, the link passes messages on. An inbox may be attached
    /// to two links at a time, and gets each message from both.
    ///
    /// A link of a store without [`StoreProfile::moves_inbox`] returns [`Fault::Refused`].
    fn detach(&self, session: SessionId) -> Pending<Result<(), Fault>>;

    /// Like [`Link::check_driven`], but also if no request is in flight: whether messages are read.
    fn check_read(&self) -> Progress;

    /// Returns the run ID of the store, which changes with every restart and failover. The session never compares times of
    /// two runs.
    fn run_id(&self) -> &str;

    /// Exchanges one message with the store, as a sign of life, and returns the store's clock.
    fn ping(&self) -> Pending<Result<u64, Fault>>;

    /// Waits until the requests that no caller waits for are sent and answered, at most for a bound of the store's own. A
    /// client that closes waits for it. Ends at once for a store without such requests.
    fn idle(&self) -> Pending<()>;

    /// Checks whether the runtime of the link drives it. If requests are in flight, this wakes the driver and returns
    /// [`Progress::Waiting`]. If the driver was not polled until the next check, that check returns [`Progress::Stalled`].
    /// Returns [`Progress::Moving`] for a link that no runtime drives.
    fn check_driven(&self) -> Progress;

    /// Returns whether the link has requests that are not sent yet.
    fn has_unsent(&self) -> bool;

    /// Returns whether the link is known to be gone.
    fn is_closed(&self) -> bool;

    /// Closes the link: its requests in flight fail, and the store sees the connection closed.
    fn close(&self);
}

/// Inspects a name in a store that has no nodes.
pub fn inspect_whole(link: &dyn Link, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
    let asked = link.apply(name, &Op::Inspect, guess);
    Box::pin(async move { Ok((asked.await?, Vec::new())) })
}

/// Returns the reply to [`Link::detach`] of a store without [`StoreProfile::moves_inbox`].
pub(crate) fn refuse_detach() -> Pending<Result<(), Fault>> {
    let message = "this store cannot detach the inbox of a session from a link";
    Box::pin(std::future::ready(Err(Fault::Refused(Error::new(ErrorKind::Unsupported, message)))))
}

/// Whether a link is driven by the runtime on which it was opened. Two checks are needed to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// No request is in flight, or the link was driven since the last check.
    Moving,
    /// Requests wait to be sent or answered. The check has woken the driver, and the next check decides.
    Waiting,
    /// The last check woke the driver, and the driver was not polled since then.
    Stalled,
}

/// Receives the messages of a link, in the order of their arrival. Must not block.
pub type Inbox = Arc<dyn Fn(Message) + Send + Sync>;

/// A message that arrives in an inbox.
#[derive(Clone, Debug)]
pub enum Message {
    /// The store made a grant or revoked it, or others wait for it.
    Delivery(Name, Delivery),
    /// The holder of this name has died: waiters re-check the name.
    Recheck(Name),
    /// The lease on this name ends earlier than an answer said. A waiter has to re-check then.
    Ending {
        /// The name.
        name: Name,
        /// The end, on our clock.
        at_us: u64,
    },
    /// The store keeps this grant for less time than it had said.
    Shortened {
        /// The grant.
        id: GrantId,
        /// Its token.
        token: Token,
        /// The latest end, on our clock.
        until_us: u64,
        /// When this became known, on our clock. The answers to later requests take it into account.
        since_us: u64,
    },
    /// Some grants may have ended, or a message was unreadable and may have been a grant: re-check all names.
    RecheckAll,
    /// The link is gone, and no more messages arrive.
    Detached,
}

/// The reason why a request has no answer.
#[derive(Debug)]
pub enum Fault {
    /// The link broke, or the server cannot serve at the moment: it is a replica, is loading, or fails over. It is unknown
    /// whether the request was carried out.
    Gone(Error),
    /// The store answered this request, but the record is damaged. It is unknown whether the request was carried out. The
    /// link itself works.
    Damaged(Error),
    /// The store refused the request, and did nothing.
    Refused(Error),
    /// The memory of the store is full, and it did nothing.
    NoMemory(Error),
    /// Too few nodes of a quorum answered. It is unknown whether the request was carried out, or will be. The link itself
    /// works.
    Undecided(Error),
}

impl Fault {
    /// Returns the error, without its meaning for the request.
    pub(crate) fn error(self) -> Error {
        let (Self::Gone(error)
        | Self::Damaged(error)
        | Self::Refused(error)
        | Self::NoMemory(error)
        | Self::Undecided(error)) = self;
        error
    }

    /// Copies the fault, for another request that it concerns.
    pub(crate) fn share(&self) -> Self {
        match self {
            Self::Gone(error) => Self::Gone(error.share()),
            Self::Damaged(error) => Self::Damaged(error.share()),
            Self::Refused(error) => Self::Refused(error.share()),
            Self::NoMemory(error) => Self::NoMemory(error.share()),
            Self::Undecided(error) => Self::Undecided(error.share()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_refuses_a_kind_that_it_does_not_have() {
        assert!(StoreProfile::default().check_take(&Take::MUTEX).is_ok());
        let refused = StoreProfile { kinds: &[], ..StoreProfile::default() }.check_take(&Take::MUTEX).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    }
}
