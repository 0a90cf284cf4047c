//! The harness of a test: a store, and a gate that delays and cuts the way to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::seam::{Real, Script, choose};
use leasehold::{Inspection, Leasehold};
use leasehold_spec::Op;
use leasehold_testkit::proxy::{Fault, FaultProxy, Requests, Way as ProxyWay};
use leasehold_testkit::{RedisServer, Value, wait_until};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::gate::{Answers, Gate};

/// The direction that is held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Requests do not reach the store.
    Requests,
    /// The store executes the requests, and the replies are held back.
    Replies,
}

/// The numbers of requests that were sent so far, as seen from outside of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) acquires: u64,
    pub(crate) releases: u64,
    pub(crate) leaves: u64,
}

impl Sent {
    pub(crate) fn count(&mut self, op: &Op) {
        match op {
            Op::Acquire(_) => self.acquires += 1,
            Op::Release { .. } => self.releases += 1,
            Op::Leave { .. } | Op::CoolDown { .. } => self.leaves += 1,
            _ => {}
        }
    }
}

pub(crate) struct Harness {
    pub(crate) runtime: Runtime,
    store: Backend,
}

enum Backend {
    /// A store in this process, or one on this host and its directory.
    Memory {
        gate: Gate,
        url: String,
        _directory: Option<TempDir>,
    },
    Redis {
        server: Box<RedisServer>,
        proxy: FaultProxy,
        sent: Arc<Counters>,
    },
}

#[derive(Default)]
struct Counters {
    acquires: AtomicU64,
    releases: AtomicU64,
    leaves: AtomicU64,
}

const TIMEOUT: Duration = Duration::from_secs(20);

impl Harness {
    /// Uses the embedded store of this name.
    pub(crate) fn memory(name: &str) -> Self {
        let url = format!("memory:{name}");
        let store = choose(&url, None, &Real::world()).expect("a good URL");
        Self {
            runtime: runtime(),
            store: Backend::Memory { gate: Gate::before(store, Answers::AtOnce), url, _directory: None },
        }
    }

    /// Uses a directory.
    pub(crate) fn file() -> Self {
        let directory = TempDir::new().expect("a directory");
        let url = format!("file:{}", directory.path().display());
        let store = choose(&url, None, &Real::world()).expect("a good URL");
        let store = Backend::Memory { gate: Gate::before(store, Answers::ByAThread), url, _directory: Some(directory) };
        Self { runtime: runtime(), store }
    }

    pub(crate) fn redis() -> Self {
        let server = RedisServer::builder().skew().start();
        let proxy = FaultProxy::start(server.port());
        let sent = Arc::new(Counters::default());
        let counters = Arc::clone(&sent);
        // Counts every request, and holds none.
        let counting = proxy.inject(Fault::hold(Requests::matching(move |command| {
            if let (true, Some(sha)) = (command.name == "EVALSHA", command.argument(0)) {
                if sha == Script::Many.sha() {
                    let names: usize = command.argument(1).and_then(|count| count.parse().ok()).unwrap_or(0);
                    // The keys come first, and then eight arguments for all names. A release names a token, too.
                    for asked in (0..names).filter_map(|nth| command.argument(10 + names + nth)) {
                        let count = if asked.len() == 32 { &counters.acquires } else { &counters.releases };
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
                let counter = [
                    (Script::Acquire, &counters.acquires),
                    (Script::Release, &counters.releases),
                    (Script::Leave, &counters.leaves),
                ];
                for (_, count) in counter.iter().filter(|(script, _)| script.sha() == sha) {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
            false
        })));
        drop(counting);
        Self { runtime: runtime(), store: Backend::Redis { server: Box::new(server), proxy, sent } }
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(TIMEOUT, future).await.expect("in time") })
    }

    /// Returns the URL of the store, past the gate.
    pub(crate) fn url(&self) -> String {
        match &self.store {
            Backend::Memory { url, .. } => url.clone(),
            Backend::Redis { server, .. } => server.url(),
        }
    }

    /// Returns the proxy and the server behind it.
    pub(crate) fn wires(&self) -> (&FaultProxy, &RedisServer) {
        match &self.store {
            Backend::Redis { server, proxy, .. } => (proxy, server),
            Backend::Memory { .. } => panic!("the embedded store has no connections"),
        }
    }

    /// Returns the server, if the store has one.
    pub(crate) fn server(&self) -> Option<&RedisServer> {
        match &self.store {
            Backend::Redis { server, .. } => Some(server),
            Backend::Memory { .. } => None,
        }
    }

    /// Connects a client through the gate.
    pub(crate) fn connect(&self, label: &str) -> Leasehold {
        self.block_on(async {
            match &self.store {
                Backend::Memory { gate, .. } => {
                    Leasehold::builder("").holder(label).connect_to(Arc::new(gate.clone()), Real::world()).await
                }
                Backend::Redis { proxy, .. } => Leasehold::builder(&proxy.url()).holder(label).connect().await,
            }
        })
        .expect("connected")
    }

    /// Connects a client past the gate, which nothing holds up.
    pub(crate) fn connect_straight(&self, label: &str) -> Leasehold {
        self.block_on(Leasehold::builder(&self.url()).holder(label).connect()).expect("connected")
    }

    pub(crate) fn sent(&self) -> Sent {
        match &self.store {
            Backend::Memory { gate, .. } => gate.sent(),
            Backend::Redis { sent, .. } => Sent {
                acquires: sent.acquires.load(Ordering::SeqCst),
                releases: sent.releases.load(Ordering::SeqCst),
                leaves: sent.leaves.load(Ordering::SeqCst),
            },
        }
    }

    pub(crate) fn hold(&self, way: Way) {
        match &self.store {
            Backend::Memory { gate, .. } => gate.hold(way),
            Backend::Redis { proxy, .. } => proxy.stall(match way {
                Way::Requests => ProxyWay::Requests,
                Way::Replies => ProxyWay::Replies,
            }),
        }
    }

    /// Lets held requests and replies pass. Returns when all requests that `client`'s callers had sent are executed and
    /// answered.
    pub(crate) fn resume(&self, client: &Leasehold) {
        match &self.store {
            Backend::Memory { gate, .. } => gate.resume(),
            Backend::Redis { proxy, .. } => proxy.resume(),
        }
        // This request is behind them on the same connection.
        let _ = self.inspect(client, "probe");
    }

    /// Cuts every connection of the clients behind the gate. Returns when the clients have noticed and tried to
    /// reconnect in vain.
    pub(crate) fn cut(&self) {
        match &self.store {
            Backend::Memory { gate, .. } => {
                let before = gate.refused();
                gate.cut();
                wait_until("a client tried to reconnect", TIMEOUT, || gate.refused() > before);
            }
            Backend::Redis { proxy, .. } => {
                let before = proxy.seen().refused;
                proxy.refuse_connections();
                proxy.cut_all();
                proxy.wait_seen("a client tried to reconnect", TIMEOUT, |seen| seen.refused > before);
            }
        }
    }

    pub(crate) fn mend(&self) {
        match &self.store {
            Backend::Memory { gate, .. } => gate.mend(),
            Backend::Redis { proxy, .. } => proxy.accept_connections(),
        }
    }

    pub(crate) fn inspect(&self, client: &Leasehold, name: &str) -> Inspection {
        self.block_on(client.mutex(name).inspect()).expect("the store answers")
    }

    /// Returns how many clients hold or wait under these names.
    pub(crate) fn occupancy(&self, client: &Leasehold, names: &[String]) -> usize {
        let each = names.iter().map(|name| self.inspect(client, name));
        each.map(|seen| seen.waiters + usize::from(seen.holder().is_some())).sum()
    }

    /// Asserts that no key is left after `later`. All clients have to be closed before.
    pub(crate) fn no_key_after(&self, later: Duration) {
        let Backend::Redis { server, .. } = &self.store else { return };
        let size = || server.command(&["DBSIZE"]);
        assert_ne!(size(), Value::Int(0), "records are kept for a while: there is something to forget");
        let micros = i64::try_from(later.as_micros()).expect("the shift fits");
        server.shift_clock(server.clock_shift() + micros);
        wait_until("every key has expired", TIMEOUT, || size() == Value::Int(0));
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}
