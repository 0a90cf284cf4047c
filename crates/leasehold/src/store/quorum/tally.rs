//! Counts votes. Pure: ballots in, decisions out.
//!
//! A decision is made as soon as no missing ballot can change it, so a minority of dead or slow nodes costs no time.

use leasehold_spec::mark::Mark;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::node::{Said, Vote};
use leasehold_spec::{Contention, Holder, LostHow, Outcome, PublicId, Token, Was};

use super::attempts::Nodes;
use crate::error::ErrorKind;

/// Ends that differ by less count as one: a waiter re-checks a little late rather than twice.
const SAME_END_US: u64 = 100_000;

/// The ballot of one node.
#[derive(Clone, Debug)]
pub(super) enum Ballot {
    /// The node has not answered yet.
    Pending,
    /// The node has answered a request that was sent at this time on our clock.
    Cast { sent_us: u64, vote: Box<Vote> },
    /// The node has no vote.
    Abstained,
    /// The reply is an error, or there is none because the connection broke.
    Failed(ErrorKind, String),
    /// The node has not answered, and a later answer does not count.
    Silent,
}

/// The ballots of one question.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    ballots: Vec<Ballot>,
}

/// The result of a round for the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RoundResult {
    /// A majority has voted for the attempt.
    Won { token: Token, range: u64, until_us: u64 },
    /// Another round can win at once, with a larger token or a newer clock sample.
    Again,
    /// A majority answers, and others have its votes: a holder, a called waiter, or several competing attempts.
    Refused(Refusal),
    /// The queues are full.
    Full,
    /// Too few nodes vote.
    TooFew,
}

/// The details of a refused round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// One holder has a majority. Otherwise it is unknown when a round can win.
    pub(super) is_held: bool,
    /// A majority has called a waiter, or has voted for a called waiter: the lock is as good as held.
    pub(super) is_called: bool,
    /// When a majority of the nodes is free, on our clock.
    pub(super) free_us: u64,
}

/// The result of a renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RenewResult {
    /// A majority keeps the lease until then.
    Renewed { until_us: u64 },
    /// No majority can keep the lease any more.
    Lost(LostHow),
    /// The renewal was late at too many nodes. These nodes did nothing, so the client may renew again at once.
    Late,
    /// Too few nodes answer.
    TooFew,
}

/// The result of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReleaseResult {
    /// A majority has answered. Contains the strongest state that the attempt had at any of these nodes.
    Done(Was),
    /// Too few nodes answer.
    TooFew,
}

impl RoundResult {
    /// Returns the mark of a lost round.
    pub(super) fn lost_mark(&self) -> Mark {
        match self {
            Self::Refused(Refusal { is_held: true, .. }) => Mark::RoundRefused,
            Self::Refused(_) => Mark::RoundSplit,
            _ => Mark::RoundTooFew,
        }
    }
}

impl Tally {
    pub(super) fn new(nodes: usize) -> Self {
        Self { ballots: vec![Ballot::Pending; nodes] }
    }

    pub(super) fn majority(&self) -> usize {
        self.ballots.len() / 2 + 1
    }

    pub(super) fn accept(&mut self, node: usize, ballot: Ballot) {
        self.ballots[node] = ballot;
    }

    /// Counts every missing ballot as silent: the time is up.
    pub(super) fn close(&mut self) {
        for ballot in &mut self.ballots {
            if matches!(ballot, Ballot::Pending) {
                *ballot = Ballot::Silent;
            }
        }
    }

    pub(super) fn said(&self, node: usize) -> Option<&Said> {
        match &self.ballots[node] {
            Ballot::Cast { vote, .. } => Some(&vote.said),
            _ => None,
        }
    }

    /// Returns the nodes that have not refused. They may have voted for the attempt, or may do so later.
    pub(super) fn not_refused(&self) -> Vec<usize> {
        (0..self.ballots.len()).filter(|&node| !matches!(self.said(node), Some(Said::Refused { .. }))).collect()
    }

    /// Returns a token that a majority knows of: every later grant is above it, and no complete earlier grant is. A token
    /// that a single node knows may belong to a lost round, and be above the next grant.
    pub(super) fn passed(&self) -> Token {
        let known = |vote: Option<(u64, &Vote)>| match vote {
            // A filled node knew nothing of the grant, and now knows the token of this renewal.
            Some((_, vote)) if !matches!(vote.said, Said::Filled { .. }) => vote.highest,
            _ => Token::NONE,
        };
        let mut known: Vec<Token> = self.votes().map(known).collect();
        known.sort_unstable();
        known[self.majority() - 1]
    }

    pub(super) fn contention(&self) -> Contention {
        self.cast().map(|(_, vote)| vote.contention).max().unwrap_or_default()
    }

    /// Returns whether a node has called a waiter.
    pub(super) fn has_called(&self) -> bool {
        self.cast().any(|(_, vote)| vote.has_called)
    }

    /// Returns the errors with which nodes answered.
    pub(super) fn failed(&self) -> Vec<(ErrorKind, String)> {
        let failed = |ballot: &Ballot| match ballot {
            Ballot::Failed(kind, text) => Some((*kind, text.clone())),
            _ => None,
        };
        self.ballots.iter().filter_map(failed).collect()
    }

    pub(super) fn pending_nodes(&self) -> Vec<usize> {
        (0..self.ballots.len()).filter(|&node| matches!(self.ballots[node], Ballot::Pending)).collect()
    }

    /// Returns the holder that a majority of the inspected nodes shows.
    pub(super) fn shown(&self) -> Option<&Holder> {
        let is_same = |one: &Holder| self.shows(one) >= self.majority();
        self.holders().filter(|holder| is_same(holder)).max_by_key(|holder| holder.left_us)
    }

    /// Returns whether no missing answer can change the holder that [`Tally::shown`] returns.
    pub(super) fn shows_enough(&self) -> bool {
        let most = self.holders().map(|holder| self.shows(holder)).max().unwrap_or(0);
        self.answered() >= self.majority() && (most >= self.majority() || most + self.pending() < self.majority())
    }

    fn shows(&self, one: &Holder) -> usize {
        self.holders().filter(|other| (other.id, other.token) == (one.id, one.token)).count()
    }

    fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.cast().filter_map(|(_, vote)| match &vote.said {
            Said::Inspected(seen) => seen.holder(),
            _ => None,
        })
    }

    /// Returns whether a node has not answered yet, or not in time.
    pub(super) fn is_late(&self, node: usize) -> bool {
        matches!(self.ballots[node], Ballot::Pending | Ballot::Silent)
    }

    pub(super) fn answered(&self) -> usize {
        self.cast().count()
    }

    pub(super) fn has_silent(&self) -> bool {
        self.ballots.iter().any(|ballot| matches!(ballot, Ballot::Silent))
    }

    /// Returns whether too many nodes lack the vote for a majority to confirm it. (A late answer does not count.)
    pub(super) fn has_ended(&self) -> bool {
        let has_not = |said: &Said| matches!(said, Said::Below | Said::Far | Said::Refused { .. } | Said::Full);
        self.count(has_not) > self.ballots.len() - self.majority()
    }

    /// Returns whether no token can win, because every token is too far from the clocks of too many nodes.
    pub(super) fn is_far(&self) -> bool {
        self.count(|said| *said == Said::Far) > self.ballots.len() - self.majority()
    }

    /// Returns the answer of each node that has answered.
    pub(super) fn votes(&self) -> impl Iterator<Item = Option<(u64, &Vote)>> {
        self.ballots.iter().map(|ballot| match ballot {
            Ballot::Cast { sent_us, vote } => Some((*sent_us, &**vote)),
            _ => None,
        })
    }

    /// Returns the nodes that have voted for this token.
    pub(super) fn voters(&self, token: Token) -> Nodes {
        let is_voter =
            |node: &usize| matches!(self.said(*node), Some(Said::Granted { token: granted, .. }) if *granted == token);
        Nodes::of((0..self.ballots.len()).filter(is_voter))
    }

    /// Decides a round for this token. `None` while it is undecided.
    pub(super) fn round(&self, token: Token) -> Option<RoundResult> {
        let majority = self.majority();
        let mine = |said: &Said| matches!(said, Said::Granted { token: granted, .. } if *granted == token);
        let yes = self.count(mine);
        let full = self.count(|said| *said == Said::Full);
        let no = full + self.count(|said| matches!(said, Said::Refused { .. }));
        let again = self.cast().count() - yes - no;
        if yes >= majority {
            let range = self.cast().filter(|(_, vote)| mine(&vote.said)).filter_map(|(_, vote)| match vote.said {
                Said::Granted { range, .. } => Some(range),
                _ => None,
            });
            let (range, until_us) = (range.min().unwrap_or(1), self.kept_until(mine)?);
            return Some(RoundResult::Won { token, range, until_us });
        }
        let pending = self.pending();
        if yes + pending >= majority {
            return None;
        }
        if yes + again >= majority {
            return Some(RoundResult::Again);
        }
        if yes + again + pending >= majority {
            return None;
        }
        if full > self.ballots.len() - majority {
            return Some(RoundResult::Full);
        }
        if yes + again + no >= majority {
            return Some(RoundResult::Refused(self.refusal()));
        }
        (pending == 0).then_some(RoundResult::TooFew)
    }

    /// Decides a renewal. `None` while it is undecided.
    pub(super) fn renewal(&self) -> Option<RenewResult> {
        let majority = self.majority();
        let renewed = |said: &Said| matches!(said, Said::Renewed { .. });
        if self.count(renewed) >= majority {
            return self.kept_until(renewed).map(|until_us| RenewResult::Renewed { until_us });
        }
        // A node that this renewal filled did not keep the lease before.
        let lost = self.count(|said| matches!(said, Said::Lost { .. } | Said::Filled { .. } | Said::Refused { .. }));
        if lost > self.ballots.len() - majority {
            let is_revoked = self.count(|said| *said == Said::Lost { how: LostHow::Revoked }) > 0;
            return Some(RenewResult::Lost(if is_revoked { LostHow::Revoked } else { LostHow::NotHeld }));
        }
        if self.pending() > 0 {
            return None;
        }
        let late = self.count(|said| *said == Said::Late);
        Some(if self.count(renewed) + late >= majority && late > 0 { RenewResult::Late } else { RenewResult::TooFew })
    }

    /// Decides a release. `None` while it is undecided.
    pub(super) fn release(&self) -> Option<ReleaseResult> {
        let was = |wanted: Was| self.count(|said| *said == Said::GivenBack { was: wanted });
        let (granted, queued, absent) = (was(Was::Granted), was(Was::Queued), was(Was::Absent));
        if granted + queued + absent >= self.majority() {
            let most = if granted > 0 {
                Was::Granted
            } else if queued > 0 {
                Was::Queued
            } else {
                Was::Absent
            };
            return Some(ReleaseResult::Done(most));
        }
        (self.pending() == 0).then_some(ReleaseResult::TooFew)
    }

    /// Decides a revocation after the last answer. `None` if the effect is unknown.
    pub(super) fn revoked(&self) -> Option<Outcome> {
        let left = |said: &Said| if let Said::Revoking { left_us } = said { Some(*left_us) } else { None };
        let marked = || self.cast().filter_map(|(_, vote)| left(&vote.said));
        let not_held = self.count(|said| *said == Said::NotHeld);
        // The nodes without a mark are no majority, so no majority can keep the lease. Or a majority does not hold it any
        // more: one node had a mark and notified the holder, which released at the others before they were marked.
        if marked().count() > self.ballots.len() - self.majority() || not_held >= self.majority() {
            let left_us = marked().max();
            return Some(left_us.map_or(Outcome::NotHeld, |left_us| Outcome::Revoking { left_us }));
        }
        None
    }

    /// Returns the holder with a majority of the votes.
    pub(super) fn holder(&self) -> Option<PublicId> {
        self.most().filter(|(_, votes)| *votes >= self.majority()).map(|(holder, _)| holder)
    }

    /// Returns the holder with the most votes, and their number.
    fn most(&self) -> Option<(PublicId, usize)> {
        let holders = || self.cast().filter_map(|(_, vote)| holder(&vote.said));
        let votes = |one: PublicId| holders().filter(|other| *other == one).count();
        holders().map(|one| (one, votes(one))).max_by_key(|(_, votes)| *votes)
    }

    /// Accepts an answer that arrives after the decision. If there is a holder, and a majority is free clearly earlier than
    /// the answers before this one showed, returns the time at which a majority is free.
    pub(super) fn free_earlier(&mut self, node: usize, ballot: Ballot) -> Option<u64> {
        let before = self.refusal();
        self.accept(node, ballot);
        let now = self.refusal();
        let is_earlier = before.is_held && now.free_us + SAME_END_US < before.free_us && !is_on(Mutant::QKeepsFirstEnd);
        is_earlier.then_some(now.free_us)
    }

    fn refusal(&self) -> Refusal {
        // A node that is free, or has our vote, is free now. A node that has not answered does not count.
        let mut free: Vec<u64> = self
            .cast()
            .map(|(sent_us, vote)| match vote.said {
                Said::Refused { left_us, .. } => sent_us + left_us,
                _ => sent_us,
            })
            .collect();
        free.sort_unstable();
        let free_us = free.get(self.majority() - 1).copied().unwrap_or_default();
        let called = self.count(|said| matches!(said, Said::Refused { holder: None, .. }));
        let is_called = called > 0 && called + self.most().map_or(0, |(_, votes)| votes) >= self.majority();
        Refusal { is_held: self.holder().is_some(), is_called, free_us }
    }

    /// Returns until when a majority of these nodes keeps its votes. Each vote counts from before its request was sent.
    fn kept_until(&self, keeps: impl Fn(&Said) -> bool) -> Option<u64> {
        let end = |(sent_us, vote): (u64, &Vote)| match vote.said {
            Said::Granted { left_us, .. } | Said::Renewed { left_us } => Some(sent_us + left_us),
            _ => None,
        };
        let mut ends: Vec<u64> = self.cast().filter(|(_, vote)| keeps(&vote.said)).filter_map(end).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        ends.get(self.majority() - 1).copied()
    }

    fn pending(&self) -> usize {
        self.ballots.iter().filter(|ballot| matches!(ballot, Ballot::Pending)).count()
    }

    fn count(&self, is: impl Fn(&Said) -> bool) -> usize {
        self.cast().filter(|(_, vote)| is(&vote.said)).count()
    }

    fn cast(&self) -> impl Iterator<Item = (u64, &Vote)> {
        self.votes().flatten()
    }
}

fn holder(said: &Said) -> Option<PublicId> {
    match said {
        Said::Refused { holder, .. } => *holder,
        _ => None,
    }
}

#[cfg(test)]
#[path = "tally_tests.rs"]
mod tests;
