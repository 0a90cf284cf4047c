//! The nodes' knowledge of holders and waiters.

use std::collections::BTreeMap;

use leasehold_spec::limits::{REVOKE_NOTIFIED, SETTLE_STEPS, TOKEN_WINDOW_MS};
use leasehold_spec::node::{Granted, Record};
use leasehold_spec::{GrantId, GrantState, Name, Token};

use super::super::exec::Pid;
use super::super::follow::Held;
use super::net::Net;
use super::voter::Voter;

impl Net {
    /// Returns the waiters of a name that are in the queues of most nodes, and have an inbox there.
    pub(in super::super) fn waiters(&self, name: &str) -> Vec<(GrantId, Pid)> {
        self.waiters_at(name, self.nodes.len() / 2 + 1)
    }

    /// Returns the waiters of a name that are in the queues of this many nodes, and have an inbox there.
    pub(in super::super) fn waiters_at(&self, name: &str, least: usize) -> Vec<(GrantId, Pid)> {
        let mut at: BTreeMap<GrantId, usize> = BTreeMap::new();
        for voter in &self.nodes {
            let queue = record(&voter.records, name).into_iter().flat_map(|record| record.queue.keys());
            for (_, id) in queue.filter(|(_, id)| voter.inboxes.contains_key(&id.session)) {
                *at.entry(*id).or_default() += 1;
            }
        }
        let enough = at.into_iter().filter(|(_, count)| *count >= least);
        enough.filter_map(|(id, _)| Some((id, *self.pids.get(&id.session)?))).collect()
    }

    /// Returns the waiters that a node has to notify when its vote is revoked (P10). The node examines the first
    /// entries of its queue, and notifies the first two sessions that have an inbox.
    pub(super) fn next_waiters(&self, node: usize, name: &str) -> Vec<(GrantId, Pid)> {
        let mut next: Vec<(GrantId, Pid)> = Vec::new();
        let voter = &self.nodes[node];
        let queue = record(&voter.records, name).into_iter().flat_map(|record| record.queue.keys());
        let first = queue.take(SETTLE_STEPS);
        for (_, id) in first.filter(|(_, id)| voter.inboxes.contains_key(&id.session)) {
            let is_known = next.iter().any(|(known, _)| known.session == id.session);
            if let Some(pid) = self.pids.get(&id.session).filter(|_| !is_known) {
                next.push((*id, *pid));
            }
        }
        next.truncate(REVOKE_NOTIFIED);
        next
    }

    /// Returns the vote of a node if it is revoked and has not ended.
    pub(super) fn revoked(&self, node: usize, name: &str, now_us: u64) -> Option<Held> {
        let voter = &self.nodes[node];
        let grant = record(&voter.records, name)?.grant.as_ref();
        let grant = grant.filter(|grant| grant.state == GrantState::Revoked)?;
        let left_us = grant.left_us(voter.clock.at_us(now_us));
        let (name, token, length_us) = (name.to_owned(), grant.token.get(), grant.length_ms * 1000);
        (left_us > 0).then_some(Held { name, token, left_us, length_us })
    }

    /// Returns when a majority votes for this name again. A node whose clock was set back votes once its clock is
    /// within the window of the last token. A node that has voted for a client that is dead now votes when that vote ends.
    pub(in super::super) fn votes_from_us(&self, name: &str, now_us: u64, is_dead: impl Fn(Pid) -> bool) -> u64 {
        let records = self.nodes.iter().filter_map(|voter| record(&voter.records, name));
        let highest_us = records.map(|record| record.highest.get()).max().unwrap_or(0);
        let since = |voter: &Voter| {
            let (at_us, behind_us) = (voter.clock.at_us(now_us), highest_us.saturating_sub(TOKEN_WINDOW_MS * 1000));
            let vote = record(&voter.records, name).and_then(|record| record.grant.as_ref());
            let is_of_dead = |vote: &&Granted| self.pids.get(&vote.id.session).is_some_and(|pid| is_dead(*pid));
            let ends_us = now_us + vote.filter(is_of_dead).map_or(0, |vote| vote.left_us(at_us));
            ends_us.max((now_us + behind_us).saturating_sub(at_us))
        };
        let mut from_us: Vec<u64> = self.nodes.iter().map(since).collect();
        from_us.sort_unstable();
        from_us[self.nodes.len() / 2]
    }

    /// Returns the leases that a process holds at most nodes, for as long as the last of them keeps it.
    pub(in super::super) fn held_by(&self, pid: Pid, now_us: u64) -> Vec<Held> {
        let mut held: BTreeMap<(&Name, Token), (usize, u64, u64)> = BTreeMap::new();
        for voter in &self.nodes {
            for (name, record) in &voter.records {
                let is_its = |grant: &&Granted| grant.is_held() && self.pids.get(&grant.id.session) == Some(&pid);
                let Some(grant) = record.grant.as_ref().filter(is_its) else { continue };
                let left_us = grant.left_us(voter.clock.at_us(now_us));
                let (count, longest_us, length_us) = held.entry((name, grant.token)).or_default();
                *count += usize::from(left_us > 0);
                (*longest_us, *length_us) = (left_us.max(*longest_us), (grant.length_ms * 1000).max(*length_us));
            }
        }
        let most = held.into_iter().filter(|(_, (count, ..))| *count > self.nodes.len() / 2);
        let as_held = |((name, token), (_, left_us, length_us)): ((&Name, Token), _)| Held {
            name: name.as_str().to_owned(),
            token: token.get(),
            left_us,
            length_us,
        };
        most.map(as_held).collect()
    }
}

fn record<'a>(records: &'a BTreeMap<Name, Record>, name: &str) -> Option<&'a Record> {
    records.iter().find(|(known, _)| known.as_str() == name).map(|(_, record)| record)
}
