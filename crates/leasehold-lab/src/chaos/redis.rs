//! A Redis and the ways to it, as they are broken and mended.

use std::sync::Arc;
use std::time::Duration;

use leasehold_testkit::proxy::Way;
use leasehold_testkit::{FaultProxy, RedisServer, Resp, server};

use super::excuse::ClockLog;
use super::fleet::{DIRECT, PROXIED};
use super::plan::{Disk, Epoch, Reach};

/// A server, the two proxies before it, and its clock.
pub(crate) struct Redis {
    epoch: Epoch,
    pub(crate) server: Arc<RedisServer>,
    /// The one that breaks what passes through it.
    pub(crate) faulty: FaultProxy,
    /// The one that follows failovers and does nothing else.
    calm: FaultProxy,
    pub(crate) clock: ClockLog,
    pub(crate) stalls: Stalls,
}

/// Which ways are stalled, and how often over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) requests: u32,
    pub(crate) replies: u32,
}

/// How long the lab waits for a server that may stand still.
const PATIENCE: Duration = Duration::from_secs(8);

impl Redis {
    pub(crate) fn start(epoch: Epoch) -> Self {
        let server = Arc::new(settings(epoch).start());
        let (faulty, calm) = (FaultProxy::start(server.port()), FaultProxy::start(server.port()));
        Self { epoch, server, faulty, calm, clock: ClockLog::new(), stalls: Stalls::default() }
    }

    /// By which way each client comes.
    pub(crate) fn urls(&self) -> Vec<String> {
        let direct = match self.epoch.reach {
            Reach::Direct => self.server.url(),
            Reach::Led => self.calm.url(),
        };
        vec![self.faulty.url(); PROXIED].into_iter().chain(vec![direct; DIRECT]).collect()
    }

    /// By which way the lab itself looks.
    pub(crate) fn calm_url(&self) -> String {
        self.calm.url()
    }

    /// Sets the server's clock to so much more, or less, than it shows.
    pub(crate) fn shift_clock(&mut self, by_us: i64) {
        let shift_us = self.clock.shift_us() + by_us;
        self.clock.set(shift_us);
        self.server.shift_clock(shift_us);
    }

    /// A server of the same kind that follows this one, with a clock that shows the same.
    pub(crate) fn replica(&self) -> RedisServer {
        let replica = settings(self.epoch).replica_of(&self.server).start();
        replica.shift_clock(self.clock.shift_us());
        replica
    }

    /// Leads everybody to another server.
    pub(crate) fn replace_server(&mut self, by: RedisServer) {
        let by = Arc::new(by);
        self.faulty.set_target(by.port());
        self.calm.set_target(by.port());
        self.server = by;
    }

    /// Stalls as it has been told to.
    pub(crate) fn apply_stalls(&self) {
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

fn settings(epoch: Epoch) -> server::Builder {
    let builder = RedisServer::builder().skew().slow_fsync().config("enable-debug-command", "yes");
    match epoch.disk {
        Disk::None => builder,
        Disk::EverySecond => builder.appendonly("everysec"),
        Disk::Always => builder.appendonly("always"),
    }
}
