//! Where it happens: a server, the two proxies before it, the clients, and an eye that looks without being looked at.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testkit::proxy::Way;
use leasehold_testkit::{FaultProxy, RedisServer, Resp, server};
use tokio::runtime::Handle;

use super::excuse::{ClockLog, Excuses};
use super::fleet::{DIRECT, Fleet, PROXIED};
use super::plan::{Disk, Epoch, Reach};

/// What rounds of one epoch share.
pub(crate) struct Stage {
    pub(crate) epoch: Epoch,
    pub(crate) server: Arc<RedisServer>,
    /// The one that breaks what passes through it.
    pub(crate) faulty: FaultProxy,
    /// The one that follows failovers and does nothing else.
    pub(crate) calm: FaultProxy,
    pub(crate) fleet: Fleet,
    pub(crate) clock: ClockLog,
    pub(crate) excuses: Excuses,
    /// By how much the clock was set back in this round: leases of the dead last for so much longer.
    pub(crate) set_back: Duration,
    pub(crate) stalls: Stalls,
    runtime: Handle,
    eye: Option<Leasehold>,
}

/// Which ways are stalled, and how often over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) requests: u32,
    pub(crate) replies: u32,
}

/// How long a look for a fault's sake may take.
const GLANCE: Duration = Duration::from_millis(300);
/// How long the lab waits for a server that may stand still.
const PATIENCE: Duration = Duration::from_secs(8);

impl Stage {
    pub(crate) fn set(epoch: Epoch, registers: u16, runtime: Handle) -> Self {
        let server = Arc::new(settings(epoch).start());
        let (faulty, calm) = (FaultProxy::start(server.port()), FaultProxy::start(server.port()));
        let direct = match epoch.reach {
            Reach::Direct => server.url(),
            Reach::Led => calm.url(),
        };
        let urls = vec![faulty.url(); PROXIED].into_iter().chain(vec![direct; DIRECT]).collect();
        let fleet = Fleet::start(urls, registers);
        let eye = Leasehold::builder(&calm.url()).holder("eye").connect();
        let eye = runtime.block_on(eye).expect("the server was started");
        let (clock, excuses) = (ClockLog::new(), Excuses::default());
        let (set_back, stalls) = (Duration::ZERO, Stalls::default());
        Self { epoch, server, faulty, calm, fleet, clock, excuses, set_back, stalls, runtime, eye: Some(eye) }
    }

    /// What the holder of this name calls itself.
    pub(crate) fn holder(&self, name: &str) -> Option<String> {
        let mutex = self.eye.as_ref()?.mutex(name);
        let seen = self.runtime.block_on(async { tokio::time::timeout(GLANCE, mutex.inspect()).await });
        Some(seen.ok()?.ok()?.holder?.label)
    }

    pub(crate) fn eye(&self) -> &Leasehold {
        self.eye.as_ref().expect("open until the stage is dropped")
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Sets the server's clock to so much more, or less, than it shows.
    pub(crate) fn shift_clock(&mut self, by_us: i64) {
        let shift_us = self.clock.shift_us() + by_us;
        self.clock.set(shift_us);
        self.server.shift_clock(shift_us);
        if by_us < 0 {
            self.set_back += Duration::from_micros(by_us.unsigned_abs());
        }
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
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _inside = self.runtime.enter();
        drop(self.eye.take());
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
