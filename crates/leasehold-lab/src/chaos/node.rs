//! A server that is broken, and the proxy in front of it that breaks what passes.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testkit::proxy::Way;
use leasehold_testkit::{FaultProxy, RedisServer, Resp, server};

use super::plan::{Disk, Epoch};

/// The one server of a Redis, or one of those of a quorum.
pub(crate) struct Node {
    pub(crate) server: Arc<RedisServer>,
    /// The one that breaks what passes through it.
    pub(crate) faulty: FaultProxy,
    stalls: Stalls,
}

/// Which ways are stalled, and how often over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) requests: u32,
    pub(crate) replies: u32,
}

/// How long the lab waits for a server that may stand still.
const PATIENCE: Duration = Duration::from_secs(8);

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

    /// Stalls as it has been told to.
    fn apply_stalls(&self) {
        self.faulty.resume();
        if self.stalls.requests > 0 {
            self.faulty.stall(Way::Requests);
        }
        if self.stalls.replies > 0 {
            self.faulty.stall(Way::Replies);
        }
    }

    /// Mends whatever an end did not.
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

/// A connection for one of the lab's own commands.
pub(crate) fn resp(server: &RedisServer) -> std::io::Result<Resp> {
    Resp::try_connect(server.port(), PATIENCE)
}

/// What a server of this epoch is like.
pub(crate) fn settings(epoch: Epoch) -> server::Builder {
    let builder = RedisServer::builder().skew().slow_fsync().config("enable-debug-command", "yes");
    match epoch.disk {
        Disk::None => builder,
        Disk::EverySecond => builder.appendonly("everysec"),
        Disk::Always => builder.appendonly("always"),
    }
}
