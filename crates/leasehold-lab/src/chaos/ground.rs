//! The store that the clients use: a Redis, a quorum of five, or a directory of this host.

use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Handle;

use super::excuse::{ClockLog, Excuses};
use super::fleet::CLIENTS;
use super::node::Node;
use super::options::Store;
use super::plan::Epoch;
use super::quorum::{Quarantines, Quorum};
use super::redis::Redis;

/// The store that the clients use.
pub(crate) enum Ground {
    Redis(Redis),
    Quorum(Quorum),
    Directory(TempDir),
}

/// The effect of a server's loss of its grants.
#[derive(Clone)]
pub(crate) enum Losses {
    /// One Redis loses leases and the order of tokens, which is excused for a while.
    Excused(Excuses, ClockLog),
    /// A quorum loses only time: the node is in quarantine.
    Quarantined(Quarantines),
}

impl Ground {
    pub(crate) fn start(store: Store, epoch: Epoch, runtime: &Handle) -> Self {
        match store {
            Store::Redis => Self::Redis(Redis::start(epoch)),
            Store::Quorum => {
                let quorum = Quorum::start(epoch);
                let begun = runtime.block_on(leasehold::quorum::begin(&quorum.calm_url()));
                begun.expect("all nodes are there");
                Self::Quorum(quorum)
            }
            Store::File => {
                let directory = tempfile::Builder::new().prefix("leasehold-chaos-store-").tempdir();
                Self::Directory(directory.expect("a temporary directory"))
            }
        }
    }

    /// Returns the URL of each client.
    pub(crate) fn urls(&self) -> Vec<String> {
        match self {
            Self::Redis(redis) => redis.urls(),
            Self::Quorum(quorum) => quorum.urls(),
            Self::Directory(_) => vec![self.calm_url(); CLIENTS],
        }
    }

    /// Returns the URL for the lab's own checks.
    pub(crate) fn calm_url(&self) -> String {
        match self {
            Self::Redis(redis) => redis.calm_url(),
            Self::Quorum(quorum) => quorum.calm_url(),
            Self::Directory(directory) => format!("file:{}", directory.path().join("locks").display()),
        }
    }

    /// Returns the servers of the store.
    pub(crate) fn nodes(&self) -> &[Node] {
        match self {
            Self::Redis(redis) => std::slice::from_ref(&redis.node),
            Self::Quorum(quorum) => &quorum.nodes,
            Self::Directory(_) => &[],
        }
    }

    /// Returns a server, for faults that strike servers.
    pub(crate) fn node(&mut self, at: usize) -> &mut Node {
        match self {
            Self::Redis(redis) => &mut redis.node,
            Self::Quorum(quorum) => &mut quorum.nodes[at],
            Self::Directory(_) => unreachable!("faults of a server are planned where there is one"),
        }
    }

    /// Returns the Redis, for faults that strike only a single Redis.
    pub(crate) fn redis(&mut self) -> &mut Redis {
        match self {
            Self::Redis(redis) => redis,
            _ => unreachable!("clocks are set and replicas promoted where there is one Redis"),
        }
    }

    pub(crate) fn losses(&self, excuses: &Excuses) -> Losses {
        match self {
            Self::Redis(redis) => Losses::Excused(excuses.clone(), redis.clock.clone()),
            Self::Quorum(quorum) => Losses::Quarantined(quorum.quarantines.clone()),
            Self::Directory(_) => unreachable!("a directory loses nothing"),
        }
    }

    /// Repairs everything that the end of a fault did not repair.
    pub(crate) fn heal(&mut self) {
        match self {
            Self::Redis(redis) => redis.node.heal(),
            Self::Quorum(quorum) => {
                quorum.nodes.iter_mut().for_each(Node::heal);
                quorum.quarantines.healed();
            }
            Self::Directory(_) => {}
        }
    }

    /// Returns the longest time after a repair until the store can grant anything.
    pub(crate) fn quarantine(&self) -> Duration {
        match self {
            Self::Quorum(quorum) => quorum.quarantines.majority_within(),
            Self::Redis(_) | Self::Directory(_) => Duration::ZERO,
        }
    }
}

impl Losses {
    /// Records that grants were lost at some time since `from_us`.
    pub(crate) fn lost(&self, at: usize, from_us: u64, why: &'static str) {
        match self {
            Self::Excused(excuses, clock) => excuses.lost(from_us, clock, why),
            Self::Quarantined(quarantines) => quarantines.forgot(at),
        }
    }
}
