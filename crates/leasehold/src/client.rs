//! A client: the way in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::limits::LABEL_MAX;

use crate::error::{Error, Result};
use crate::mutex::{Mutex, check_lease};
use crate::real::Real;
use crate::reentry::Gates;
use crate::session::{HandOver, Lanes, Session};
use crate::store::{Store, choose, default_lease};
use crate::world::World;

/// A client of one store: one session, one inbox, one thread. Clones share it.
///
/// A client connects once and reconnects by itself. Dropping the last handle (clones, mutexes and guards count) gives
/// everything back in the background; [`Leasehold::close`] does so and waits.
///
/// # Forks
/// A client does not survive `fork`: every call in the child answers `Unsupported`, and closing or dropping what the child
/// has of it does nothing. The leases are the parent's, and the copy of a guard is not to be believed.
#[derive(Clone)]
pub struct Leasehold {
    handle: Arc<Handle>,
}

impl Leasehold {
    /// Connects to a store, and fails fast: a bad URL, an unreachable server and a wrong password are told at once.
    ///
    /// | URL | Store |
    /// |---|---|
    /// | `memory:` | in this client alone |
    /// | `memory:NAME` | shared by the clients of this process that name it |
    /// | `file:/PATH` | shared by the programs of this host that name this directory (feature `file`, Linux) |
    /// | `redis://[USER:PASSWORD@]HOST[:PORT][/DB][?PARAMETERS]` | a Redis, 7.0 or newer |
    /// | `rediss://…` | the same by TLS (feature `tls`) |
    /// | `quorum:?node=URL&node=URL&node=URL` | a majority of 3 to 9 of them, which know nothing of each other |
    ///
    /// The port is 6379 unless said, of both. Parameters are joined by `&`, each at most once; what is none of these is
    /// refused:
    ///
    /// | Parameter | |
    /// |---|---|
    /// | `prefix=P` | a tenant's prefix: see [`Builder::prefix`] |
    /// | `password_file=/PATH` | the password is in this file, on its only line |
    /// | `password_env=NAME` | the password is in this variable of the environment |
    /// | `ca=/PATH` | `rediss:` trusts the certificates of this file and no others; the system's unless said |
    /// | `cert=/PATH&key=/PATH` | `rediss:` shows this certificate, to a server that asks for one |
    ///
    /// A quorum has parameters of its own: `node`, one of the URLs above, with `%26` for each `&` in it (or all of it
    /// percent-encoded); `max_lease=60s`, the longest lease, 60 s unless said, from 1 s to 24 h (`ms`, `s`, `m`, `h`); and
    /// `prefix`, for all nodes. The default lease is never longer than `max_lease`. All programs give the same nodes
    /// and the same `max_lease`. A new quorum grants nothing for as long, and for 22 s at least, unless it is initialized
    /// with `leasehold::quorum::begin`.
    ///
    /// A password is given once: in the URL, percent-encoded where it has to be, or by one of the parameters, with a user
    /// before the host or without. It is shown in no error and no `Debug`.
    ///
    /// Paths are absolute, certificates and keys in PEM. Files and variables are read anew for every connection, also when
    /// the client reconnects: who rotates a password or a certificate replaces the file, and no program is restarted.
    /// While they do not fit, `lock` waits, and other calls are told why.
    ///
    /// A server's certificate has to be signed by somebody who is trusted, to be of today, and to name the host of the URL,
    /// a DNS name or an IP address. There is no switch to turn that off.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    ///
    /// # Errors
    /// `Invalid`, also for a file or a variable that is missing or makes no sense; `Unreachable` at once when nothing
    /// listens there, and after 5 s when what listens does not answer; `Denied`, also where one side does not believe the
    /// other's certificate; `Unsupported`, also for a server older than 7.0; `Store` when the system gives no thread, or
    /// the process has too many files open; of a quorum `Quorum` when most of its nodes cannot be reached.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder(url).connect().await
    }

    /// Connects with more said than a URL.
    pub fn builder(url: &str) -> Builder {
        Builder {
            url: url.to_owned(),
            prefix: None,
            lease: None,
            holder: None,
            lanes: Lanes::Two,
            hand_over: HandOver::Local,
        }
    }

    /// The lock of this name: 1 to 255 bytes of UTF-8 without control characters, taken as they are. No I/O; a bad name
    /// is the first call's error.
    #[must_use]
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(Arc::clone(&self.handle), name.as_ref())
    }

    /// The names that the store has a record of, sorted: those that are held or waited for, and those that were a minute
    /// ago. For operators: it looks through the whole store, on Redis by `SCAN` (a thousand keys a round trip, the keys of
    /// others too), which its user must be allowed to do beside what locks need (`+scan`).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// `Unreachable` when a step of it has no answer within 2 s; `Denied`, `Quorum`, `Unsupported`, `Closed`.
    pub async fn names(&self) -> Result<Vec<String>> {
        let names = self.handle.session().names().await?;
        Ok(names.iter().map(ToString::to_string).collect())
    }

    #[cfg(test)]
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The descriptor that says to others that this client lives, for a command that is started under a lock: as long as
    /// any process has it open, what the client holds is not given back before the lease has ended. It is closed on `exec`
    /// unless the caller sees to it. `None` where a store cannot tell the dead from the silent.
    #[doc(hidden)]
    #[must_use]
    pub fn life(&self) -> Option<std::os::fd::OwnedFd> {
        self.handle.session().life()
    }

    /// Closes the client for all its clones: waiters hear `Closed`, guards are [lost](crate::Lost::Closed), and
    /// everything is given back.
    ///
    /// Waiters and guards hear of it at the call itself, before its future is polled. The future waits until the store has
    /// confirmed what is given back, at most 5 s. It does not wait for the work under the guards: that is to end by
    /// itself, and somebody else may hold meanwhile. What is left are the leases of [`Closed::unconfirmed`], each of which
    /// the store keeps until it ends there.
    ///
    /// # Cancel safety
    /// The client is closed whether this future is finished or dropped.
    pub fn close(self) -> impl Future<Output = Closed> + Send {
        self.handle.session().begin_close();
        async move {
            let left = self.handle.session().closed().await;
            Closed { left: left.iter().map(ToString::to_string).collect() }
        }
    }
}

impl fmt::Debug for Leasehold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leasehold").field("holder", &self.handle.label).finish_non_exhaustive()
    }
}

/// What [`Leasehold::close`] could not give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    left: Vec<String>,
}

impl Closed {
    /// The names of leases that the store has not confirmed as given back. Each ends there by itself when its lease does.
    #[must_use]
    pub fn unconfirmed(&self) -> &[String] {
        &self.left
    }
}

/// Says more than a URL: see [`Leasehold::builder`].
#[must_use = "a builder does nothing until `connect`"]
pub struct Builder {
    url: String,
    prefix: Option<String>,
    lease: Option<Duration>,
    holder: Option<String>,
    lanes: Lanes,
    hand_over: HandOver,
}

impl Builder {
    /// A tenant's prefix for every key and inbox, at most 128 bytes without control characters or braces. The same as
    /// `?prefix=` in the URL; giving both is an error.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// The lease of every mutex that names none: 30 s unless said, or the longest lease of a quorum (`max_lease`) where
    /// that is shorter. [`Mutex::lease`] has the range; one outside of it is an error of [`Builder::connect`].
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// What this client calls itself, shown by `inspect`: at most 256 bytes without control characters. `HOST/PID` unless
    /// said.
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// With one connection instead of two: for a program that has one lock and runs for long, of which a server may have
    /// thousands. Its acquires and releases go by the client's thread, which costs two wake-ups more.
    #[doc(hidden)]
    pub fn one_connection(mut self) -> Self {
        self.lanes = Lanes::One;
        self
    }

    /// Without hand-over inside this client: every lock stands in the store's queue for itself. For tests that compare.
    #[doc(hidden)]
    pub fn remote_hand_over(mut self) -> Self {
        self.hand_over = HandOver::Remote;
        self
    }

    /// Connects.
    ///
    /// # Cancel safety
    /// As [`Leasehold::connect`].
    ///
    /// # Errors
    /// As [`Leasehold::connect`].
    pub async fn connect(self) -> Result<Leasehold> {
        let world = Real::world();
        let store = self.choose(&world)?;
        self.connect_to(store, world).await
    }

    pub(crate) fn choose(&self, world: &Arc<dyn World>) -> Result<Arc<dyn Store>> {
        choose(&self.url, self.prefix.as_deref(), world)
    }

    /// Connects to a store and in a world of the caller's own.
    #[doc(hidden)]
    pub async fn connect_to(self, store: Arc<dyn Store>, world: Arc<dyn World>) -> Result<Leasehold> {
        let lease = self.lease.unwrap_or_else(|| default_lease(&*store));
        check_lease(lease)?;
        let holder = self.holder.unwrap_or_else(|| format!("{}/{}", world.host(), world.process()));
        if holder.len() > LABEL_MAX || holder.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "the holder's label must have at most {LABEL_MAX} bytes and no control characters"
            )));
        }
        let session = Session::connect(store, world, self.lanes, self.hand_over).await?;
        Ok(Leasehold { handle: Arc::new(Handle { session, lease, label: holder.into(), gates: Gates::default() }) })
    }
}

/// What clones, mutexes and guards share. The last one to go ends the session.
pub(crate) struct Handle {
    session: Arc<Session>,
    lease: Duration,
    label: Arc<str>,
    gates: Gates,
}

impl Handle {
    pub(crate) fn gates(&self) -> &Gates {
        &self.gates
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    pub(crate) fn label(&self) -> Arc<str> {
        Arc::clone(&self.label)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.session.begin_close();
    }
}
