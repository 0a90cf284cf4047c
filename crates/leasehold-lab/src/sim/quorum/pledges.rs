//! The pledges on which holders rely: until when each node has said that it keeps a vote, and until when it really
//! does.
//!
//! A holder relies on the remaining time that a majority has reported. A node keeps its pledge by its own clock; a node
//! that forgot the pledge is in quarantine for as long. So two clients can hold only if nodes end votes early: their
//! clock was set forward, or the grant was revoked. This module computes how early, and only the time between what a
//! majority keeps and what a majority has reported is excused.

use std::collections::BTreeMap;

use leasehold_spec::{GrantId, Name, Token};

/// One node's pledge for one grant, in true time.
#[derive(Clone, Copy, Debug, Default)]
struct Pledge {
    /// Until when the node has said that it keeps the vote.
    said_us: u64,
    /// Until when it keeps the vote, or is in quarantine.
    keeps_us: u64,
}

/// A time in which a holder may be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) name: Name,
    /// The token of the grant.
    pub(super) token: Token,
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

pub(super) struct Pledges {
    nodes: usize,
    of: BTreeMap<(Name, GrantId, Token), Vec<Pledge>>,
}

impl Pledges {
    pub(super) const fn new(nodes: usize) -> Self {
        Self { nodes, of: BTreeMap::new() }
    }

    /// Records that a node has said that it keeps the vote until then. The pledge of another node can be broken
    /// already.
    pub(super) fn record(
        &mut self,
        node: usize,
        grant: (Name, GrantId, Token),
        until_us: u64,
        now_us: u64,
    ) -> Option<Broken> {
        let (of, majority) = ((grant.0.clone(), grant.2), self.nodes / 2 + 1);
        let pledges = self.pledges(grant);
        let pledge = &mut pledges[node];
        (pledge.said_us, pledge.keeps_us) = (pledge.said_us.max(until_us), until_us);
        gap(of, pledges, majority, now_us)
    }

    /// Records that a node keeps the vote until then, but has not said so to a client that relies on it.
    pub(super) fn keeps(&mut self, node: usize, grant: (Name, GrantId, Token), until_us: u64) {
        self.pledges(grant)[node].keeps_us = until_us;
    }

    /// Records that a node's clock was set forward by this much.
    pub(super) fn jumps(&mut self, node: usize, by_us: u64, now_us: u64) -> Vec<Broken> {
        self.forget(now_us);
        let majority = self.nodes / 2 + 1;
        let mut broken = Vec::new();
        for ((name, _, token), pledges) in &mut self.of {
            let pledge = &mut pledges[node];
            if pledge.keeps_us > now_us {
                pledge.keeps_us = pledge.keeps_us.saturating_sub(by_us).max(now_us);
                broken.extend(gap((name.clone(), *token), pledges, majority, now_us));
            }
        }
        broken
    }

    /// Records that a node ends the vote then, whatever it has said.
    pub(super) fn ends(
        &mut self,
        node: usize,
        grant: (Name, GrantId, Token),
        at_us: u64,
        now_us: u64,
    ) -> Option<Broken> {
        let (of, majority) = ((grant.0.clone(), grant.2), self.nodes / 2 + 1);
        let pledges = self.pledges(grant);
        pledges[node].keeps_us = pledges[node].keeps_us.min(at_us);
        gap(of, pledges, majority, now_us)
    }

    fn pledges(&mut self, grant: (Name, GrantId, Token)) -> &mut Vec<Pledge> {
        let nodes = self.nodes;
        self.of.entry(grant).or_insert_with(|| vec![Pledge::default(); nodes])
    }

    fn forget(&mut self, now_us: u64) {
        self.of.retain(|_, pledges| pledges.iter().any(|pledge| pledge.said_us > now_us));
    }
}

fn gap((name, token): (Name, Token), pledges: &[Pledge], majority: usize, now_us: u64) -> Option<Broken> {
    let nth = |of: fn(&Pledge) -> u64| {
        let mut ends: Vec<u64> = pledges.iter().map(of).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends[majority - 1]
    };
    let (from_us, to_us) = (nth(|pledge| pledge.keeps_us).max(now_us), nth(|pledge| pledge.said_us));
    (from_us < to_us).then_some(Broken { name, token, from_us, to_us })
}
