//! Five servers that do not know each other, each with a proxy in front, and the quarantines of those that forgot.
//!
//! A quorum does not have the excuses of one Redis. A node that comes back empty, with the state of a second ago, or
//! flushed excuses nothing at all, however many nodes do so at once: it is in quarantine. So a fault costs time here and
//! never a promise. Only the bound within which every client must be served depends on which nodes have forgotten.
//!
//! Clocks differ by as much as the promises allow, and are not set during a run: a jump forward excuses overlaps for
//! seconds, and would hide the violations that this run looks for. The simulation sets clocks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_spec::limits::CLOCK_ERROR_MS;
use leasehold_spec::node::rest_ms;
use leasehold_testkit::{Quorum as Servers, Random};

use super::fleet::{DIRECT, PROXIED};
use super::node::{Node, settings};
use super::plan::{Epoch, NODES};

/// The longest lease. The quarantine of a node is at least 22 s in any case. The lease is longer than the time that a
/// round has for its repair while a majority votes. Otherwise a lease that was never released would end by itself before
/// the check for residue.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(20);
/// Within this time after the repair a client has connected to each node, which is when its quarantine begins.
const CONNECTED: Duration = Duration::from_secs(5);
/// The largest distance of a clock from the true time.
const APART_US: u64 = CLOCK_ERROR_MS * 1000 * 7 / 10;

/// The nodes, and the URLs of clients.
pub(crate) struct Quorum {
    pub(crate) nodes: Vec<Node>,
    by_proxy: String,
    direct: String,
    pub(crate) quarantines: Quarantines,
}

impl Quorum {
    /// Starts nodes in quarantine. Once [`begun`](leasehold::quorum::begin), they vote.
    pub(crate) fn start(epoch: Epoch) -> Self {
        let servers = Servers::builder(NODES).each(settings(epoch)).max_lease(MAX_LEASE).start();
        let mut random = Random::new(epoch.number);
        for server in servers.servers() {
            let ahead_us = i64::try_from(random.below(2 * APART_US)).expect("seconds");
            server.shift_clock(ahead_us - APART_US.cast_signed());
        }
        let (by_proxy, direct) = (servers.url_by_proxy(), servers.url());
        let nodes = servers.into_nodes().map(|(server, proxy)| Node::new(server, proxy)).collect();
        Self { nodes, by_proxy, direct, quarantines: Quarantines::default() }
    }

    /// Returns the URL of each client.
    pub(crate) fn urls(&self) -> Vec<String> {
        let direct = vec![self.direct.clone(); DIRECT];
        vec![self.by_proxy.clone(); PROXIED].into_iter().chain(direct).collect()
    }

    /// Returns the URL for the lab's own checks.
    pub(crate) fn calm_url(&self) -> String {
        self.direct.clone()
    }
}

/// The nodes that have forgotten something, and the ends of their quarantines. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quarantines(Arc<Mutex<[NodeState; NODES]>>);

#[derive(Clone, Copy, Debug, Default)]
enum NodeState {
    #[default]
    Votes,
    /// The node forgot in this round; its quarantine has begun or will begin.
    Forgot,
    QuarantinedUntil(Instant),
}

impl Quarantines {
    /// Records that this node has lost something.
    pub(crate) fn forgot(&self, at: usize) {
        self.all()[at] = NodeState::Forgot;
    }

    /// Records that clients can connect to every node from now on.
    pub(crate) fn healed(&self) {
        let until = Instant::now() + CONNECTED + Duration::from_millis(rest_ms(max_lease_ms()));
        let forgot = |state: &&mut NodeState| matches!(state, NodeState::Forgot);
        self.all().iter_mut().filter(forgot).for_each(|state| *state = NodeState::QuarantinedUntil(until));
    }

    /// Returns the longest time until a majority votes, after a repair.
    pub(crate) fn majority_within(&self) -> Duration {
        let now = Instant::now();
        let mut left = self.all().map(|state| match state {
            NodeState::QuarantinedUntil(until) => until.saturating_duration_since(now),
            NodeState::Votes | NodeState::Forgot => Duration::ZERO,
        });
        left.sort_unstable();
        left[NODES / 2]
    }

    fn all(&self) -> MutexGuard<'_, [NodeState; NODES]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn max_lease_ms() -> u64 {
    u64::try_from(MAX_LEASE.as_millis()).expect("seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_votes_when_the_quarantine_of_the_third_of_five_ends() {
        let quarantines = Quarantines::default();
        quarantines.forgot(0);
        quarantines.forgot(3);
        quarantines.healed();
        assert_eq!(quarantines.majority_within(), Duration::ZERO, "three remember");
        quarantines.forgot(1);
        quarantines.healed();
        let within = quarantines.majority_within();
        assert!(
            within > Duration::from_millis(rest_ms(max_lease_ms())) && within < Duration::from_secs(30),
            "{within:?}"
        );
    }
}
