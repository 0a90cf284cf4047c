//! Counting votes. Pure: what was heard of whom, and what follows from it.
//!
//! The decision falls as soon as nothing that is still to be heard can change it: a node that is dead, or slow, costs
//! nothing while a majority answers.

use leasehold_spec::mark::Mark;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::node::{Said, Vote};
use leasehold_spec::{Contention, Holder, LostHow, Outcome, PublicId, Token, Was};

use crate::error::ErrorKind;

/// Ends that are this close to each other count as one: a waiter re-checks a little late rather than twice.
const SAME_END_US: u64 = 100_000;

/// What is known of one node's vote.
#[derive(Clone, Debug)]
pub(super) enum Ballot {
    /// Nothing yet.
    Pending,
    /// It answered what was asked at this moment of our clock.
    Cast { sent_us: u64, vote: Box<Vote> },
    /// It has no vote.
    Abstained,
    /// There was an answer, and it is an error.
    Failed(ErrorKind, String),
    /// There was no answer, and there will be none that counts.
    Silent,
}

/// The ballots of one question.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    ballots: Vec<Ballot>,
}

/// What a round for the lease came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// A majority voted for it.
    Won { token: Token, range: u64, until_us: u64 },
    /// It can be won with a larger token, or another clock: at once.
    Again,
    /// A majority answers, and it is somebody else's: held, or about to be, or split among several.
    Refused(Refusal),
    /// The queues are full.
    Full,
    /// Too few nodes vote.
    TooFew,
}

/// How a round was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Somebody has a majority. Otherwise nobody knows when the next round is better than this one.
    pub(super) is_held: bool,
    /// A majority has called somebody, or has one's vote who was called: it is as good as held.
    pub(super) is_called: bool,
    /// When so many nodes are free that there is a majority, on our clock.
    pub(super) free_us: u64,
}

/// What a renewal came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// A majority keeps it until then.
    Renewed { until_us: u64 },
    /// No majority can keep it any more.
    Lost(LostHow),
    /// It came too late at so many that there is no majority: nothing was done there, and it may be asked again at once.
    Late,
    /// Too few nodes answer.
    TooFew,
}

/// What giving back came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A majority has heard it: this is the most that it was at any of them.
    Done(Was),
    /// Too few nodes answer.
    TooFew,
}

impl Asked {
    /// The path that a lost round is.
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

    pub(super) fn hear(&mut self, node: usize, ballot: Ballot) {
        self.ballots[node] = ballot;
    }

    /// Time is up: who has said nothing has no vote.
    pub(super) fn close(&mut self) {
        for ballot in &mut self.ballots {
            if matches!(ballot, Ballot::Pending) {
                *ballot = Ballot::Silent;
            }
        }
    }

    /// What a node said.
    pub(super) fn said(&self, node: usize) -> Option<&Said> {
        match &self.ballots[node] {
            Ballot::Cast { vote, .. } => Some(&vote.said),
            _ => None,
        }
    }

    /// The nodes that have not refused: a vote of theirs may be ours, or become so.
    pub(super) fn not_refused(&self) -> Vec<usize> {
        (0..self.ballots.len()).filter(|&node| !matches!(self.said(node), Some(Said::Refused { .. }))).collect()
    }

    /// A token that every later grant is above, and no complete earlier one: a majority knows of that, or of a larger one.
    /// What a single node knows of can be a lost round's, and above the next grant.
    pub(super) fn passed(&self) -> Token {
        let known = |vote: Option<(u64, &Vote)>| match vote {
            // Who was filled knew nothing of it, and knows its own token now.
            Some((_, vote)) if !matches!(vote.said, Said::Filled { .. }) => vote.highest,
            _ => Token::NONE,
        };
        let mut known: Vec<Token> = self.votes().map(known).collect();
        known.sort_unstable();
        known[self.majority() - 1]
    }

    /// Whether others wait.
    pub(super) fn contention(&self) -> Contention {
        self.cast().map(|(_, vote)| vote.contention).max().unwrap_or_default()
    }

    /// Whether a node has called somebody.
    pub(super) fn has_called(&self) -> bool {
        self.cast().any(|(_, vote)| vote.has_called)
    }

    /// The nodes that answered with an error, and what they said.
    pub(super) fn failed(&self) -> Vec<(ErrorKind, String)> {
        let failed = |ballot: &Ballot| match ballot {
            Ballot::Failed(kind, text) => Some((*kind, text.clone())),
            _ => None,
        };
        self.ballots.iter().filter_map(failed).collect()
    }

    /// The nodes of which nothing was heard yet.
    pub(super) fn pending_nodes(&self) -> Vec<usize> {
        (0..self.ballots.len()).filter(|&node| matches!(self.ballots[node], Ballot::Pending)).collect()
    }

    /// Who holds, by what a majority shows to who looks.
    pub(super) fn shown(&self) -> Option<&Holder> {
        let is_same = |one: &Holder| self.shows(one) >= self.majority();
        self.holders().filter(|holder| is_same(holder)).max_by_key(|holder| holder.left_us)
    }

    /// Whether what is still to come says nothing new of who holds.
    pub(super) fn shows_enough(&self) -> bool {
        let most = self.holders().map(|holder| self.shows(holder)).max().unwrap_or(0);
        self.answered() >= self.majority() && (most >= self.majority() || most + self.pending() < self.majority())
    }

    fn shows(&self, one: &Holder) -> usize {
        self.holders().filter(|other| (other.id, other.token) == (one.id, one.token)).count()
    }

    fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.cast().filter_map(|(_, vote)| match &vote.said {
            Said::Inspected(seen) => seen.holder.as_ref(),
            _ => None,
        })
    }

    /// Whether a node has not answered in time, or not yet.
    pub(super) fn is_late(&self, node: usize) -> bool {
        matches!(self.ballots[node], Ballot::Pending | Ballot::Silent)
    }

    /// How many have answered.
    pub(super) fn answered(&self) -> usize {
        self.cast().count()
    }

    /// Whether somebody was only silent.
    pub(super) fn has_silent(&self) -> bool {
        self.ballots.iter().any(|ballot| matches!(ballot, Ballot::Silent))
    }

    /// Whether so many do not have the vote that they are asked to confirm that no majority has. (Late says nothing.)
    pub(super) fn has_ended(&self) -> bool {
        let has_not = |said: &Said| matches!(said, Said::Below | Said::Far | Said::Refused { .. } | Said::Full);
        self.count(has_not) > self.ballots.len() - self.majority()
    }

    /// Whether so many find every token too far from their clocks that there is no majority for any.
    pub(super) fn is_far(&self) -> bool {
        self.count(|said| *said == Said::Far) > self.ballots.len() - self.majority()
    }

    /// What each node answered, where it did.
    pub(super) fn votes(&self) -> impl Iterator<Item = Option<(u64, &Vote)>> {
        self.ballots.iter().map(|ballot| match ballot {
            Ballot::Cast { sent_us, vote } => Some((*sent_us, &**vote)),
            _ => None,
        })
    }

    /// Counts the votes for this token. `None`: it is still open.
    pub(super) fn asked(&self, token: Token) -> Option<Asked> {
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
            return Some(Asked::Won { token, range, until_us });
        }
        let pending = self.pending();
        if yes + pending >= majority {
            return None;
        }
        if yes + again >= majority {
            return Some(Asked::Again);
        }
        if yes + again + pending >= majority {
            return None;
        }
        if full > self.ballots.len() - majority {
            return Some(Asked::Full);
        }
        if yes + again + no >= majority {
            return Some(Asked::Refused(self.refusal()));
        }
        (pending == 0).then_some(Asked::TooFew)
    }

    /// What became of a renewal. `None`: it is still open.
    pub(super) fn kept(&self) -> Option<Kept> {
        let majority = self.majority();
        let renewed = |said: &Said| matches!(said, Said::Renewed { .. });
        if self.count(renewed) >= majority {
            return self.kept_until(renewed).map(|until_us| Kept::Renewed { until_us });
        }
        // A node that is filled only now did not keep it.
        let lost = self.count(|said| matches!(said, Said::Lost { .. } | Said::Filled { .. } | Said::Refused { .. }));
        if lost > self.ballots.len() - majority {
            let is_revoked = self.count(|said| *said == Said::Lost { how: LostHow::Revoked }) > 0;
            return Some(Kept::Lost(if is_revoked { LostHow::Revoked } else { LostHow::NotHeld }));
        }
        if self.pending() > 0 {
            return None;
        }
        let late = self.count(|said| *said == Said::Late);
        Some(if self.count(renewed) + late >= majority && late > 0 { Kept::Late } else { Kept::TooFew })
    }

    /// What became of giving back. `None`: it is still open.
    pub(super) fn ended(&self) -> Option<Ended> {
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
            return Some(Ended::Done(most));
        }
        (self.pending() == 0).then_some(Ended::TooFew)
    }

    /// What became of a revocation, behind the last answer. `None`: nobody knows.
    pub(super) fn revoked(&self) -> Option<Outcome> {
        let left = |said: &Said| if let Said::Revoking { left_us } = said { Some(*left_us) } else { None };
        let marked = || self.cast().filter_map(|(_, vote)| left(&vote.said));
        let not_held = self.count(|said| *said == Said::NotHeld);
        // So many are marked that the others are no majority: none can keep it any more. Or it is gone at a majority
        // already, and with a mark its holder was told by one node, and gave back at the others before they were.
        if marked().count() > self.ballots.len() - self.majority() || not_held >= self.majority() {
            let left_us = marked().max();
            return Some(left_us.map_or(Outcome::NotHeld, |left_us| Outcome::Revoking { left_us }));
        }
        None
    }

    /// Who has a majority, if anybody.
    pub(super) fn holder(&self) -> Option<PublicId> {
        self.most().filter(|(_, votes)| *votes >= self.majority()).map(|(holder, _)| holder)
    }

    /// Who has the most votes, and how many.
    fn most(&self) -> Option<(PublicId, usize)> {
        let holders = || self.cast().filter_map(|(_, vote)| holder(&vote.said));
        let votes = |one: PublicId| holders().filter(|other| *other == one).count();
        holders().map(|one| (one, votes(one))).max_by_key(|(_, votes)| *votes)
    }

    /// Takes an answer that comes after the decision. If somebody holds, and a majority is free clearly earlier than the
    /// answers before it said, returns that time.
    pub(super) fn free_earlier(&mut self, node: usize, ballot: Ballot) -> Option<u64> {
        let before = self.refusal();
        self.hear(node, ballot);
        let now = self.refusal();
        let is_earlier = before.is_held && now.free_us + SAME_END_US < before.free_us && !is_on(Mutant::QKeepsFirstEnd);
        is_earlier.then_some(now.free_us)
    }

    fn refusal(&self) -> Refusal {
        // What is free, or ours, is free now; of what is not heard of nothing is known.
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

    /// Until when a majority of those keeps what it said to be left, each counted from before it was asked.
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
#[path = "round_tests.rs"]
mod tests;
