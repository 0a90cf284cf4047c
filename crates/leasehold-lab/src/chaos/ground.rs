//! What the clients lock on: a Redis, a quorum of five, or a directory of this host.

use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Handle;

use super::excuse::{ClockLog, Excuses};
use super::fleet::CLIENTS;
use super::node::Node;
use super::options::Store;
use super::plan::Epoch;
use super::quorum::{Quorum, Rests};
use super::redis::Redis;

/// What the clients lock on.
pub(crate) enum Ground {
    Redis(Redis),
    Quorum(Quorum),
    Directory(TempDir),
}

/// What it comes to when a server has lost what it had granted.
#[derive(Clone)]
pub(crate) enum Losses {
    /// Leases and the order of tokens, of one Redis: excused for a while.
    Excused(Excuses, ClockLog),
    /// Nothing but time: a node of a quorum rests.
    Rested(Rests),
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

    /// By which way each client comes.
    pub(crate) fn urls(&self) -> Vec<String> {
        match self {
            Self::Redis(redis) => redis.urls(),
            Self::Quorum(quorum) => quorum.urls(),
            Self::Directory(_) => vec![self.calm_url(); CLIENTS],
        }
    }

    /// By which way the lab itself looks.
    pub(crate) fn calm_url(&self) -> String {
        match self {
            Self::Redis(redis) => redis.calm_url(),
            Self::Quorum(quorum) => quorum.calm_url(),
            Self::Directory(directory) => format!("file:{}", directory.path().join("locks").display()),
        }
    }

    /// The servers that there are.
    pub(crate) fn nodes(&self) -> &[Node] {
        match self {
            Self::Redis(redis) => std::slice::from_ref(&redis.node),
            Self::Quorum(quorum) => &quorum.nodes,
            Self::Directory(_) => &[],
        }
    }

    /// For faults of a server, which are planned for nothing else.
    pub(crate) fn node(&mut self, at: usize) -> &mut Node {
        match self {
            Self::Redis(redis) => &mut redis.node,
            Self::Quorum(quorum) => &mut quorum.nodes[at],
            Self::Directory(_) => unreachable!("faults of a server are planned where there is one"),
        }
    }

    /// For faults of a Redis alone.
    pub(crate) fn redis(&mut self) -> &mut Redis {
        match self {
            Self::Redis(redis) => redis,
            _ => unreachable!("clocks are set and replicas promoted where there is one Redis"),
        }
    }

    pub(crate) fn losses(&self, excuses: &Excuses) -> Losses {
        match self {
            Self::Redis(redis) => Losses::Excused(excuses.clone(), redis.clock.clone()),
            Self::Quorum(quorum) => Losses::Rested(quorum.rests.clone()),
            Self::Directory(_) => unreachable!("a directory loses nothing"),
        }
    }

    /// Mends whatever an end did not.
    pub(crate) fn heal(&mut self) {
        match self {
            Self::Redis(redis) => redis.node.heal(),
            Self::Quorum(quorum) => {
                quorum.nodes.iter_mut().for_each(Node::heal);
                quorum.rests.healed();
            }
            Self::Directory(_) => {}
        }
    }

    /// How long after a healing it is at most until anybody can be granted anything.
    pub(crate) fn rest(&self) -> Duration {
        match self {
            Self::Quorum(quorum) => quorum.rests.majority_within(),
            Self::Redis(_) | Self::Directory(_) => Duration::ZERO,
        }
    }
}

impl Losses {
    /// Grants were lost at some time since `from_us`.
    pub(crate) fn lost(&self, at: usize, from_us: u64, why: &'static str) {
        match self {
            Self::Excused(excuses, clock) => excuses.lost(from_us, clock, why),
            Self::Rested(rests) => rests.forgot(at),
        }
    }
}
