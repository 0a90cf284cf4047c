//! The stores that the suite runs over.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::Leasehold;
use leasehold_spec::SessionId;
use tempfile::TempDir;

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
        /// The same, by TLS.
        RedisTls,
    }
}

dimension! {
    /// Where clients hand a lease on.
    HandOver {
        /// Inside of themselves, where that may be.
        Local,
        /// By the store only.
        Remote,
    }
}

/// A store that runs for a suite.
pub struct Running {
    url: String,
    hand_over: HandOver,
    server: Option<RedisServer>,
    /// The embedded store lives as long as a client of it.
    _anchor: Leasehold,
    _directory: Option<TempDir>,
}

impl Running {
    /// Starts it.
    ///
    /// # Panics
    /// When it does not start.
    #[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
    pub async fn start(backend: Backend, hand_over: HandOver) -> Self {
        let (url, server, directory) = match backend {
            // One of its own: another run in this process has cells of the same names.
            Backend::Memory => {
                static RUNS: AtomicU64 = AtomicU64::new(0);
                (format!("memory:conformance-{}", RUNS.fetch_add(1, Ordering::Relaxed)), None, None)
            }
            Backend::File => {
                let directory = TempDir::new().expect("a directory");
                (format!("file:{}", directory.path().display()), None, Some(directory))
            }
            Backend::Redis => {
                let server = RedisServer::start();
                (server.url(), Some(server), None)
            }
            Backend::RedisTls => {
                let server = RedisServer::start_tls();
                (server.tls_url(), Some(server), None)
            }
        };
        let anchor = Leasehold::connect(&url).await.expect("the store is there");
        Self { url, hand_over, server, _anchor: anchor, _directory: directory }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where its clients hand on.
    #[must_use]
    pub const fn hand_over(&self) -> HandOver {
        self.hand_over
    }

    /// Whether somebody listens to the inbox of this session. Closing a link and its being seen as closed are two things.
    pub(super) fn is_attached(&self, session: SessionId) -> bool {
        let Some(server) = &self.server else { return false };
        let inbox = format!("lh1:inbox:{session}");
        match server.command(&["PUBSUB", "NUMSUB", &inbox]).items() {
            Some([_, count]) => *count != Value::Int(0),
            _ => true,
        }
    }
}
