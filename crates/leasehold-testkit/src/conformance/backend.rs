//! The stores that the suite tests.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Leasehold;
use leasehold_spec::SessionId;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::quorum::Quorum;
use crate::resp::Value;
use crate::server::RedisServer;

dimension! {
    /// A store of the suite.
    Backend {
        /// The embedded store.
        Memory,
        /// A directory of its own.
        File,
        /// One Redis.
        Redis,
        /// One Redis, by TLS.
        RedisTls,
        /// Three Redis servers that do not know each other.
        Quorum,
    }
}

dimension! {
    /// How clients hand a lease over.
    HandOver {
        /// Inside of the client, where that is allowed.
        Local,
        /// Through the store only.
        Remote,
    }
}

/// The servers that run for a store.
enum Servers {
    None,
    One(Box<RedisServer>),
    Several(Quorum),
}

/// A store that runs for a suite.
pub struct Running {
    backend: Backend,
    url: String,
    hand_over: HandOver,
    servers: Servers,
    /// The embedded store lives as long as it has a client.
    _anchor: Leasehold,
    directory: Option<TempDir>,
}

impl Running {
    /// Starts it.
    ///
    /// # Panics
    /// If it does not start.
    #[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
    pub async fn start(backend: Backend, hand_over: HandOver) -> Self {
        let (url, servers, directory) = match backend {
            // A store of its own: another run in this process has cells of the same names.
            Backend::Memory => {
                static RUNS: AtomicU64 = AtomicU64::new(0);
                (format!("memory:conformance-{}", RUNS.fetch_add(1, Ordering::Relaxed)), Servers::None, None)
            }
            Backend::File => {
                let directory = TempDir::new().expect("a directory");
                (format!("file:{}", directory.path().display()), Servers::None, Some(directory))
            }
            Backend::Redis => {
                let server = RedisServer::start();
                (server.url(), Servers::One(Box::new(server)), None)
            }
            Backend::RedisTls => {
                let server = RedisServer::start_tls();
                (server.tls_url(), Servers::One(Box::new(server)), None)
            }
            Backend::Quorum => {
                // The suite has leases of a day.
                let quorum = Quorum::builder(3).max_lease(Duration::from_secs(24 * 60 * 60)).start();
                leasehold::quorum::begin(&quorum.url()).await.expect("all nodes are there");
                (quorum.url(), Servers::Several(quorum), None)
            }
        };
        let anchor = Leasehold::connect(&url).await.expect("the store is there");
        Self { backend, url, hand_over, servers, _anchor: anchor, directory }
    }

    /// Returns its kind.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns how its clients hand a lease over.
    #[must_use]
    pub const fn hand_over(&self) -> HandOver {
        self.hand_over
    }

    /// Makes the store answer nothing until the returned value is dropped. Connections stay open. Returns `None` for a
    /// store in this process, which cannot be silent.
    ///
    /// # Panics
    /// If the directory has no lock file.
    #[must_use]
    pub fn silence(&self) -> Option<Silence<'_>> {
        match (&self.servers, &self.directory) {
            (Servers::One(server), _) => Some(Silence::stop(vec![server])),
            (Servers::Several(quorum), _) => Some(Silence::stop(quorum.servers().iter().collect())),
            (Servers::None, Some(directory)) => {
                let turn = File::open(directory.path().join("lock")).expect("a store has a lock file");
                flock(&turn, FlockOperation::LockExclusive).expect("the lock, sooner or later");
                Some(Silence { stopped: Vec::new(), _turn: Some(turn) })
            }
            (Servers::None, None) => None,
        }
    }

    /// Whether the inbox of this session has a subscriber. A link may be closed before the store has seen that.
    pub(super) fn is_attached(&self, session: SessionId) -> bool {
        let listens = |server: &RedisServer, inbox: &str| match server.command(&["PUBSUB", "NUMSUB", inbox]).items() {
            Some([_, count]) => *count != Value::Int(0),
            _ => true,
        };
        match &self.servers {
            Servers::None => false,
            Servers::One(server) => listens(server, &format!("lh1:inbox:{session}")),
            Servers::Several(quorum) => {
                let inbox = format!("lq1:inbox:{session}");
                quorum.servers().iter().any(|server| listens(server, &inbox))
            }
        }
    }
}

/// A store that answers nothing until this is dropped.
pub struct Silence<'a> {
    stopped: Vec<&'a RedisServer>,
    /// The lock of the directory: it ends with the file.
    _turn: Option<File>,
}

impl<'a> Silence<'a> {
    fn stop(servers: Vec<&'a RedisServer>) -> Self {
        servers.iter().for_each(|server| server.stop());
        Self { stopped: servers, _turn: None }
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        self.stopped.iter().for_each(|server| server.cont());
    }
}
