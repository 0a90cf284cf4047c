//! Several servers that do not know each other, for a lock that a majority of them decides.
//!
//! ```
//! use leasehold_testkit::Quorum;
//!
//! let quorum = Quorum::start(3);
//! quorum.server(0).kill();
//! quorum.proxy(1).cut_all();
//! assert!(quorum.url().starts_with("quorum:?node=redis://127.0.0.1:"));
//! ```

use std::time::Duration;

use crate::proxy::FaultProxy;
use crate::server::{self, RedisServer};

/// Independent servers, each with a proxy in front of it. [`url`](Quorum::url) bypasses the proxies.
///
/// A new node may have forgotten something, and is in quarantine: a test of locks first runs `quorum::begin`.
#[derive(Debug)]
pub struct Quorum {
    // Before the servers: the connections through the proxies are cut while the servers still run.
    proxies: Vec<FaultProxy>,
    servers: Vec<RedisServer>,
    max_lease: Option<Duration>,
}

/// The configuration of a [`Quorum`].
#[derive(Clone, Debug)]
pub struct Builder {
    nodes: usize,
    each: server::Builder,
    max_lease: Option<Duration>,
}

impl Builder {
    /// Sets the configuration of each server.
    #[must_use]
    pub fn each(mut self, server: server::Builder) -> Self {
        self.each = server;
        self
    }

    /// Sets the longest lease, which the URLs then contain. By default they contain none.
    #[must_use]
    pub const fn max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = Some(max_lease);
        self
    }

    /// Starts the servers, and waits until all of them answer.
    ///
    /// # Panics
    /// Like [`server::Builder::start`].
    #[must_use]
    #[track_caller]
    pub fn start(self) -> Quorum {
        let servers: Vec<_> = (0..self.nodes).map(|_| self.each.clone().start()).collect();
        let proxies = servers.iter().map(|server| FaultProxy::start(server.port())).collect();
        Quorum { proxies, servers, max_lease: self.max_lease }
    }
}

impl Quorum {
    /// Starts this many servers without persistence.
    #[must_use]
    #[track_caller]
    pub fn start(nodes: usize) -> Self {
        Self::builder(nodes).start()
    }

    /// Returns a builder for other configurations.
    #[must_use]
    pub fn builder(nodes: usize) -> Builder {
        Builder { nodes, each: RedisServer::builder(), max_lease: None }
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.of(&self.urls())
    }

    /// Returns its URL through the proxies.
    #[must_use]
    pub fn url_by_proxy(&self) -> String {
        let by_proxy = |(server, proxy): (&RedisServer, &FaultProxy)| {
            let url = server.url();
            let host = url.strip_suffix(&server.port().to_string()).expect("a server's URL ends with its port");
            format!("{host}{}", proxy.port())
        };
        self.of(&self.servers.iter().zip(&self.proxies).map(by_proxy).collect::<Vec<_>>())
    }

    /// Returns the URL of each server by itself.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// Returns one of the servers, counted from 0.
    #[must_use]
    #[track_caller]
    pub fn server(&self, at: usize) -> &RedisServer {
        &self.servers[at]
    }

    /// Returns all servers.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// Returns the proxy in front of a server.
    #[must_use]
    #[track_caller]
    pub fn proxy(&self, at: usize) -> &FaultProxy {
        &self.proxies[at]
    }

    /// Returns all proxies.
    #[must_use]
    pub fn proxies(&self) -> &[FaultProxy] {
        &self.proxies
    }

    /// Returns each server with its proxy, for a test that manages them itself. Ask for the URLs before.
    pub fn into_nodes(self) -> impl Iterator<Item = (RedisServer, FaultProxy)> {
        self.servers.into_iter().zip(self.proxies)
    }

    /// Returns the URL of a quorum of these.
    fn of(&self, nodes: &[String]) -> String {
        let nodes = nodes.iter().map(|node| format!("node={}", node.replace('&', "%26")));
        let max_lease = self.max_lease.map(|max_lease| format!("max_lease={}ms", max_lease.as_millis()));
        format!("quorum:?{}", nodes.chain(max_lease).collect::<Vec<_>>().join("&"))
    }
}
