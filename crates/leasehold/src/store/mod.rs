//! What a session needs of a store. A store decides nothing: it runs [`step`](leasehold_spec::step), or a script that
//! says the same.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::limits::LEASE_DEFAULT_MS;
use leasehold_spec::{Answer, Contention, Delivery, GrantId, Name, Op, Renew, SessionId, Token};

use crate::error::Error;
use crate::inspection::NodeView;
use crate::world::{Pending, World};

#[cfg(all(feature = "file", target_os = "linux"))]
pub(crate) mod file;
mod memory;
pub(crate) mod quorum;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod scheme;

pub(crate) use scheme::Scheme;

/// Opens links.
pub trait Store: Send + Sync + 'static {
    /// Opens a link. What drives it runs on the runtime of whoever polls this future. Bounded by the caller.
    ///
    /// The errors: `Unreachable` and `Quorum` may be tried again; every other kind is the answer.
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>>;

    /// Why the store does not answer just now, where it knows more of that than that it does not.
    fn silence(&self) -> Option<Error>;

    /// A descriptor that keeps what the session holds from being given back early: as long as any process has it, the
    /// session counts as alive. `None` where a store cannot tell the dead from the silent.
    fn life(&self) -> Option<OwnedFd>;

    /// Whether a lease may be so long, beyond what no store allows. The store refuses one that is asked for; one that is
    /// lengthened by a re-entry is checked before.
    fn check_lease(&self, _lease_ms: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Returns the longest lease of the store, if it has a limit of its own. The default lease is no longer than that.
    fn longest_lease_ms(&self) -> Option<u64> {
        None
    }

    /// Whether a grant of which the store says that it has ended can last in a part of it that was not told. It is given
    /// back all the same then.
    fn has_parts(&self) -> bool {
        false
    }

    /// Whether the tokens that a grant has reserved and not used stay taken behind its release. Whoever is alone reserves
    /// few there: the next one's token is above all of them.
    fn burns_ranges(&self) -> bool {
        false
    }
}

/// One ordered path to a store. Requests about one grant are carried out in the order in which their futures were first
/// polled, so that a leave never overtakes the acquire that it ends. So are acquires of one name, and no acquire overtakes
/// a release or a leave. A store may carry out everything else earlier: a client that asks for thousands of locks still
/// renews, gives back and looks.
pub trait Link: Send + Sync + 'static {
    /// One request about one name. `guess` says what was last heard of the name's queue: it chooses the faster way and
    /// never the outcome.
    ///
    /// An answer `Released` may have a `now_us` of 0: the store did not look at its clock. Every other has the time.
    fn apply(&self, name: &Name, op: &Op, guess: Contention) -> Pending<Result<Answer, Fault>>;

    /// [`Op::Inspect`], and what each node says by itself, where a store has nodes. Others have nothing to add.
    fn inspect(&self, name: &Name, guess: Contention) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        let looking = self.apply(name, &Op::Inspect, guess);
        Box::pin(async move { Ok((looking.await?, Vec::new())) })
    }

    /// Renewals of many names, an answer for each, in order. One name's fault is its own.
    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>>;

    /// A page of the names that have a record, in no order: 0 begins, and says behind the last page that it was the last.
    /// A name can be told twice, and one that comes or goes meanwhile may be missed.
    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>>;

    /// Attaches the inbox of a session and proves it: a probe was seen to arrive.
    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>>;

    /// Which store this is: changes with every restart and failover. Times of two runs are never compared.
    fn run(&self) -> &str;

    /// One exchange with the store, for its clock and for a sign of life.
    fn ping(&self) -> Pending<Result<u64, Fault>>;

    /// Ends when what was asked, and is waited for by nobody, is sent and heard, or after a bound of the store's own. What
    /// closes waits for it.
    fn idle(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    /// Checks whether the runtime of the link drives it. If requests are under way, this wakes the driver and returns
    /// [`Progress::Waiting`]. If the driver was not polled until the next check, that returns [`Progress::Stalled`].
    /// Returns [`Progress::Moving`] for a link that no runtime drives.
    fn check_driven(&self) -> Progress {
        Progress::Moving
    }

    /// Whether requests were handed to the link and are not sent yet.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Whether the link is known to be gone.
    fn is_closed(&self) -> bool;

    /// Gives the link up: what is in flight on it fails, and the store sees it closed.
    fn close(&self);
}

/// Whether the runtime that a link was opened on drives it, as two looks show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Progress {
    /// No request is under way, or the link was driven since the last look.
    Moving,
    /// Requests wait to be sent or answered, and the link was woken. The next look tells more.
    Waiting,
    /// The last look woke the link, and it was not driven since then.
    Stalled,
}

/// Where messages go. Called in the order of their arrival; must not block.
pub type Inbox = Arc<dyn Fn(Message) + Send + Sync>;

/// What arrives in an inbox.
#[derive(Clone, Debug)]
pub enum Message {
    /// A grant was made, or marked, or others wait for it.
    Delivery(Name, Delivery),
    /// Who holds this name has died: whoever waits for it may look.
    Look(Name),
    /// The lease on this name ends earlier than an answer said. A waiter has to re-check then.
    Ending {
        /// The name.
        name: Name,
        /// On our clock.
        at_us: u64,
    },
    /// The store keeps this grant until then at most: less than it had said.
    Shortened {
        /// The grant.
        id: GrantId,
        /// Its token.
        token: Token,
        /// On our clock.
        until_us: u64,
        /// Since when that is known, on our clock: what was asked later is answered accordingly.
        since_us: u64,
    },
    /// What is held may be so no longer, or a message could not be read, and may have been a grant: look at everything.
    LookAtAll,
    /// The inbox is detached: the link is gone.
    Detached,
}

/// Why a request has no answer.
#[derive(Debug)]
pub enum Fault {
    /// The link broke, or the store is not (or no longer) the one to ask: a replica, loading, failing over. Whether the
    /// request was carried out is not known.
    Gone(Error),
    /// There is an answer to this very request, and what it says of the record makes no sense: that is damaged. Whether the
    /// request was carried out is not known. The link is sound, as far as the answer shows.
    Damaged(Error),
    /// The store refused, and did nothing.
    Refused(Error),
    /// The store's memory is full, and it did nothing.
    NoMemory(Error),
    /// Too few nodes of a quorum answered. Whether the request was carried out, or is yet to be, is not known; the link is
    /// as sound as it was.
    Undecided(Error),
}

impl Fault {
    /// What is wrong, apart from what that means for the request.
    pub(crate) fn error(self) -> Error {
        let (Self::Gone(error)
        | Self::Damaged(error)
        | Self::Refused(error)
        | Self::NoMemory(error)
        | Self::Undecided(error)) = self;
        error
    }

    /// The same fault, for another of the requests that it concerns.
    #[cfg(any(feature = "file", feature = "redis"))]
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

/// The lease of whoever names none: 30 s, or the longest lease of the store where that is shorter.
pub(crate) fn default_lease(store: &dyn Store) -> Duration {
    Duration::from_millis(
        store.longest_lease_ms().map_or(LEASE_DEFAULT_MS, |longest_ms| longest_ms.min(LEASE_DEFAULT_MS)),
    )
}

/// Chooses the store that a URL names. No I/O.
pub fn choose(url: &str, prefix: Option<&str>, world: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    match Scheme::of(url)? {
        (Scheme::Memory, _) if prefix.is_some() => {
            Err(Error::invalid("memory: takes no prefix: give the store a name instead, for example memory:app"))
        }
        (Scheme::Memory, "") => Ok(Arc::new(memory::Memory::private(world))),
        (Scheme::Memory, name) => Ok(Arc::new(memory::Memory::shared(name, world))),
        (Scheme::File, _) if prefix.is_some() => {
            Err(Error::invalid("file: takes no prefix: use another directory, for example file:/var/lib/app/tenant"))
        }
        (Scheme::File, rest) => open_file(rest, world),
        (Scheme::Quorum, rest) => gather(rest, prefix, world),
        (Scheme::Redis | Scheme::RedisTls, _) => connect_redis(url, prefix, world),
    }
}

#[cfg(feature = "redis")]
fn connect_redis(url: &str, prefix: Option<&str>, world: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    let store = redis::RedisStore::new(url, Arc::clone(world))?;
    Ok(match prefix {
        Some(prefix) => Arc::new(store.below(prefix)?),
        None => Arc::new(store),
    })
}

#[cfg(feature = "redis")]
fn gather(rest: &str, prefix: Option<&str>, world: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(quorum_of(rest, prefix, world)?))
}

/// The quorum that a URL names behind its scheme.
#[cfg(feature = "redis")]
pub(crate) fn quorum_of(
    rest: &str,
    prefix: Option<&str>,
    world: &Arc<dyn World>,
) -> Result<quorum::QuorumStore, Error> {
    let url = quorum::url::QuorumUrl::parse(rest)?;
    let url = match prefix {
        Some(prefix) => url.below(prefix)?,
        None => url,
    };
    let node = |target| Arc::new(redis::RedisNode::new(target, Arc::clone(world))) as Arc<dyn quorum::node::Node>;
    let nodes = url.nodes.into_iter().map(node).collect();
    Ok(quorum::QuorumStore::new(nodes, url.charter.max_lease_ms, Arc::clone(world)))
}

#[cfg(not(feature = "redis"))]
fn connect_redis(_: &str, _: Option<&str>, _: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    Err(no_redis())
}

#[cfg(not(feature = "redis"))]
fn gather(_: &str, _: Option<&str>, _: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    Err(no_redis())
}

#[cfg(not(feature = "redis"))]
fn no_redis() -> Error {
    let message =
        "this program was built without the feature `redis` of Leasehold: enable it in Cargo.toml, or use memory:";
    Error::new(crate::ErrorKind::Unsupported, message)
}

#[cfg(all(feature = "file", target_os = "linux"))]
fn open_file(rest: &str, world: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(file::FileStore::new(rest, world)?))
}

#[cfg(not(all(feature = "file", target_os = "linux")))]
fn open_file(_: &str, _: &Arc<dyn World>) -> Result<Arc<dyn Store>, Error> {
    let message = match cfg!(target_os = "linux") {
        true => {
            "this program was built without the feature `file` of Leasehold: enable it in Cargo.toml, or use redis:"
        }
        false => "file: needs Linux: use redis:, or memory: within one process",
    };
    Err(Error::new(crate::ErrorKind::Unsupported, message))
}
