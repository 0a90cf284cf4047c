//! The client of a store, and its builder.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::limits::LABEL_MAX;

use crate::barrier::Barrier;
use crate::condvar::Condvar;
use crate::election::Election;
use crate::error::{Error, Operation, Result};
use crate::inspection::{Holder, Waiter};
use crate::latch::Latch;
use crate::mutex::Mutex;
use crate::real::Real;
use crate::reentry::Handle;
use crate::rwlock::RwLock;
use crate::semaphore::Semaphore;
use crate::session::{HandOver, Lanes, Session, Start};
use crate::settings::check_lease;
use crate::store::Store;
use crate::store::choose::choose;
use crate::world::World;

/// A client of one store. It has one session, one inbox for messages, and one thread. Clones share all of these.
///
/// A client connects once and reconnects by itself. When the last handle is dropped (clones, mutexes and guards count
/// as handles), the client releases everything in the background. [`Leasehold::close`] does the same and waits for it.
///
/// # Forks
///
/// A client cannot be used after `fork`. In the child process every call fails with `Unsupported`, and closing or
/// dropping the client does nothing. The leases belong to the parent process. Do not trust a guard in the child
/// process.
#[derive(Clone)]
pub struct Leasehold {
    handle: Arc<Handle>,
}

impl Leasehold {
    /// Connects to a store. A bad URL, an unreachable server and a wrong password are reported at once.
    ///
    /// | URL | Store |
    /// |---|---|
    /// | `memory:` | private to this client |
    /// | `memory:NAME` | shared by the clients of this process that use the same name |
    /// | `file:/PATH` | shared by the programs of this host that use the same directory (feature `file`, Linux) |
    /// | `redis://[USER:PASSWORD@]HOST[:PORT][/DB][?PARAMETERS]` | one Redis primary, version 7.0 or newer |
    /// | `rediss://…` | the same over TLS (feature `tls`) |
    /// | `quorum:?node=URL&node=URL&node=URL` | a majority of 3 to 9 independent Redis servers |
    ///
    /// The default port is 6379, also for `rediss://`. Parameters are joined by `&`. Each may be given once, and
    /// unknown ones are refused:
    ///
    /// | Parameter | Meaning |
    /// |---|---|
    /// | `prefix=P` | a prefix for all keys: see [`Builder::prefix`] |
    /// | `password_file=/PATH` | read the password from this file, which has one line |
    /// | `password_env=NAME` | read the password from this environment variable |
    /// | `ca=/PATH` | `rediss:` only: trust the certificates in this file and no others; default: the authorities of the system |
    /// | `cert=/PATH&key=/PATH` | `rediss:` only: the client certificate, for servers that ask for one |
    ///
    /// The parameters of a quorum are `node`, `max_lease` and `prefix`. Each `node` is one of the Redis URLs above,
    /// with `%26` for each `&` in it (or percent-encoded as a whole). `max_lease` is the longest lease, from 1 s to
    /// 24 h (units `ms`, `s`, `m`, `h`); the default is 60 s. The default lease is never longer than `max_lease`. `prefix`
    /// applies to all nodes. All programs must use the same nodes and the same `max_lease`. A new quorum grants nothing
    /// for `max_lease`, and for at least 22 s, unless it is initialized with `leasehold::quorum::begin`.
    ///
    /// Give the password once: in the URL (percent-encoded where necessary) or by one of the parameters, with or
    /// without a user name in the URL. No error message and no `Debug` output contains the password.
    ///
    /// Paths are absolute. Certificates and keys are in PEM format. The client reads files and environment variables
    /// again for each connection, also when it reconnects. To rotate a password or a certificate, replace the file; no
    /// program has to restart. While the new content does not match the server, `lock` waits, and other calls fail with
    /// the reason.
    ///
    /// The certificate of a server must be signed by a trusted authority, be valid today, and contain the host of the
    /// URL (a DNS name or an IP address). This check cannot be turned off.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connections that were opened.
    ///
    /// # Errors
    ///
    /// - `Invalid`: the URL is wrong, or a file or variable that it names is missing or unusable.
    /// - `Unreachable`: nothing listens at the address (reported at once), or the server does not reply within 5 s.
    /// - `Denied`: the server refused the user or the password, or one side does not trust the certificate of the
    ///   other.
    /// - `Unsupported`: the feature for this URL is not enabled, or the server is older than 7.0.
    /// - `Quorum`: most nodes of the quorum cannot be reached.
    /// - `Store`: the system cannot start a thread, or the process has too many open files.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Returns a builder for a client with more settings than a URL can express.
    pub fn builder(url: &str) -> Builder {
        Builder {
            url: url.to_owned(),
            prefix: None,
            lease: None,
            holder: None,
            lanes: Lanes::Two,
            hand_over: HandOver::Local,
            start: Start::Connected,
        }
    }

    /// Returns the lock with this name: 1 to 255 bytes of UTF-8 without control characters, used as they are.
    ///
    /// This does no I/O and never fails. The first call on the mutex reports an invalid name.
    #[must_use]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(Arc::clone(&self.handle), name.as_ref())
    }

    /// Returns the read-write lock with this name. This does no I/O and never fails: see [`Leasehold::mutex`].
    #[must_use]
    pub fn rw_lock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(Arc::clone(&self.handle), name.as_ref())
    }

    /// Returns the semaphore with this name, which has `permits` permits (1 to 999,999). This does no I/O and never fails:
    /// see [`Leasehold::mutex`].
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(Arc::clone(&self.handle), name.as_ref(), permits)
    }

    /// Returns the condition variable with this name. This does no I/O and never fails: see [`Leasehold::mutex`]. A lock
    /// cannot have the same name.
    #[must_use]
    pub fn condvar(&self, name: impl AsRef<str>) -> Condvar {
        Condvar::new(Arc::clone(&self.handle), name.as_ref())
    }

    /// Returns the barrier with this name, for this many parties (1 to 256). This does no I/O and never fails: see
    /// [`Leasehold::mutex`].
    #[must_use]
    pub fn barrier(&self, name: impl AsRef<str>, parties: u32) -> Barrier {
        Barrier::new(Arc::clone(&self.handle), name.as_ref(), parties)
    }

    /// Returns the latch with this name. This does no I/O and never fails: see [`Leasehold::mutex`].
    #[must_use]
    pub fn latch(&self, name: impl AsRef<str>) -> Latch {
        Latch::new(Arc::clone(&self.handle), name.as_ref())
    }

    /// Returns the election with this name. This does no I/O and never fails: see [`Leasehold::mutex`].
    #[must_use]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(Arc::clone(&self.handle), name.as_ref())
    }

    /// Returns the names of which the store has a record, sorted: locks that are held or waited for, and locks that
    /// were so until a minute ago.
    ///
    /// This is for operators, because it reads the whole store. On Redis it uses `SCAN` with 1,000 keys per round trip,
    /// and it passes over the keys of other programs. The Redis user needs the permission `+scan`, which locks do not
    /// need. It reads no records, so it does not know the kind of a name: see
    /// [`Inspection::kind`](crate::Inspection::kind).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// `Unreachable` if the store does not reply to one step within 2 s; `Denied`, `Quorum`, `Unsupported`, `Closed`.
    pub async fn names(&self) -> Result<Vec<String>> {
        let names = self.handle.session().names().await.map_err(|error| error.of(Operation::Names, None))?;
        Ok(names.iter().filter(|name| !name.is_companion()).map(ToString::to_string).collect())
    }

    /// Returns whether this client, or a clone of it, is the holder. No round trip.
    #[must_use]
    pub fn is_holder(&self, holder: &Holder) -> bool {
        holder.id.session == self.handle.session().id()
    }

    /// Returns whether this client, or a clone of it, is the waiter. No round trip.
    #[must_use]
    pub fn is_waiter(&self, waiter: &Waiter) -> bool {
        waiter.id.session == self.handle.session().id()
    }

    #[cfg(any(test, feature = "blocking"))]
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Returns the file descriptor that shows other processes that this client is alive, or `None` if the store cannot
    /// detect dead clients.
    ///
    /// While any process has this descriptor open, the leases of the client are not released before they end. Pass it
    /// to a command that runs under the lock. It is closed on `exec` unless the caller prevents that.
    #[doc(hidden)]
    #[must_use]
    pub fn life(&self) -> Option<std::os::fd::OwnedFd> {
        self.handle.session().life()
    }

    /// Closes this client and all its clones. Pending calls fail with `Closed`, guards are
    /// [lost](crate::LostReason::Closed), and all leases are released.
    ///
    /// The call itself notifies waiters and guards, before its future is polled. The future waits until the store has
    /// confirmed the releases, for at most 5 s. It does not wait for the work under the guards: another client may hold
    /// these locks while that work still runs. [`Closed::unconfirmed`] names the leases without confirmation. The store
    /// keeps each of them until it expires.
    ///
    /// # Cancel safety
    ///
    /// The client is closed whether the future is completed or dropped.
    pub fn close(self) -> impl Future<Output = Closed> + Send {
        self.handle.session().begin_close();
        async move {
            let left = self.handle.session().closed().await;
            let left: BTreeSet<String> = left.iter().map(ToString::to_string).collect();
            Closed { left: Vec::from_iter(left) }
        }
    }
}

impl fmt::Debug for Leasehold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leasehold").field("holder", &self.handle.label()).finish_non_exhaustive()
    }
}

/// The result of [`Leasehold::close`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    left: Vec<String>,
}

impl Closed {
    /// Returns the names of the leases whose release the store has not confirmed, each name once, in order. Each of these
    /// leases ends when it expires.
    #[must_use]
    pub fn unconfirmed(&self) -> &[String] {
        &self.left
    }
}

/// Settings of a client: see [`Leasehold::builder`].
#[must_use = "a builder does nothing until `connect`"]
pub struct Builder {
    url: String,
    prefix: Option<String>,
    lease: Option<Duration>,
    holder: Option<String>,
    lanes: Lanes,
    hand_over: HandOver,
    start: Start,
}

impl Builder {
    /// Sets a prefix for all keys and inboxes, so that several tenants can use one Redis. It has at most 128 bytes,
    /// without control characters and braces.
    ///
    /// This is the same as `?prefix=` in the URL. It is an error to give both.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets the default lease of all locks of this client. The default is 30 s, or the `max_lease` of a quorum if
    /// that is shorter.
    ///
    /// [`Mutex::lease`] lists the valid range. [`Builder::connect`] reports a value outside of it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Sets the label by which `inspect` shows this client: at most 256 bytes without control characters. The default
    /// is `HOST/PID`.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Makes [`Builder::connect`] return a client even if the store is unreachable. Use it for a service that may start
    /// before its store.
    ///
    /// `connect` then waits for the end of the first attempt (at most 5 s), and returns a client whether or not the
    /// attempt succeeded. The client keeps trying: after 20 ms, and then at growing intervals of up to 1 s. Until it has
    /// connected, `lock` waits, and all other calls fail with the reason (`Unreachable`, on a quorum `Quorum`). An
    /// invalid URL, a wrong password and a server that is too old are still errors of `connect`.
    pub fn lazy(mut self) -> Self {
        self.start = Start::Lazy;
        self
    }

    /// Uses one connection instead of two. This is for programs that hold one lock for a long time, when a server has
    /// thousands of them. Acquires and releases then go through the thread of the client, which costs two more
    /// wake-ups.
    #[doc(hidden)]
    pub fn one_connection(mut self) -> Self {
        self.lanes = Lanes::One;
        self
    }

    /// Turns the hand-over inside this client off, so that each lock waits in the queue of the store. For tests that
    /// compare.
    #[doc(hidden)]
    pub fn remote_hand_over(mut self) -> Self {
        self.hand_over = HandOver::Remote;
        self
    }

    /// Connects to the store.
    ///
    /// # Cancel safety
    ///
    /// See [`Leasehold::connect`].
    ///
    /// # Errors
    ///
    /// See [`Leasehold::connect`].
    pub async fn connect(self) -> Result<Leasehold> {
        let world = Real::world();
        let store = self.choose(&world)?;
        self.connect_to(store, world).await
    }

    pub(crate) fn choose(&self, world: &Arc<dyn World>) -> Result<Arc<dyn Store>> {
        choose(&self.url, self.prefix.as_deref(), world).map_err(failed)
    }

    /// Connects to the given store, in the given world. For tests.
    #[doc(hidden)]
    pub async fn connect_to(self, store: Arc<dyn Store>, world: Arc<dyn World>) -> Result<Leasehold> {
        let lease = self.lease.unwrap_or_else(|| store.profile().default_lease());
        check_lease(lease).map_err(failed)?;
        let holder = self.holder.unwrap_or_else(|| format!("{}/{}", world.host(), world.process()));
        if holder.len() > LABEL_MAX || holder.chars().any(char::is_control) {
            return Err(failed(Error::invalid(format!(
                "the holder's label must have at most {LABEL_MAX} bytes and no control characters"
            ))));
        }
        let session = Session::connect(store, world, self.lanes, self.hand_over, self.start).await.map_err(failed)?;
        Ok(Leasehold { handle: Arc::new(Handle::new(session, lease, holder.into())) })
    }
}

fn failed(error: Error) -> Error {
    error.of(Operation::Connect, None)
}
