//! The state of the clients, the requests in flight, and the effect of each event.

use stateright::{Model, Property};

use super::node::{ATTEMPTS, EPOCH, Kept, NEVER, Node, has};
use super::operator::Operator;
use super::properties;
use super::scenes::{Flaw, Scene, Scheme, Validity};
use super::words::Act;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    New,
    Asking,
    WritingBack,
    /// Between two rounds.
    Waiting,
    Held {
        until: u8,
    },
    GivenBack,
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) phase: Phase,
    /// The token that it proposes, or the largest token that a node has reported to it.
    pub(super) token: u8,
    /// How often it has requested votes from all nodes.
    pub(super) rounds: u8,
    /// When its last request to all nodes was sent.
    pub(super) began: u8,
    /// The attempts that had been granted when its last round began.
    pub(super) after: u8,
    /// Its last renewal began after another attempt was granted with a larger token.
    pub(super) is_behind: bool,
    /// `is_behind`, and a majority renewed it.
    pub(super) went_on: bool,
}

impl Attempt {
    pub(super) fn granted(&self) -> Option<u8> {
        matches!(self.phase, Phase::Held { .. } | Phase::GivenBack).then_some(self.token)
    }
}

/// All nodes, sorted so that indistinguishable nodes are neighbors, and all attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cluster {
    pub(super) tick: u8,
    pub(super) nodes: Vec<Node>,
    pub(super) attempts: Vec<Attempt>,
    early_ends: u8,
    losses: u8,
    pub(super) operator: Operator,
}

impl Model for Scene {
    type State = Cluster;
    type Action = Act;

    /// Returns one state for every way in which the clocks can differ.
    fn init_states(&self) -> Vec<Cluster> {
        let new =
            Attempt { phase: Phase::New, token: 0, rounds: 0, began: 0, after: 0, is_behind: false, went_on: false };
        let mut clocks = vec![vec![]];
        for _ in 0..self.nodes {
            let longer = |ahead: &Vec<u8>| {
                let least = ahead.last().copied().unwrap_or(0);
                (least..=self.most_ahead())
                    .map(|next| ahead.iter().copied().chain([next]).collect())
                    .collect::<Vec<_>>()
            };
            clocks = clocks.iter().flat_map(longer).collect();
        }
        let cluster = |clocks: Vec<u8>| Cluster {
            tick: 0,
            nodes: clocks.into_iter().map(|ahead| Node { ahead, ..Node::default() }).collect(),
            attempts: vec![new.clone(); self.attempts],
            early_ends: 0,
            losses: 0,
            operator: Operator::Away,
        };
        clocks.into_iter().map(cluster).collect()
    }

    fn actions(&self, cluster: &Cluster, acts: &mut Vec<Act>) {
        let Cluster { tick, nodes, attempts, .. } = cluster;
        if self.timing.is_some_and(|timing| *tick < timing.until) {
            acts.push(Act::Tick);
        }
        for (attempt, known) in attempts.iter().enumerate() {
            let has_majority = || self.is_majority(nodes.iter().filter(|node| has(node.voted, attempt)).count());
            match known.phase {
                // Attempts begin in the order of their numbers: another order would be the same state under other names.
                Phase::New if attempt > 0 && attempts[attempt - 1].phase == Phase::New => {}
                Phase::New => {
                    let fresh = self.proposals().filter(|token| !self.renews || token + self.window() >= EPOCH + tick);
                    acts.extend(fresh.map(|token| Act::Ask { attempt, token }));
                }
                Phase::Asking if self.writes_back() && has_majority() => acts.push(Act::WriteBack { attempt }),
                Phase::Asking | Phase::WritingBack if has_majority() && self.valid_until(known, *tick) > *tick => {
                    acts.push(Act::Enter { attempt });
                }
                Phase::Held { .. } => acts.push(Act::Leave { attempt }),
                _ => {}
            }
            let asks_again = known.rounds < self.rounds && attempt < self.repeaters;
            if matches!(known.phase, Phase::Asking | Phase::Waiting) && asks_again {
                let larger = self.proposals().filter(|token| *token > known.token);
                acts.extend(larger.map(|token| Act::Ask { attempt, token }));
            }
            if known.phase == Phase::Asking && self.withdraws && asks_again {
                acts.push(Act::Withdraw { attempt });
            }
            // With clocks, once per tick: more renewals would not make the lease longer.
            let is_due = || match self.timing {
                Some(_) => known.began < *tick,
                None => !nodes.iter().all(|node| has(node.renewed, attempt)),
            };
            if self.renews && matches!(known.phase, Phase::Held { .. }) && is_due() {
                acts.push(Act::Renew { attempt });
            }
            if matches!(known.phase, Phase::Asking | Phase::WritingBack | Phase::Waiting) {
                acts.push(Act::GiveUp { attempt });
            }
        }
        acts.extend(self.operator_act(cluster));
        for (at, node) in nodes.iter().enumerate() {
            if at > 0 && nodes[at - 1] == *node {
                continue; // Equal to the previous node.
            }
            acts.extend(node.asked().map(|(attempt, token)| Act::Vote { node: at, attempt, token }));
            acts.extend(node.withdrawn().map(|(attempt, token)| Act::TakeBack { node: at, attempt, token }));
            let by = |set: u8| (0..attempts.len()).filter(move |&by| has(set, by));
            acts.extend(by(node.written_back).map(|attempt| Act::Store { node: at, attempt }));
            if node.may_renew(*tick) {
                acts.extend(by(node.renewed).map(|attempt| Act::Keep { node: at, attempt }));
            }
            if node.holder.is_some() && cluster.early_ends < self.early_ends {
                acts.push(Act::EndEarly { node: at });
            }
            if node.highest > 0 && cluster.losses < self.losses {
                acts.extend((0..=self.most_ahead()).map(|ahead| Act::Forget { node: at, ahead }));
            }
        }
    }

    fn next_state(&self, cluster: &Cluster, act: Act) -> Option<Cluster> {
        let mut next = cluster.clone();
        let tick = cluster.tick;
        match act {
            Act::Tick => next.tick += 1,
            Act::Ask { attempt, token } => next.ask(attempt, token),
            Act::Vote { node, attempt, token } => {
                let (node, known) = (&mut next.nodes[node], &mut next.attempts[attempt]);
                node.asked[attempt] &= !(1 << token);
                let granted = node.grant(self, tick, attempt, token);
                let counts = |highest| {
                    self.scheme != Scheme::Proposed || highest == known.token || self.flaw == Flaw::EarlierCount
                };
                if let (Some(highest), Phase::Asking) = (granted.filter(|highest| counts(*highest)), known.phase) {
                    node.voted |= 1 << attempt;
                    known.token = known.token.max(highest);
                }
            }
            Act::WriteBack { attempt } => {
                let known = &mut next.attempts[attempt];
                (known.phase, known.token) = (Phase::WritingBack, known.token + 1);
                for node in &mut next.nodes {
                    node.voted &= !(1 << attempt);
                    node.written_back |= 1 << attempt;
                }
            }
            Act::Store { node, attempt } => {
                let (node, known) = (&mut next.nodes[node], &next.attempts[attempt]);
                node.written_back &= !(1 << attempt);
                let is_held = node.holder.is_some_and(|holder| holder.attempt == attempt);
                let is_stored = match self.scheme {
                    Scheme::WriteBackAbove => is_held && known.token > node.highest,
                    Scheme::WriteBackHeld => is_held,
                    Scheme::WriteBack | Scheme::Counters | Scheme::Proposed => true,
                };
                if is_stored {
                    node.highest = node.highest.max(known.token);
                }
                if is_stored && known.phase == Phase::WritingBack {
                    node.voted |= 1 << attempt;
                }
            }
            Act::Enter { attempt } => {
                let until = self.valid_until(&cluster.attempts[attempt], tick);
                next.attempts[attempt].phase = Phase::Held { until };
                for node in next.nodes.iter_mut().filter(|node| self.renews && has(node.voted, attempt)) {
                    node.voted &= !(1 << attempt);
                    node.ends[attempt] = until;
                }
            }
            Act::Withdraw { attempt } => {
                let known = &mut next.attempts[attempt];
                known.phase = Phase::Waiting;
                for node in &mut next.nodes {
                    node.voted &= !(1 << attempt);
                    node.withdrawn[attempt] |= 1 << known.token;
                }
            }
            Act::TakeBack { node, attempt, token } => {
                next.nodes[node].withdrawn[attempt] &= !(1 << token);
                next.nodes[node].take_back(self, attempt, token);
            }
            Act::Renew { attempt } => next.renew(self, attempt),
            Act::Keep { node, attempt } => next.keep(self, node, attempt),
            Act::Leave { attempt } => next.end(attempt, Phase::GivenBack),
            Act::GiveUp { attempt } => next.end(attempt, Phase::GivenUp),
            Act::EndEarly { node } => {
                next.nodes[node].holder = None;
                next.early_ends += 1;
            }
            Act::Forget { node, ahead } => {
                let node = &mut next.nodes[node];
                (node.highest, node.holder, node.has_forgotten, node.ahead) = (0, None, true, ahead);
                node.quarantine_until = self.timing.map_or(0, |timing| tick + timing.quarantine);
                next.losses += 1;
                // A connection is broken, or a marker is gone.
                if matches!(next.operator, Operator::Connected(_)) {
                    next.operator = Operator::Away;
                }
            }
            Act::Prepare => next.operator = Operator::Connected(tick),
            Act::Begin => {
                next.nodes.iter_mut().for_each(|node| node.quarantine_until = 0);
                next.operator = Operator::Done;
            }
        }
        next.forget_the_past();
        if self.rounds > 1 || self.renews {
            next.forget_what_is_refused(self);
        }
        next.nodes.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}

impl Scene {
    /// Returns the tokens that a client may propose: all of them, since clocks may show any time and a refused client
    /// learns a larger token.
    fn proposals(&self) -> std::ops::RangeInclusive<u8> {
        match (self.scheme, self.timing) {
            (Scheme::Proposed, None) => 1..=self.tokens,
            (Scheme::Proposed, Some(timing)) => {
                let latest = EPOCH + timing.until + self.most_ahead() + timing.window;
                // Tokens below the client's clock are included only if that does not make too many states.
                EPOCH.saturating_sub(if self.renews { 0 } else { timing.window })..=latest
            }
            _ => 0..=0,
        }
    }

    fn window(&self) -> u8 {
        self.timing.map_or(EPOCH, |timing| timing.window)
    }

    fn most_ahead(&self) -> u8 {
        2 * self.timing.map_or(0, |timing| timing.clock_error)
    }

    fn writes_back(&self) -> bool {
        matches!(self.scheme, Scheme::WriteBack | Scheme::WriteBackHeld | Scheme::WriteBackAbove)
    }

    fn is_majority(&self, votes: usize) -> bool {
        votes * 2 > self.nodes
    }

    fn valid_until(&self, attempt: &Attempt, tick: u8) -> u8 {
        match self.timing {
            None => NEVER,
            Some(timing) if timing.validity == Validity::FromAsking => attempt.began + timing.lease,
            Some(timing) => tick + timing.lease,
        }
    }
}

impl Cluster {
    /// Begins a round. The votes of an earlier round stay until the nodes receive a request of this one.
    fn ask(&mut self, attempt: usize, token: u8) {
        let after = self.granted();
        let known = &mut self.attempts[attempt];
        (known.phase, known.token, known.began, known.after) = (Phase::Asking, token, self.tick, after);
        known.rounds += 1;
        for node in &mut self.nodes {
            node.voted &= !(1 << attempt);
            node.asked[attempt] |= 1 << token;
        }
    }

    fn renew(&mut self, scene: &Scene, attempt: usize) {
        let token = self.attempts[attempt].token;
        let is_behind = scene.watches && self.attempts.iter().any(|other| other.granted() > Some(token));
        let known = &mut self.attempts[attempt];
        (known.began, known.is_behind) = (self.tick, is_behind);
        for node in &mut self.nodes {
            node.voted &= !(1 << attempt);
            node.renewed |= 1 << attempt;
        }
    }

    /// Carries out a renewal. A reply of Filled or Lost need not arrive, and nothing depends on it here: a holder that
    /// stops because of it is covered by a holder that gives back.
    fn keep(&mut self, scene: &Scene, node: usize, attempt: usize) {
        let known = &mut self.attempts[attempt];
        let node = &mut self.nodes[node];
        node.renewed &= !(1 << attempt);
        let kept = node.renew(scene, self.tick, attempt, known.token);
        let Phase::Held { until } = &mut known.phase else { return };
        if kept != Kept::Renewed {
            return;
        }
        match scene.timing {
            Some(timing) => {
                node.ends[attempt] = known.began + timing.lease;
                let mut ends: Vec<u8> = self.nodes.iter().map(|node| node.ends[attempt]).collect();
                ends.sort_unstable();
                *until = ends[(scene.nodes - 1) / 2];
            }
            None if scene.watches => {
                node.voted |= 1 << attempt;
                let votes = self.nodes.iter().filter(|node| has(node.voted, attempt)).count();
                known.went_on |= known.is_behind && scene.is_majority(votes);
            }
            None => {}
        }
    }

    fn granted(&self) -> u8 {
        let granted = |(at, known): (usize, &Attempt)| known.granted().map_or(0, |_| 1 << at);
        self.attempts.iter().enumerate().map(granted).sum()
    }

    /// Gives the votes of an attempt back on all nodes at once. Its requests in flight stay in flight.
    fn end(&mut self, attempt: usize, phase: Phase) {
        self.attempts[attempt].phase = phase;
        for node in &mut self.nodes {
            node.voted &= !(1 << attempt);
            node.holder = node.holder.filter(|holder| holder.attempt != attempt);
        }
    }

    /// Makes two states equal if they differ only in values that cannot matter any more.
    fn forget_the_past(&mut self) {
        for attempt in &mut self.attempts {
            if matches!(attempt.phase, Phase::Held { until } if until <= self.tick) {
                attempt.phase = Phase::GivenBack;
            }
        }
        let holds: [bool; ATTEMPTS] = std::array::from_fn(|at| {
            self.attempts.get(at).is_some_and(|attempt| matches!(attempt.phase, Phase::Held { .. }))
        });
        for node in &mut self.nodes {
            node.holder = node.holder.filter(|holder| holder.until > self.tick);
            if node.quarantine_until <= self.tick {
                node.quarantine_until = 0;
            }
            for (end, holds) in node.ends.iter_mut().zip(holds) {
                *end = if holds && *end > self.tick { *end } else { 0 };
            }
        }
    }

    /// Removes requests in flight that can only be refused. (Until a node forgets, these include tokens that are not
    /// above its highest token.)
    fn forget_what_is_refused(&mut self, scene: &Scene) {
        let least = |highest: u8| if scene.losses == 0 && scene.flaw != Flaw::VotesBelow { highest + 1 } else { 0 };
        let nearest = scene.timing.map_or(0, |timing| EPOCH + self.tick - timing.window);
        for node in &mut self.nodes {
            let above = u32::MAX << least(node.highest).max(nearest);
            node.asked.iter_mut().for_each(|asked| *asked &= above);
            for (by, known) in self.attempts.iter().enumerate() {
                // The request arrives after the end of its validity (P4).
                if scene.timing.is_some_and(|timing| known.began + timing.lease < self.tick) {
                    node.renewed &= !(1 << by);
                }
            }
        }
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&Attempt, &Attempt)> {
        let all = &self.attempts;
        (1..all.len()).flat_map(move |b| (0..b).map(move |a| (&all[a], &all[b])))
    }
}
