//! The attempts of a client that are not over: which nodes know of them, which hold a grant, and which wait.

use std::collections::HashMap;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::node::Wait;
use leasehold_spec::{Acquire, GrantId, Name, Token};

use crate::clock::margin_us;

/// The number of attempts from which on the client looks for ended ones.
const SWEEP_FROM: usize = 1_024;
/// The longest time after the end of a lease in which its session may still ask or renew.
const LATE_US: u64 = 10_000_000;

/// All attempts that are not over. Nodes must keep nothing of others.
#[derive(Default)]
pub(super) struct Attempts {
    attempts: HashMap<GrantId, Attempt>,
    /// The number of attempts that causes the next sweep. A session that gives up an attempt during an outage sends no
    /// message about it if the outage is longer than the lease.
    sweep_at: usize,
}

#[derive(Default)]
struct Attempt {
    held: Option<Held>,
    waiting: Option<Waiting>,
    /// The number of rounds that have begun.
    rounds: u32,
    /// The token of its latest round.
    proposed: Token,
    votes: VoteEnds,
    /// The time of its latest acquire or renewal.
    asked_us: u64,
    /// The nodes that it was sent to. No other node knows of it.
    asked: Nodes,
}

/// A set of nodes of a quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes(u16);

impl Nodes {
    /// The most nodes that a set can have.
    pub(super) const MOST: usize = u16::BITS as usize;
    pub(super) const ALL: Self = Self(u16::MAX);

    pub(super) fn of(nodes: impl Iterator<Item = usize>) -> Self {
        let mut set = Self::default();
        nodes.for_each(|node| set.add(node));
        set
    }

    pub(super) fn has(self, node: usize) -> bool {
        self.0 & 1 << node != 0
    }

    pub(super) fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(super) fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    /// Returns all other nodes.
    pub(super) fn others(self) -> Self {
        Self(!self.0)
    }

    fn add(&mut self, node: usize) {
        self.0 |= 1 << node;
    }
}

/// The end of each node's vote for a token, as far as is known, on our clock.
#[derive(Default)]
struct VoteEnds {
    token: Token,
    ends_us: Vec<u64>,
}

impl VoteEnds {
    /// Returns the time until which a majority of this many nodes keeps its votes.
    fn majority_us(&self, nodes: usize) -> u64 {
        let mut ends_us = self.ends_us.clone();
        ends_us.resize(nodes, 0);
        ends_us.sort_unstable();
        ends_us.get((nodes.max(1) - 1) / 2).copied().unwrap_or_default()
    }
}

/// The traces of an attempt at the nodes.
#[derive(Clone, Copy)]
pub(super) struct Traces {
    pub(super) asked: Nodes,
    /// Its place in the queues, if it waits.
    pub(super) wait: Option<Wait>,
}

impl Traces {
    /// An attempt that is over does not wait. The nodes that it was sent to are forgotten.
    const OVER: Self = Self { asked: Nodes::ALL, wait: None };
}

/// A grant, with all that a filled node needs to know.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) token: Token,
    pub(super) range: u64,
    pub(super) label: String,
}

/// The effect of a round that a majority has voted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Win {
    /// The attempt holds the lock.
    Held,
    /// The attempt is over.
    Over,
    /// A later round of the attempt has begun, which may have replaced these votes or given them back.
    Overtaken,
}

impl Attempts {
    pub(super) fn begin(&mut self, id: GrantId, now_us: u64) {
        self.attempt(id, now_us);
    }

    fn attempt(&mut self, id: GrantId, now_us: u64) -> &mut Attempt {
        let attempt = self.attempts.entry(id).or_default();
        attempt.asked_us = now_us;
        attempt
    }

    pub(super) fn end(&mut self, id: &GrantId) {
        self.attempts.remove(id);
    }

    pub(super) fn is_live(&self, id: &GrantId) -> bool {
        self.attempts.contains_key(id)
    }

    /// Removes attempts that were neither asked for nor renewed for longer than the longest lease, if a sweep is due. By
    /// then a grant is renewed or lost, and a waiter has asked again or is new when it asks.
    pub(super) fn sweep(&mut self, longest_us: u64, now_us: u64) {
        if self.attempts.len() < self.sweep_at.max(SWEEP_FROM) {
            return;
        }
        self.attempts.retain(|_, attempt| attempt.asked_us + longest_us + LATE_US > now_us);
        self.attempts.shrink_to(SWEEP_FROM);
        self.sweep_at = 2 * self.attempts.len();
    }

    /// Begins a round of an attempt, and returns its number. `None` if the attempt is over.
    pub(super) fn begin_round(&mut self, id: &GrantId, now_us: u64) -> Option<u32> {
        let attempt = self.attempts.get_mut(id)?;
        attempt.asked_us = now_us;
        attempt.rounds += 1;
        Some(attempt.rounds)
    }

    /// Returns the token of the attempt's next round: this one, or one above all that the attempt has proposed. The clock
    /// can have been set back, and a node tells an earlier round from a later one only by the token.
    pub(super) fn propose(&mut self, id: &GrantId, token: Token) -> Token {
        let Some(attempt) = self.attempts.get_mut(id) else { return token };
        let is_first = attempt.proposed == Token::NONE || is_on(Mutant::QProposesAgain);
        attempt.proposed = if is_first { token } else { token.max(attempt.proposed.plus(1)) };
        attempt.proposed
    }

    /// Notes that an attempt will be sent to these nodes. The caller notes it before it sends.
    pub(super) fn note_asked(&mut self, id: &GrantId, nodes: impl Iterator<Item = usize>) {
        if let Some(attempt) = self.attempts.get_mut(id) {
            nodes.for_each(|node| attempt.asked.add(node));
        }
    }

    pub(super) fn traces(&self, id: &GrantId) -> Traces {
        let Some(attempt) = self.attempts.get(id) else { return Traces::OVER };
        Traces { asked: attempt.asked, wait: attempt.waiting.as_ref().map(|waiting| waiting.wait) }
    }

    /// Records that this round has won, unless the attempt is over or a later round has begun. If a runtime stands still,
    /// the count of its round is out of date by then. A round that confirms the held token always wins.
    #[must_use]
    pub(super) fn hold(&mut self, id: &GrantId, round: u32, held: Held) -> Win {
        let Some(attempt) = self.attempts.get_mut(id) else { return Win::Over };
        let is_confirmed = attempt.held.as_ref().is_some_and(|known| known.token == held.token);
        if attempt.rounds != round && !is_confirmed {
            return Win::Overtaken;
        }
        (attempt.held, attempt.waiting) = (Some(held), None);
        Win::Held
    }

    pub(super) fn held(&self, id: &GrantId) -> Option<&Held> {
        self.attempts.get(id)?.held.as_ref()
    }

    /// Returns whether the attempt holds another token than this one (P3).
    pub(super) fn holds_another(&self, id: &GrantId, token: Token) -> bool {
        self.held(id).is_some_and(|held| held.token != token)
    }

    /// Notes a renewal, and returns the grant. `None` if the attempt does not hold this token.
    pub(super) fn renew(&mut self, id: &GrantId, token: Token, now_us: u64) -> Option<&Held> {
        let attempt = self.attempts.get_mut(id)?;
        let held = attempt.held.as_ref().filter(|held| held.token == token)?;
        attempt.asked_us = now_us;
        Some(held)
    }

    /// Ends the grant with this token. The attempt goes on.
    pub(super) fn lapse(&mut self, id: &GrantId, token: Token) {
        if let Some(attempt) = self.attempts.get_mut(id) {
            attempt.held.take_if(|held| held.token == token);
        }
    }

    /// Notes until when a node keeps its vote for this token, which is held or may be soon.
    pub(super) fn note_vote(&mut self, id: &GrantId, token: Token, node: usize, until_us: u64) {
        let Some(attempt) = self.attempts.get_mut(id) else { return };
        if attempt.votes.token != token {
            if attempt.held.as_ref().map_or(token < attempt.votes.token, |held| held.token != token) {
                return;
            }
            attempt.votes = VoteEnds { token, ends_us: Vec::new() };
        }
        let ends_us = &mut attempt.votes.ends_us;
        ends_us.resize(ends_us.len().max(node + 1), 0);
        ends_us[node] = until_us;
    }

    /// Returns the nodes that keep their votes for this token.
    pub(super) fn voters(&self, id: &GrantId, token: Token, now_us: u64) -> Nodes {
        let votes = self.attempts.get(id).map(|attempt| &attempt.votes).filter(|votes| votes.token == token);
        let ends_us = votes.map_or(&[][..], |votes| &votes.ends_us);
        Nodes::of((0..).zip(ends_us).filter(|(_, end_us)| **end_us > now_us).map(|(node, _)| node))
    }

    /// Limits the validity `until_us` that a round or a renewal has counted for a lease of this length. The count may be
    /// out of date: between two answers to one question, a clock may have been seen to be set forward. Then the majority
    /// depends on an older vote. The age of that vote, and so the error of its clock, can be nearly a whole lease.
    pub(super) fn bound(&self, id: &GrantId, token: Token, nodes: usize, until_us: u64, lease_ms: u64) -> u64 {
        let votes = self.attempts.get(id).map(|attempt| &attempt.votes).filter(|votes| votes.token == token);
        match votes.map(|votes| votes.majority_us(nodes)) {
            Some(known_us) if known_us < until_us => known_us.saturating_sub(margin_us(lease_ms * 1000)),
            _ => until_us,
        }
    }

    /// Shortens the votes of a node whose clock was set forward. Returns the grants that end earlier, with their new ends.
    pub(super) fn shorten(&mut self, node: usize, nodes: usize, by_us: u64) -> Vec<(GrantId, Token, u64)> {
        let shorter = |(id, attempt): (&GrantId, &mut Attempt)| {
            let votes = &mut attempt.votes;
            let before_us = votes.majority_us(nodes);
            let end_us = votes.ends_us.get_mut(node)?;
            *end_us = end_us.saturating_sub(by_us);
            let until_us = votes.majority_us(nodes);
            let is_held = attempt.held.as_ref().is_some_and(|held| held.token == votes.token);
            (is_held && until_us < before_us).then_some((*id, votes.token, until_us))
        };
        self.attempts.iter_mut().filter_map(shorter).collect()
    }

    /// Begins rounds of an attempt that waits if it loses. They end by `until_us`. Returns whether it waited before.
    pub(super) fn wait(
        &mut self,
        name: &Name,
        acquire: &Acquire,
        wait: Wait,
        (now_us, until_us): (u64, u64),
        link: u64,
    ) -> (bool, Series) {
        let attempt = self.attempt(acquire.id, now_us);
        let before = attempt.waiting.take();
        let (waiting, series) = Waiting::begin_first(before.as_ref(), name, acquire, wait, (until_us, link));
        attempt.waiting = Some(waiting);
        (before.is_some(), series)
    }

    pub(super) fn waiting(&mut self, id: &GrantId) -> Option<&mut Waiting> {
        self.attempts.get_mut(id)?.waiting.as_mut()
    }

    /// Ends all rounds of a link that closes. Another link need not wait for them.
    pub(super) fn end_rounds_of(&mut self, link: u64) {
        let waiting = self.attempts.values_mut().filter_map(|attempt| attempt.waiting.as_mut());
        waiting.for_each(|waiting| waiting.end_of_link(link));
    }
}

/// An attempt that waits in the queues of the nodes until it is called.
pub(super) struct Waiting {
    name: Name,
    acquire: Acquire,
    pub(super) wait: Wait,
    in_flight: Option<Series>,
    /// The nodes that have called the attempt since its last round.
    callers: Vec<usize>,
    /// The rounds that the attempt has lost since a round that a holder refused.
    pub(super) splits: u32,
    /// The number of the latest alarm. Earlier alarms have no effect.
    pub(super) alarm: u64,
}

/// Rounds of one attempt, one after the other, by one link.
#[derive(Clone, Copy)]
pub(super) struct Series {
    number: u64,
    link: u64,
    /// The rounds are over by then, unless the runtime that polls them stands still. Nobody waits for them after that.
    until_us: u64,
}

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// It changes nothing.
    Known,
    /// It is the first: a majority should follow.
    First,
    /// It completes a majority.
    Majority,
}

impl Waiting {
    /// Begins rounds that end by `until_us`. `before` is the entry of the same attempt, if it waits already.
    pub(super) fn begin_first(
        before: Option<&Self>,
        name: &Name,
        acquire: &Acquire,
        wait: Wait,
        (until_us, link): (u64, u64),
    ) -> (Self, Series) {
        let (splits, alarm) = before.map(|before| (before.splits, before.alarm + 1)).unwrap_or((0, 1));
        let series = Series { number: alarm, link, until_us };
        let (name, acquire, callers, in_flight) = (name.clone(), acquire.clone(), Vec::new(), Some(series));
        (Self { name, acquire, wait, in_flight, callers, splits, alarm }, series)
    }

    /// Begins more rounds, unless some are in flight. `within_us` returns how long rounds with that lease may take.
    pub(super) fn begin_next(
        &mut self,
        now_us: u64,
        within_us: impl FnOnce(u64) -> u64,
        link: u64,
    ) -> Option<(Name, Acquire, Wait, Series)> {
        if self.is_asking(now_us) {
            return None;
        }
        self.callers.clear();
        self.alarm += 1;
        let series = Series { number: self.alarm, link, until_us: now_us + within_us(self.acquire.lease_ms) };
        self.in_flight = Some(series);
        Some((self.name.clone(), self.acquire.clone(), self.wait, series))
    }

    pub(super) fn is_asking(&self, now_us: u64) -> bool {
        self.in_flight.is_some_and(|series| now_us < series.until_us)
    }

    pub(super) fn end(&mut self, series: Series) {
        self.in_flight.take_if(|in_flight| in_flight.number == series.number);
    }

    pub(super) fn end_of_link(&mut self, link: u64) {
        self.in_flight.take_if(|in_flight| in_flight.link == link);
    }

    pub(super) fn call(&mut self, node: usize, majority: usize) -> Call {
        if self.callers.contains(&node) {
            return Call::Known;
        }
        self.callers.push(node);
        match self.callers.len() {
            n if n >= majority => Call::Majority,
            1 => Call::First,
            _ => Call::Known,
        }
    }

    /// Returns how many nodes have called the attempt since its last round.
    pub(super) fn calls(&self) -> usize {
        self.callers.len()
    }
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
