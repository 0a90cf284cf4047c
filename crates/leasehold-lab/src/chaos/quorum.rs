//! Five servers that know nothing of each other, each with a proxy in front, and how long those rest that forgot.
//!
//! What one Redis is excused for, a quorum is not. A node that comes back empty, with the state of a second ago, or
//! flushed, excuses nothing at all, however many of them do at once: it rests. So here a fault costs time and never a
//! promise, and nobody asks which nodes have forgotten but the bound within which everybody has to be served.
//!
//! Clocks are apart by what the promises allow, and are not set while it runs: a jump forward excuses overlaps for seconds,
//! and would hide what is to be seen here. The simulation sets them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use leasehold_spec::limits::CLOCK_ERROR_MS;
use leasehold_spec::node::rest_ms;
use leasehold_testkit::{Quorum as Servers, Random};

use super::fleet::{DIRECT, PROXIED};
use super::node::{Node, settings};
use super::plan::{Epoch, NODES};

/// The longest lease. A node rests for 22 s at least, whatever this is; and it is longer than what a round has to heal in
/// while a majority votes, or a lease that nobody has given back would end by itself before anybody looks.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(20);
/// Within this time from the healing somebody has greeted each node, which is when its rest begins.
const GREETED: Duration = Duration::from_secs(5);
/// How far each clock is from the true time, at most.
const APART_US: u64 = CLOCK_ERROR_MS * 1000 * 7 / 10;

/// The nodes, and the ways to them.
pub(crate) struct Quorum {
    pub(crate) nodes: Vec<Node>,
    by_proxy: String,
    direct: String,
    pub(crate) rests: Rests,
}

impl Quorum {
    /// Nodes that rest: [`begun`](leasehold::quorum::begin) they vote.
    pub(crate) fn start(epoch: Epoch) -> Self {
        let servers = Servers::builder(NODES).each(settings(epoch)).max_lease(MAX_LEASE).start();
        let mut random = Random::new(epoch.number);
        for server in servers.servers() {
            let ahead_us = i64::try_from(random.below(2 * APART_US)).expect("seconds");
            server.shift_clock(ahead_us - APART_US.cast_signed());
        }
        let (by_proxy, direct) = (servers.url_by_proxy(), servers.url());
        let nodes = servers.into_nodes().map(|(server, proxy)| Node::new(server, proxy)).collect();
        Self { nodes, by_proxy, direct, rests: Rests::default() }
    }

    /// By which way each client comes.
    pub(crate) fn urls(&self) -> Vec<String> {
        let direct = vec![self.direct.clone(); DIRECT];
        vec![self.by_proxy.clone(); PROXIED].into_iter().chain(direct).collect()
    }

    /// By which way the lab itself looks.
    pub(crate) fn calm_url(&self) -> String {
        self.direct.clone()
    }
}

/// Which nodes have forgotten something, and until when they rest for it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rests(Arc<Mutex<[Rest; NODES]>>);

#[derive(Clone, Copy, Debug, Default)]
enum Rest {
    #[default]
    Votes,
    /// In this round, and its rest has begun or is yet to.
    Forgot,
    Until(Instant),
}

impl Rests {
    /// This node has lost something.
    pub(crate) fn forgot(&self, at: usize) {
        self.all()[at] = Rest::Forgot;
    }

    /// Every node can be greeted from now on.
    pub(crate) fn healed(&self) {
        let until = Instant::now() + GREETED + Duration::from_millis(rest_ms(max_lease_ms()));
        let forgot = |rest: &&mut Rest| matches!(rest, Rest::Forgot);
        self.all().iter_mut().filter(forgot).for_each(|rest| *rest = Rest::Until(until));
    }

    /// How long it takes at most until a majority votes, after a healing.
    pub(crate) fn majority_within(&self) -> Duration {
        let now = Instant::now();
        let mut left = self.all().map(|rest| match rest {
            Rest::Until(until) => until.saturating_duration_since(now),
            Rest::Votes | Rest::Forgot => Duration::ZERO,
        });
        left.sort_unstable();
        left[NODES / 2]
    }

    fn all(&self) -> MutexGuard<'_, [Rest; NODES]> {
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
    fn a_majority_votes_when_the_third_of_five_has_rested() {
        let rests = Rests::default();
        rests.forgot(0);
        rests.forgot(3);
        rests.healed();
        assert_eq!(rests.majority_within(), Duration::ZERO, "three remember");
        rests.forgot(1);
        rests.healed();
        let within = rests.majority_within();
        assert!(
            within > Duration::from_millis(rest_ms(max_lease_ms())) && within < Duration::from_secs(30),
            "{within:?}"
        );
    }
}
