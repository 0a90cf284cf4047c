//! An operator who begins the quorum: from then on no node rests, whatever it has forgotten.

use super::cluster::Cluster;
use super::node::{EPOCH, Node};
use super::scenes::{Begins, Scene};
use super::words::Act;

/// How far an operator has come who begins the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operator {
    Away,
    /// Connected to all nodes since this tick: none of them has forgotten anything since.
    Connected(u8),
    Done,
}

impl Scene {
    /// Returns what the operator may do next. Beginning a quorum none of whose nodes rests would change nothing.
    pub(super) fn operator_act(&self, cluster: &Cluster) -> Option<Act> {
        let rests = |node: &Node| node.rests_until > cluster.tick;
        let timing = self.timing.filter(|_| cluster.nodes.iter().any(rests))?;
        let may_begin_at = match (self.begins, cluster.operator) {
            (Begins::Never, _) | (_, Operator::Done) => return None,
            (Begins::Unasked, _) => return Some(Act::Begin),
            (Begins::Asked, _) => cluster.tick,
            (Begins::Settled | Begins::Passed, Operator::Away) => return Some(Act::Prepare),
            // A request that was sent before the operator connected is too late by then.
            (Begins::Settled | Begins::Passed, Operator::Connected(since)) => since + timing.lease,
        };
        let highest = cluster.nodes.iter().map(|node| node.highest).max().unwrap_or(0);
        let has_passed = |node: &Node| EPOCH + cluster.tick + node.ahead > highest + timing.window;
        let is_passed = self.begins != Begins::Passed || cluster.nodes.iter().all(has_passed);
        let is_free = cluster.nodes.iter().all(|node| node.holder.is_none());
        (may_begin_at <= cluster.tick && is_free && is_passed).then_some(Act::Begin)
    }
}
