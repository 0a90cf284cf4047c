//! A server that faults strike, and the proxy in front of it that breaks its traffic.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testkit::proxy::Way;
use leasehold_testkit::{FaultProxy, RedisServer, Resp, server};

use super::plan::{Disk, Epoch};

/// The server of a Redis, or one server of a quorum.
pub(crate) struct Node {
    pub(crate) server: Arc<RedisServer>,
    /// The proxy that breaks the traffic through it.
    pub(crate) faulty: FaultProxy,
    stalls: Stalls,
}

/// How many faults stall each direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) requests: u32,
    pub(crate) replies: u32,
}

/// How long the lab waits for a server that may be paused.
const TIMEOUT: Duration = Duration::from_secs(8);

impl Node {
    pub(crate) fn new(server: RedisServer, faulty: FaultProxy) -> Self {
        Self { server: Arc::new(server), faulty, stalls: Stalls::default() }
    }

    pub(crate) fn stall(&mut self, more: Stalls) {
        self.stalls.requests += more.requests;
        self.stalls.replies += more.replies;
        self.apply_stalls();
    }

    pub(crate) fn let_go(&mut self, of: Stalls) {
        self.stalls.requests -= of.requests;
        self.stalls.replies -= of.replies;
        self.apply_stalls();
    }

    /// Applies the stalls that are in force.
    fn apply_stalls(&self) {
        self.faulty.resume();
        if self.stalls.requests > 0 {
            self.faulty.stall(Way::Requests);
        }
        if self.stalls.replies > 0 {
            self.faulty.stall(Way::Replies);
        }
    }

    /// Repairs everything that the end of a fault did not repair.
    pub(crate) fn heal(&mut self) {
        self.stalls = Stalls::default();
        self.faulty.resume();
        self.faulty.accept_connections();
        self.faulty.set_latency(None);
        self.server.set_slow_fsync(Duration::ZERO);
        let healed = resp(&self.server).and_then(|mut resp| {
            resp.try_command(&["CLIENT", "UNPAUSE"])?;
            resp.try_command(&["CONFIG", "SET", "maxmemory", "0"])
        });
        healed.expect("a healed server obeys");
    }
}

/// Opens a connection for the lab's own commands.
pub(crate) fn resp(server: &RedisServer) -> std::io::Result<Resp> {
    Resp::try_connect(server.port(), TIMEOUT)
}

/// Returns the settings of a server of this epoch.
pub(crate) fn settings(epoch: Epoch) -> server::Builder {
    let builder = RedisServer::builder().skew().slow_fsync().config("enable-debug-command", "yes");
    match epoch.disk {
        Disk::None => builder,
        Disk::EverySecond => builder.appendonly("everysec"),
        Disk::Always => builder.appendonly("always"),
    }
}
