//! A node as one client knows it, over all connections: its clock, its round-trip time, its latest status, and the
//! votes that are to be given back there.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_spec::limits::{NOT_AFTER_MAX_US, TOKEN_WINDOW_MS};
use leasehold_spec::node::{Abstention, Request, Wait};
use leasehold_spec::{GrantId, Name, Token};
use tokio::sync::Notify;

use super::node::Node;
use crate::clock::{Sample, ServerClock};

/// The most votes that are remembered for a node, to be given back when it is there.
const PENDING_RETURNS: usize = 1024;

pub(super) struct Member {
    pub(super) node: Arc<dyn Node>,
    pub(super) returns: PendingReturns,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    clock: ServerClock,
    run_id: String,
    rtt_us: u64,
    status: NodeStatus,
    /// Whether the node was in use before: it has voted, or its run ID has changed, or its marker says so. A node without
    /// these signs is new, or was emptied before this client met it.
    was_used: bool,
}

/// The latest known status of a node.
#[derive(Clone, Debug, Default)]
pub(super) enum NodeStatus {
    /// It has not replied yet.
    #[default]
    Unknown,
    /// It replies, and votes.
    Votes,
    /// It replies, and has no vote. With the time of that reply.
    Abstains(Abstention, u64),
    /// It replies, and its clock differs too much from the others for a vote.
    ClockFar,
    /// It is connected, and does not reply.
    Silent,
    /// It is unreachable, or refuses the connection.
    Unreachable(String),
}

impl Member {
    pub(super) fn new(node: Arc<dyn Node>) -> Self {
        Self { node, returns: PendingReturns::default(), known: Mutex::default() }
    }

    /// Notes the run ID of a new connection. Times of two runs are never compared.
    pub(super) fn note_run_id(&self, run_id: &str) {
        let mut known = self.known();
        if known.run_id != run_id {
            known.was_used |= !known.run_id.is_empty();
            (known.clock, known.run_id) = (ServerClock::default(), run_id.to_owned());
        }
    }

    pub(super) fn run_id(&self) -> String {
        self.known().run_id.clone()
    }

    /// Takes a sample of the node's clock. Returns by how much it was set forward: leases there end as much earlier.
    pub(super) fn sample(&self, run_id: &str, sample: Sample) -> Option<u64> {
        let mut known = self.known();
        if known.run_id != run_id {
            return None;
        }
        let trip_us = sample.heard_us.saturating_sub(sample.sent_us).min(NOT_AFTER_MAX_US);
        known.rtt_us = if known.rtt_us == 0 { trip_us } else { (7 * known.rtt_us + trip_us) / 8 };
        known.clock.observe(sample)
    }

    /// Returns by how much the node's clock was set forward since it made this reply, as far as is known.
    pub(super) fn set_forward_since(&self, run_id: &str, sample: &Sample) -> u64 {
        let known = self.known();
        if known.run_id == run_id { known.clock.set_forward_since(sample) } else { 0 }
    }

    pub(super) fn rtt_us(&self) -> u64 {
        self.known().rtt_us
    }

    /// Returns the time on the node's clock at a time on our clock. `None` without a recent sample.
    pub(super) fn time_at(&self, local_us: u64, now_us: u64) -> Option<u64> {
        self.known().clock.server_at(local_us, now_us)
    }

    /// Returns the earliest time on our clock at which the node's clock can have shown this.
    pub(super) fn local_of(&self, node_us: u64, now_us: u64) -> Option<u64> {
        self.known().clock.local_of(node_us, now_us)
    }

    pub(super) fn set_status(&self, status: NodeStatus) {
        let mut known = self.known();
        known.was_used |= matches!(status, NodeStatus::Votes);
        known.status = status;
    }

    pub(super) fn status(&self) -> NodeStatus {
        self.known().status.clone()
    }

    /// Notes that the marker of the node shows an earlier use.
    pub(super) fn note_used(&self) {
        self.known().was_used = true;
    }

    /// Returns whether the node is known to have been in use. Only a node that was not in use can be new.
    pub(super) fn was_used(&self) -> bool {
        self.known().was_used
    }

    /// Describes the status, for errors and reports.
    pub(super) fn describe(&self, now_us: u64) -> String {
        let known = self.known();
        known.status.describe(known.was_used, now_us)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NodeStatus {
    /// Returns the status of a node that replies, and whose clock shows `node_us` at our time `now_us`.
    pub(super) fn of(quarantine_until_us: u64, node_us: u64, now_us: u64) -> Self {
        match quarantine_until_us.saturating_sub(node_us) {
            0 => Self::Votes,
            left_us => Self::Abstains(Abstention::Resting { left_us }, now_us),
        }
    }

    /// Returns the rest of the quarantine, if the node is in quarantine.
    pub(super) fn quarantine_us(&self, now_us: u64) -> Option<u64> {
        let Self::Abstains(Abstention::Resting { left_us }, replied_us) = self else { return None };
        Some(left_us.saturating_sub(now_us.saturating_sub(*replied_us))).filter(|left_us| *left_us > 0)
    }

    fn describe(&self, was_used: bool, now_us: u64) -> String {
        match self {
            Self::Unknown => "is being connected".into(),
            Self::Votes => "votes".into(),
            Self::Abstains(Abstention::Resting { .. }, _) => {
                let left_s = self.quarantine_us(now_us).unwrap_or(0).div_ceil(1_000_000);
                let why = if was_used { "was restarted or emptied" } else { "is new, or was emptied" };
                format!("is in quarantine for {left_s} s more: it {why}, so it may have forgotten leases")
            }
            Self::Abstains(Abstention::Unmarked, _) => "was emptied, and is being initialized".into(),
            Self::ClockFar => {
                let window_s = TOKEN_WINDOW_MS / 1000;
                format!("has a clock that differs by more than {window_s} s from most others: correct it")
            }
            Self::Silent => "does not reply".into(),
            Self::Unreachable(why) => format!("is away: {why}"),
        }
    }

    /// Returns whether the node votes, or has been in quarantine for long enough to vote now.
    pub(super) fn may_vote(&self, now_us: u64) -> bool {
        match self {
            Self::Votes => true,
            Self::Abstains(Abstention::Resting { .. }, _) => self.quarantine_us(now_us).is_none(),
            _ => false,
        }
    }
}

/// A vote to give back at a node.
#[derive(Clone, Debug)]
pub(super) struct PendingReturn {
    pub(super) name: Name,
    pub(super) id: GrantId,
    /// The last token to give back. The attempt may have asked for a larger one since.
    pub(super) upto: Token,
    /// The vote has ended at the node by then.
    pub(super) until_us: u64,
    /// The end of the cool-down, on this client's clock. 0: no cool-down (P23).
    pub(super) cools_until_us: u64,
}

impl PendingReturn {
    /// Returns the request to send to the node now. A cool-down that is over by now is a release.
    pub(super) fn request(&self, wait: Option<Wait>, now_us: u64) -> Request {
        let (id, upto, left_us) = (self.id, self.upto, self.cools_until_us.saturating_sub(now_us));
        match left_us {
            0 => Request::GiveBack { id, upto, wait },
            _ => Request::CoolDown { id, upto, for_ms: left_us.div_ceil(1000) },
        }
    }
}

#[derive(Default)]
pub(super) struct PendingReturns {
    all: Mutex<VecDeque<PendingReturn>>,
    added: Notify,
}

impl PendingReturns {
    /// Adds a return, or merges it with an earlier one of the same attempt: the larger token and the later times win.
    pub(super) fn add(&self, mut added: PendingReturn, now_us: u64) {
        let mut all = self.all();
        all.retain(|old| {
            let is_same = old.id == added.id;
            if is_same {
                added.upto = added.upto.max(old.upto);
                added.until_us = added.until_us.max(old.until_us);
                added.cools_until_us = added.cools_until_us.max(old.cools_until_us);
            }
            !is_same && old.until_us > now_us
        });
        if all.len() >= PENDING_RETURNS {
            all.pop_front();
        }
        all.push_back(added);
        drop(all);
        self.added.notify_one();
    }

    /// Waits until a return is added.
    pub(super) async fn added(&self) {
        self.added.notified().await;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Removes all of them, and returns those whose votes have not ended by themselves.
    pub(super) fn take(&self, now_us: u64) -> Vec<PendingReturn> {
        self.all().drain(..).filter(|pending| pending.until_us > now_us).collect()
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<PendingReturn>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use leasehold_spec::SessionId;

    use super::*;

    /// A late vote goes back while the cool-down of the same attempt is pending. The node must still get the cool-down
    /// (P23).
    #[test]
    fn two_returns_of_one_attempt_are_merged() {
        let returns = PendingReturns::default();
        let id = |counter| GrantId { session: SessionId(7), counter, nonce: 0 };
        let returned = |counter, upto, until_us, cools_until_us| PendingReturn {
            name: Name::new("a").expect("a valid name"),
            id: id(counter),
            upto: Token::new(upto).expect("a valid token"),
            until_us,
            cools_until_us,
        };
        for (upto, until_us, cools_until_us) in [(5, 900, 800), (9, 700, 0), (7, 600, 600)] {
            returns.add(returned(1, upto, until_us, cools_until_us), 100);
        }
        returns.add(returned(2, 1, 300, 0), 100);
        let taken = returns.take(400);
        assert!(returns.is_empty());
        let seen = |pending: &PendingReturn| (pending.id, pending.upto.get(), pending.until_us, pending.cools_until_us);
        assert_eq!(taken.iter().map(seen).collect::<Vec<_>>(), [(id(1), 9, 900, 800)], "that of 2 has ended");
    }
}
