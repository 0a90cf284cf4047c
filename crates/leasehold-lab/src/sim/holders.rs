//! The holders and waiters that a server knows, and the waiters that a revocation must notify (P10).

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_spec::limits::{REVOKE_NOTIFIED, SETTLE_STEPS};
use leasehold_spec::{Answer, Grant, GrantId, GrantState, Name, Op, Outcome, Resource, Was};

use super::exec::Pid;
use super::follow::{self, Held, Waiter, Why};
use super::net::Net;
use super::stage::Sim;

impl Net {
    /// Returns the waiters of a name that have an inbox, in order.
    pub(super) fn waiters(&self, name: &str) -> Vec<(GrantId, Pid)> {
        let node = &self.nodes[self.primary];
        let record = self.record(self.primary, name);
        let queue = record.into_iter().flat_map(|record| &record.queue);
        let attached = queue.filter(|entry| node.inboxes.contains_key(&entry.id.session));
        attached.filter_map(|entry| Some((entry.id, *self.pids.get(&entry.id.session)?))).collect()
    }

    /// Returns those of them that have asked since the grant was made, and so know its end. A token is the time of its
    /// grant.
    pub(super) fn waiters_that_know(&self, held: &Held) -> Vec<(GrantId, Pid)> {
        let queue = self.record(self.primary, &held.name).into_iter().flat_map(|record| &record.queue);
        let know: BTreeSet<GrantId> = queue.filter(|entry| entry.seen_us >= held.token).map(|entry| entry.id).collect();
        self.waiters(&held.name).into_iter().filter(|(id, _)| know.contains(id)).collect()
    }

    /// Returns the waiters that a server has to notify when a lease of this name is revoked (P10). The server examines
    /// the first entries of the queue, and notifies the first two sessions that could be granted the lease.
    pub(super) fn next_waiters(&self, node: usize, name: &str, now_us: u64) -> Vec<(GrantId, Pid)> {
        let clock_us = self.nodes[node].clock.at_us(now_us);
        let mut next: Vec<(GrantId, Pid)> = Vec::new();
        let Some(record) = self.record(node, name) else { return next };
        for entry in record.queue.iter().take(SETTLE_STEPS) {
            let session = entry.id.session;
            let seen_us = if entry.seen_us > clock_us { 0 } else { entry.seen_us };
            let has_lapsed = record.lapses.iter().any(|lapse| lapse.session == session && seen_us < lapse.at_us);
            let is_over = entry.limit_us.is_some_and(|limit_us| limit_us <= clock_us);
            let is_attached = self.nodes[node].inboxes.contains_key(&session);
            let is_known = next.iter().any(|(id, _)| id.session == session);
            if let Some(pid) = self.pids.get(&session).filter(|_| is_attached && !has_lapsed && !is_over && !is_known) {
                next.push((entry.id, *pid));
            }
        }
        next.truncate(REVOKE_NOTIFIED);
        next
    }

    /// Returns the grant of a name if it is revoked and has not ended.
    pub(super) fn revoked(&self, node: usize, name: &str, now_us: u64) -> Option<Held> {
        let grant = grant_of_mutex(self.record(node, name)?).filter(|grant| grant.state == GrantState::Revoked)?;
        let left_us = grant.left_us(self.nodes[node].clock.at_us(now_us));
        let (name, token, length_us) = (name.to_owned(), grant.token.get(), grant.length_ms * 1000);
        (left_us > 0).then_some(Held { name, token, left_us, length_us })
    }

    /// Returns the leases that a process holds.
    pub(super) fn held_by(&self, pid: Pid, now_us: u64) -> Vec<Held> {
        let node = &self.nodes[self.primary];
        let clock_us = node.clock.at_us(now_us);
        let held = node.records.iter().filter_map(|(name, record)| {
            let its = |grant: &&Grant| grant.is_held() && self.pids.get(&grant.id.session) == Some(&pid);
            let grant = grant_of_mutex(record).filter(its)?;
            let (name, token, left_us) = (name.as_str().to_owned(), grant.token.get(), grant.left_us(clock_us));
            Some(Held { name, token, left_us, length_us: grant.length_ms * 1000 })
        });
        held.filter(|held| held.left_us > 0).collect()
    }

    fn record(&self, node: usize, name: &str) -> Option<&Resource> {
        self.nodes[node].records.iter().find(|(known, _)| known.as_str() == name).map(|(_, record)| record)
    }
}

/// Returns the grant of a mutex. The end of one grant of a pool need not let the next waiter in.
fn grant_of_mutex(record: &Resource) -> Option<&Grant> {
    record.grants.sole().filter(|_| !record.kind.is_pool())
}

/// A revocation, and each leave of a waiter while a grant is marked, have to notify the waiters that are next (P10).
pub(super) fn judge_revocation(sim: &Arc<Sim>, net: &Net, node: usize, name: &Name, op: &Op, answer: &Answer) {
    let (name, now_us) = (name.as_str(), sim.exec.now_us());
    let is_marked = matches!((op, &answer.outcome), (Op::Revoke { .. }, Outcome::Revoking { .. }));
    let has_left = matches!(answer.outcome, Outcome::Left { was: Was::Queued });
    let Some(held) = net.revoked(node, name, now_us).filter(|_| is_marked || has_left) else { return };
    let next = net.next_waiters(node, name, now_us);
    follow::notified(sim, &held, &next);
    if is_marked {
        follow::begins(sim, held, Why::Revocation, next.into_iter().map(|waiter| Waiter::new(sim, waiter)).collect());
    }
}
