//! An operator who begins the quorum: from then on no node is in quarantine, whatever it has forgotten.

use super::cluster::Cluster;
use super::node::{EPOCH, Node};
use super::scenes::{Begins, Scene};
use super::words::Act;

/// The progress of an operator who begins the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operator {
    Away,
    /// Connected to all nodes since this tick: none of them has forgotten anything since.
    Connected(u8),
    Done,
}

impl Scene {
    /// Returns the next possible event of the operator. If no node is in quarantine, beginning the quorum would change
    /// nothing.
    pub(super) fn operator_act(&self, cluster: &Cluster) -> Option<Act> {
        let is_quarantined = |node: &Node| node.quarantine_until > cluster.tick;
        let timing = self.timing.filter(|_| cluster.nodes.iter().any(is_quarantined))?;
        let may_begin_at = match (self.begins, cluster.operator) {
            (Begins::Never, _) | (_, Operator::Done) => return None,
            (Begins::Unasked, _) => return Some(Act::Begin),
            (Begins::Asked, _) => cluster.tick,
            (Begins::Settled | Begins::Passed, Operator::Away) => return Some(Act::Prepare),
            // By then a request that was sent before the operator connected is too late.
            (Begins::Settled | Begins::Passed, Operator::Connected(since)) => since + timing.lease,
        };
        let highest = cluster.nodes.iter().map(|node| node.highest).max().unwrap_or(0);
        let has_passed = |node: &Node| EPOCH + cluster.tick + node.ahead > highest + timing.window;
        let is_passed = self.begins != Begins::Passed || cluster.nodes.iter().all(has_passed);
        let is_free = cluster.nodes.iter().all(|node| node.holder.is_none());
        (may_begin_at <= cluster.tick && is_free && is_passed).then_some(Act::Begin)
    }
}
