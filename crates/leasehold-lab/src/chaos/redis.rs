//! A Redis and its proxies, which faults break and the lab repairs.

use std::sync::Arc;

use leasehold_testkit::{FaultProxy, RedisServer};

use super::excuse::ClockLog;
use super::fleet::{DIRECT, PROXIED};
use super::node::{Node, settings};
use super::plan::{Epoch, Reach};

/// A server, the two proxies in front of it, and its clock.
pub(crate) struct Redis {
    epoch: Epoch,
    pub(crate) node: Node,
    /// The proxy that follows failovers and does nothing else.
    calm: FaultProxy,
    pub(crate) clock: ClockLog,
}

impl Redis {
    pub(crate) fn start(epoch: Epoch) -> Self {
        let server = settings(epoch).start();
        let (faulty, calm) = (FaultProxy::start(server.port()), FaultProxy::start(server.port()));
        Self { epoch, node: Node::new(server, faulty), calm, clock: ClockLog::new() }
    }

    /// Returns the URL of each client.
    pub(crate) fn urls(&self) -> Vec<String> {
        let direct = match self.epoch.reach {
            Reach::Direct => self.node.server.url(),
            Reach::Led => self.calm.url(),
        };
        vec![self.node.faulty.url(); PROXIED].into_iter().chain(vec![direct; DIRECT]).collect()
    }

    /// Returns the URL for the lab's own checks.
    pub(crate) fn calm_url(&self) -> String {
        self.calm.url()
    }

    /// Shifts the server's clock by this much, forward or back.
    pub(crate) fn shift_clock(&mut self, by_us: i64) {
        let shift_us = self.clock.shift_us() + by_us;
        self.clock.set(shift_us);
        self.node.server.shift_clock(shift_us);
    }

    /// Starts a server of the same kind that replicates this one, with a clock that shows the same.
    pub(crate) fn replica(&self) -> RedisServer {
        let replica = settings(self.epoch).replica_of(&self.node.server).start();
        replica.shift_clock(self.clock.shift_us());
        replica
    }

    /// Redirects all clients to another server.
    pub(crate) fn replace_server(&mut self, by: RedisServer) {
        self.node.faulty.set_target(by.port());
        self.calm.set_target(by.port());
        self.node.server = Arc::new(by);
    }
}
