//! What a client of a quorum remembers of names: the tokens that it was told, what it holds, and who waits.

use std::collections::HashMap;

use leasehold_spec::node::Wait;
use leasehold_spec::{Acquire, GrantId, Name, Token};

#[derive(Default)]
pub(super) struct Names {
    /// The largest token of a name that was heard of, where it is ahead of the nodes' clocks.
    seen: HashMap<Name, Token>,
    /// What was granted here, and not given back: what a node needs to know that is filled.
    held: HashMap<GrantId, Held>,
    waiting: HashMap<GrantId, Waiting>,
}

/// A grant.
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
    /// A round of it is under way.
    pub(super) is_asking: bool,
    /// The nodes that have called it since its last round.
    called: Vec<usize>,
    /// How many of its rounds were lost since it was last refused by somebody who holds.
    pub(super) splits: u32,
    /// The number of its latest alarm: earlier ones do not ring any more.
    pub(super) alarm: u64,
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

    /// Takes note of a token, unless the clock, which shows `now_us`, is ahead of it anyway.
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

    pub(super) fn hold(&mut self, id: GrantId, held: Held) {
        self.waiting.remove(&id);
        self.held.insert(id, held);
    }

    pub(super) fn held(&self, id: &GrantId) -> Option<&Held> {
        self.held.get(id)
    }

    /// The attempt is over.
    pub(super) fn end(&mut self, id: &GrantId) {
        self.held.remove(id);
        self.waiting.remove(id);
    }

    /// A round of an attempt begins that waits if it is lost. Answers whether it did before.
    pub(super) fn wait(&mut self, name: &Name, acquire: &Acquire, wait: Wait) -> bool {
        let before = self.waiting.get(&acquire.id).map(|waiting| (waiting.splits, waiting.alarm));
        let (splits, alarm) = before.unwrap_or_default();
        let (name, acquire, called) = (name.clone(), acquire.clone(), Vec::new());
        let waiting = Waiting { name, acquire, wait, is_asking: true, called, splits, alarm: alarm + 1 };
        self.waiting.insert(waiting.acquire.id, waiting);
        before.is_some()
    }

    pub(super) fn waiting(&mut self, id: &GrantId) -> Option<&mut Waiting> {
        self.waiting.get_mut(id)
    }
}

impl Waiting {
    /// A round of it begins: what to ask. `None` if one is under way.
    pub(super) fn begin(&mut self) -> Option<(Name, Acquire, Wait)> {
        if std::mem::replace(&mut self.is_asking, true) {
            return None;
        }
        self.called.clear();
        self.alarm += 1;
        Some((self.name.clone(), self.acquire.clone(), self.wait))
    }

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

/// How many names may be ahead of the clock at a time: a token is for a millisecond, unless a clock is wrong.
const SEEN: usize = 4_096;
