//! What a client of a quorum remembers of names: the tokens that it was told, what it holds, and who waits.

use std::collections::HashMap;

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::node::Wait;
use leasehold_spec::{Acquire, GrantId, Name, Token};

use crate::clock::margin_us;

#[derive(Default)]
pub(super) struct Names {
    /// The largest token of a name that was heard of, where it is ahead of the nodes' clocks.
    seen: HashMap<Name, Token>,
    /// Those that are asked for, wait or hold: nothing is to be left of any other.
    attempts: HashMap<GrantId, Attempt>,
    /// With so many attempts it is looked whether some are over without a word: their session gave them up in an outage
    /// that was longer than their leases, and told nobody, as nobody was there.
    look_at: usize,
}

/// An attempt that is not over.
#[derive(Default)]
struct Attempt {
    held: Option<Held>,
    waiting: Option<Waiting>,
    /// How many rounds it has begun.
    rounds: u32,
    /// The token of its latest round.
    proposed: Token,
    kept: Kept,
    /// When it was last asked for or renewed.
    asked_us: u64,
    /// Where: there is nothing of it at any other node.
    asked: Nodes,
}

/// Some of the nodes of a quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes(u16);

impl Nodes {
    /// How many there can be.
    pub(super) const MOST: usize = u16::BITS as usize;
    pub(super) const ALL: Self = Self(u16::MAX);

    pub(super) fn has(self, node: usize) -> bool {
        self.0 & 1 << node != 0
    }

    fn add(&mut self, node: usize) {
        self.0 |= 1 << node;
    }
}

/// Until when each node keeps its vote for a token, as far as is known, on our clock.
#[derive(Default)]
struct Kept {
    token: Token,
    ends_us: Vec<u64>,
}

impl Kept {
    /// Until when a majority of so many does.
    fn until_us(&self, nodes: usize) -> u64 {
        let mut ends_us = self.ends_us.clone();
        ends_us.resize(nodes, 0);
        ends_us.sort_unstable();
        ends_us.get((nodes.max(1) - 1) / 2).copied().unwrap_or_default()
    }
}

/// What nodes can have of an attempt.
#[derive(Clone, Copy)]
pub(super) struct Traces {
    /// Only these nodes can have something of it.
    pub(super) asked: Nodes,
    /// The place at which it waits, if it waits.
    pub(super) wait: Option<Wait>,
}

impl Traces {
    /// An attempt that is over waits nowhere. Which nodes were asked for it is forgotten.
    const OVER: Self = Self { asked: Nodes::ALL, wait: None };
}

/// A grant: what a node needs to know that is filled.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) token: Token,
    pub(super) range: u64,
    pub(super) label: String,
}

/// An attempt that waits until it is called.
pub(super) struct Waiting {
    name: Name,
    acquire: Acquire,
    wait: Wait,
    /// Its rounds that are under way.
    asking: Option<Turn>,
    /// The nodes that have called it since its last round.
    called: Vec<usize>,
    /// How many of its rounds were lost since it was last refused by somebody who holds.
    pub(super) splits: u32,
    /// The number of its latest alarm: earlier ones do not ring any more.
    pub(super) alarm: u64,
}

/// Rounds of an attempt, one behind the other, by one link.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    number: u64,
    /// The number of that link.
    link: u64,
    /// By then they are over, unless the runtime that polls them stands still. Others need not wait for that.
    until_us: u64,
}

/// What becomes of a round that a majority has voted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Winning {
    /// Its attempt holds.
    Held,
    /// Its attempt is over.
    Over,
    /// Another round of its attempt has begun since, and its votes may have been replaced or given back by that.
    Overtaken,
}

/// What a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Nothing new.
    Known,
    /// The first node calls: a majority is to follow.
    First,
    /// A majority calls.
    Majority,
}

impl Names {
    /// The largest token that a name is known to have.
    pub(super) fn seen(&self, name: &Name) -> Token {
        self.seen.get(name).copied().unwrap_or(Token::NONE)
    }

    /// Takes note of a token, unless the nodes' clocks, which show `now_us`, are ahead of it anyway.
    pub(super) fn see(&mut self, name: &Name, token: Token, now_us: u64) {
        if token.get() < now_us {
            return;
        }
        if self.seen.len() >= SEEN {
            self.seen.retain(|_, seen| seen.get() >= now_us);
        }
        if self.seen.len() >= SEEN {
            return; // It costs a round more.
        }
        let seen = self.seen.entry(name.clone()).or_insert(token);
        *seen = token.max(*seen);
    }

    /// An attempt is asked for.
    pub(super) fn begin(&mut self, id: GrantId, now_us: u64) {
        self.attempt(id, now_us);
    }

    fn attempt(&mut self, id: GrantId, now_us: u64) -> &mut Attempt {
        let attempt = self.attempts.entry(id).or_default();
        attempt.asked_us = now_us;
        attempt
    }

    /// Forgets attempts of which nothing was heard for longer than the longest lease, if it is time to look for some. What
    /// is held is renewed earlier, or is over; what waits asks earlier, or is a new one when it asks again.
    pub(super) fn forget(&mut self, longest_us: u64, now_us: u64) {
        if self.attempts.len() < self.look_at.max(LOOK_AT) {
            return;
        }
        self.attempts.retain(|_, attempt| attempt.asked_us + longest_us + LATE_US > now_us);
        self.attempts.shrink_to(LOOK_AT);
        self.look_at = 2 * self.attempts.len();
    }

    /// A round of an attempt begins. Answers which one it is; `None` if the attempt is over.
    pub(super) fn begin_round(&mut self, id: &GrantId, now_us: u64) -> Option<u32> {
        let attempt = self.attempts.get_mut(id)?;
        attempt.asked_us = now_us;
        attempt.rounds += 1;
        Some(attempt.rounds)
    }

    /// The token of an attempt's next round: this one, or one above all that it has proposed. The clock can have been set
    /// back, and what gives back an earlier round tells it from a later one by nothing else.
    pub(super) fn propose(&mut self, id: &GrantId, token: Token) -> Token {
        let Some(attempt) = self.attempts.get_mut(id) else { return token };
        let is_first = attempt.proposed == Token::NONE || is_on(Mutant::QProposesAgain);
        attempt.proposed = if is_first { token } else { token.max(attempt.proposed.plus(1)) };
        attempt.proposed
    }

    /// These nodes are about to be asked for an attempt, or to be told of it. To be said before they are.
    pub(super) fn ask_at(&mut self, id: &GrantId, nodes: impl Iterator<Item = usize>) {
        if let Some(attempt) = self.attempts.get_mut(id) {
            nodes.for_each(|node| attempt.asked.add(node));
        }
    }

    /// Returns what nodes can have of an attempt.
    pub(super) fn traces(&self, id: &GrantId) -> Traces {
        let Some(attempt) = self.attempts.get(id) else { return Traces::OVER };
        Traces { asked: attempt.asked, wait: attempt.waiting.as_ref().map(|waiting| waiting.wait) }
    }

    /// Records that this round has won. It has not if the attempt is over, or if a later round has begun: then the runtime
    /// of the earlier round stood still, and its count is out of date. A round that confirms the token that is held wins.
    #[must_use]
    pub(super) fn hold(&mut self, id: &GrantId, round: u32, held: Held) -> Winning {
        let Some(attempt) = self.attempts.get_mut(id) else { return Winning::Over };
        let is_confirmed = attempt.held.as_ref().is_some_and(|known| known.token == held.token);
        if attempt.rounds != round && !is_confirmed {
            return Winning::Overtaken;
        }
        (attempt.held, attempt.waiting) = (Some(held), None);
        Winning::Held
    }

    pub(super) fn held(&self, id: &GrantId) -> Option<&Held> {
        self.attempts.get(id)?.held.as_ref()
    }

    /// What is held by this token is renewed.
    pub(super) fn renew(&mut self, id: &GrantId, token: Token, now_us: u64) -> Option<&Held> {
        let attempt = self.attempts.get_mut(id)?;
        let held = attempt.held.as_ref().filter(|held| held.token == token)?;
        attempt.asked_us = now_us;
        Some(held)
    }

    /// A node keeps its vote for this token until then: of what is held, or is about to be.
    pub(super) fn keeps(&mut self, id: &GrantId, token: Token, node: usize, until_us: u64) {
        let Some(attempt) = self.attempts.get_mut(id) else { return };
        if attempt.kept.token != token {
            if attempt.held.as_ref().map_or(token < attempt.kept.token, |held| held.token != token) {
                return;
            }
            attempt.kept = Kept { token, ends_us: Vec::new() };
        }
        let ends_us = &mut attempt.kept.ends_us;
        ends_us.resize(ends_us.len().max(node + 1), 0);
        ends_us[node] = until_us;
    }

    /// Until when a majority keeps its votes for this token, as far as is known.
    fn kept_until(&self, id: &GrantId, token: Token, nodes: usize) -> Option<u64> {
        let kept = self.attempts.get(id).map(|attempt| &attempt.kept).filter(|kept| kept.token == token)?;
        Some(kept.until_us(nodes))
    }

    /// What is left of `until_us`, which a round or a renewal has counted for a lease of this length. That may be out of
    /// date when it is decided: a clock can have been seen to be set forward between two answers of one question. Then the
    /// majority rests on an older vote, which may be nearly as old as its lease, and so may be what its clock has lost.
    pub(super) fn bound(&self, id: &GrantId, token: Token, nodes: usize, until_us: u64, lease_ms: u64) -> u64 {
        match self.kept_until(id, token, nodes) {
            Some(known_us) if known_us < until_us => known_us.saturating_sub(margin_us(lease_ms * 1000)),
            _ => until_us,
        }
    }

    /// A clock was set forward, at one node of so many. Answers what a majority keeps for less time by that, and until
    /// when.
    pub(super) fn jump(&mut self, node: usize, nodes: usize, by_us: u64) -> Vec<(GrantId, Token, u64)> {
        let shorter = |(id, attempt): (&GrantId, &mut Attempt)| {
            let kept = &mut attempt.kept;
            let before_us = kept.until_us(nodes);
            let end_us = kept.ends_us.get_mut(node)?;
            *end_us = end_us.saturating_sub(by_us);
            let until_us = kept.until_us(nodes);
            let is_held = attempt.held.as_ref().is_some_and(|held| held.token == kept.token);
            (is_held && until_us < before_us).then_some((*id, kept.token, until_us))
        };
        self.attempts.iter_mut().filter_map(shorter).collect()
    }

    /// What an attempt held by this token has ended.
    pub(super) fn lapse(&mut self, id: &GrantId, token: Token) {
        if let Some(attempt) = self.attempts.get_mut(id) {
            attempt.held.take_if(|held| held.token == token);
        }
    }

    /// Whether an attempt is not over.
    pub(super) fn is_live(&self, id: &GrantId) -> bool {
        self.attempts.contains_key(id)
    }

    /// The attempt is over.
    pub(super) fn end(&mut self, id: &GrantId) {
        self.attempts.remove(id);
    }

    /// A link is given up, and with it its rounds: whoever asks by another link does not wait for them.
    pub(super) fn give_up(&mut self, link: u64) {
        for waiting in self.attempts.values_mut().filter_map(|attempt| attempt.waiting.as_mut()) {
            waiting.asking.take_if(|turn| turn.link == link);
        }
    }

    /// Rounds begin of an attempt that waits if they are lost. They are over by `until_us`. Answers whether it waited
    /// before.
    pub(super) fn wait(
        &mut self,
        name: &Name,
        acquire: &Acquire,
        wait: Wait,
        (now_us, until_us): (u64, u64),
        link: u64,
    ) -> (bool, Turn) {
        let attempt = self.attempt(acquire.id, now_us);
        let before = attempt.waiting.as_ref().map(|waiting| (waiting.splits, waiting.alarm));
        let (splits, alarm) = before.unwrap_or_default();
        let (name, acquire, called) = (name.clone(), acquire.clone(), Vec::new());
        let (alarm, turn) = (alarm + 1, Turn { number: alarm + 1, link, until_us });
        attempt.waiting = Some(Waiting { name, acquire, wait, asking: Some(turn), called, splits, alarm });
        (before.is_some(), turn)
    }

    pub(super) fn waiting(&mut self, id: &GrantId) -> Option<&mut Waiting> {
        self.attempts.get_mut(id)?.waiting.as_mut()
    }
}

impl Waiting {
    /// Whether rounds of it are under way.
    pub(super) fn is_asking(&self, now_us: u64) -> bool {
        self.asking.is_some_and(|turn| now_us < turn.until_us)
    }

    /// These rounds of it are over.
    pub(super) fn end(&mut self, turn: Turn) {
        self.asking.take_if(|asking| asking.number == turn.number);
    }

    /// Begins rounds of this attempt, and returns what to ask. `within_us` returns how long rounds with that lease may
    /// take. Returns `None` if rounds are under way.
    pub(super) fn begin(
        &mut self,
        now_us: u64,
        within_us: impl FnOnce(u64) -> u64,
        link: u64,
    ) -> Option<(Name, Acquire, Wait, Turn)> {
        if self.is_asking(now_us) {
            return None;
        }
        self.called.clear();
        self.alarm += 1;
        let turn = Turn { number: self.alarm, link, until_us: now_us + within_us(self.acquire.lease_ms) };
        self.asking = Some(turn);
        Some((self.name.clone(), self.acquire.clone(), self.wait, turn))
    }

    /// A node calls it.
    pub(super) fn call(&mut self, node: usize, majority: usize) -> Call {
        if self.called.contains(&node) {
            return Call::Known;
        }
        self.called.push(node);
        match self.called.len() {
            n if n >= majority => Call::Majority,
            1 => Call::First,
            _ => Call::Known,
        }
    }

    /// How many nodes have called it since its last round.
    pub(super) fn calls(&self) -> usize {
        self.called.len()
    }
}

/// How many names may be ahead of the clock at a time: one is for as many microseconds as its grant has tokens, about a
/// millisecond, unless a clock is wrong.
const SEEN: usize = 4_096;
/// From how many attempts on it is looked whether some of them are over.
const LOOK_AT: usize = 1_024;
/// How much later than a lease its session may ask or renew, at most.
const LATE_US: u64 = 10_000_000;

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
