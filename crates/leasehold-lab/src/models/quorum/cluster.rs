//! What the nodes know, what the clients know, and what may happen next.

use stateright::{Model, Property};

use super::scenes::{Scene, Scheme, Validity};

/// The nodes' clocks show this at tick 0: a proposal below them is possible.
pub(super) const EPOCH: u8 = 10;
const NEVER: u8 = u8::MAX;

/// One node, and what is under way to it. Sets are of attempts, a bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node {
    /// By how much its clock is ahead of the slowest that there may be.
    ahead: u8,
    /// The largest token that it knows, or how often it has granted.
    highest: u8,
    holder: Option<Holder>,
    /// It has lost everything, and grants nothing before this tick.
    rests_until: u8,
    has_forgotten: bool,
    /// Whose request for the lease may still be carried out here.
    asked: u8,
    /// Whose token may still be written back here.
    told: u8,
    /// To whom it has said yes, of what was asked last.
    voted: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Holder {
    attempt: usize,
    until: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    New,
    Asking,
    WritingBack,
    Held { until: u8 },
    GivenBack,
    GivenUp,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Attempt {
    phase: Phase,
    /// What it proposes, or the most that it has been told.
    token: u8,
    began: u8,
    /// Who had been granted when it began.
    after: u8,
}

impl Attempt {
    fn granted(&self) -> Option<u8> {
        matches!(self.phase, Phase::Held { .. } | Phase::GivenBack).then_some(self.token)
    }
}

/// All nodes, in an order in which those that can be told apart by nothing are neighbours, and all attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cluster {
    tick: u8,
    nodes: Vec<Node>,
    attempts: Vec<Attempt>,
    early_ends: u8,
    losses: u8,
}

/// What may happen. Nodes are numbered as the state before it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Tick,
    Ask {
        attempt: usize,
        token: u8,
    },
    Vote {
        node: usize,
        attempt: usize,
    },
    WriteBack {
        attempt: usize,
    },
    Store {
        node: usize,
        attempt: usize,
    },
    Enter {
        attempt: usize,
    },
    Leave {
        attempt: usize,
    },
    GiveUp {
        attempt: usize,
    },
    EndEarly {
        node: usize,
    },
    /// And its clock is so far ahead from then on.
    Forget {
        node: usize,
        ahead: u8,
    },
}

impl Model for Scene {
    type State = Cluster;
    type Action = Act;

    /// Every way in which clocks can differ.
    fn init_states(&self) -> Vec<Cluster> {
        let new = Attempt { phase: Phase::New, token: 0, began: 0, after: 0 };
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
        };
        clocks.into_iter().map(cluster).collect()
    }

    fn actions(&self, cluster: &Cluster, acts: &mut Vec<Act>) {
        let Cluster { tick, nodes, attempts, .. } = cluster;
        if self.timing.is_some_and(|timing| *tick < timing.until) {
            acts.push(Act::Tick);
        }
        for (attempt, known) in attempts.iter().enumerate() {
            let has_majority = || nodes.iter().filter(|node| has(node.voted, attempt)).count() * 2 > self.nodes;
            match known.phase {
                // They begin in the order of their numbers: others would be the same by other names.
                Phase::New if attempt > 0 && attempts[attempt - 1].phase == Phase::New => {}
                Phase::New => acts.extend(self.proposals().map(|token| Act::Ask { attempt, token })),
                Phase::Asking if self.writes_back() && has_majority() => acts.push(Act::WriteBack { attempt }),
                Phase::Asking | Phase::WritingBack if has_majority() && self.valid_until(known, *tick) > *tick => {
                    acts.push(Act::Enter { attempt });
                }
                Phase::Held { .. } => acts.push(Act::Leave { attempt }),
                Phase::Asking | Phase::WritingBack | Phase::GivenBack | Phase::GivenUp => {}
            }
            if matches!(known.phase, Phase::Asking | Phase::WritingBack) {
                acts.push(Act::GiveUp { attempt });
            }
        }
        for (at, node) in nodes.iter().enumerate() {
            if at > 0 && nodes[at - 1] == *node {
                continue; // The same again.
            }
            acts.extend(
                (0..attempts.len()).filter(|&by| has(node.asked, by)).map(|by| Act::Vote { node: at, attempt: by }),
            );
            acts.extend(
                (0..attempts.len()).filter(|&by| has(node.told, by)).map(|by| Act::Store { node: at, attempt: by }),
            );
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
            Act::Ask { attempt, token } => {
                let granted = |(at, known): (usize, &Attempt)| known.granted().map_or(0, |_| 1 << at);
                let after = cluster.attempts.iter().enumerate().map(granted).sum();
                next.attempts[attempt] = Attempt { phase: Phase::Asking, token, began: tick, after };
                next.nodes.iter_mut().for_each(|node| node.asked |= 1 << attempt);
            }
            Act::Vote { node, attempt } => {
                let (node, known) = (&mut next.nodes[node], &mut next.attempts[attempt]);
                node.asked &= !(1 << attempt);
                let said = node.grant(self, tick, attempt, known.token);
                if let (Some(highest), Phase::Asking) = (said, known.phase) {
                    node.voted |= 1 << attempt;
                    known.token = known.token.max(highest);
                }
            }
            Act::WriteBack { attempt } => {
                let known = &mut next.attempts[attempt];
                (known.phase, known.token) = (Phase::WritingBack, known.token + 1);
                for node in &mut next.nodes {
                    node.voted &= !(1 << attempt);
                    node.told |= 1 << attempt;
                }
            }
            Act::Store { node, attempt } => {
                let (node, known) = (&mut next.nodes[node], &next.attempts[attempt]);
                node.told &= !(1 << attempt);
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
            }
            Act::Leave { attempt } => next.end(attempt, Phase::GivenBack),
            Act::GiveUp { attempt } => next.end(attempt, Phase::GivenUp),
            Act::EndEarly { node } => {
                next.nodes[node].holder = None;
                next.early_ends += 1;
            }
            Act::Forget { node, ahead } => {
                let node = &mut next.nodes[node];
                (node.highest, node.holder, node.has_forgotten, node.ahead) = (0, None, true, ahead);
                node.rests_until = self.timing.map_or(0, |timing| tick + timing.rest);
                next.losses += 1;
            }
        }
        next.forget_the_past();
        next.nodes.sort_unstable();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(super::scenes::TWICE, |_, cluster: &Cluster| {
                cluster.pairs().all(|(a, b)| a.granted().is_none() || a.granted() != b.granted())
            }),
            Property::always(super::scenes::SMALLER, |_, cluster: &Cluster| {
                let tokens: Vec<_> = cluster.attempts.iter().map(Attempt::granted).collect();
                let is_above = |later: &Attempt, earlier: usize| {
                    !has(later.after, earlier) || later.granted().is_none_or(|token| tokens[earlier] <= Some(token))
                };
                cluster.attempts.iter().all(|later| (0..tokens.len()).all(|earlier| is_above(later, earlier)))
            }),
            Property::always(super::scenes::TWO_HOLDERS, |scene: &Self, cluster: &Cluster| {
                let holds = |one: &&Attempt| matches!(one.phase, Phase::Held { until } if until > cluster.tick);
                scene.timing.is_none() || cluster.attempts.iter().filter(holds).count() <= 1
            }),
            Property::sometimes("everybody was granted", |_, cluster: &Cluster| {
                cluster.attempts.iter().all(|attempt| attempt.granted().is_some())
            }),
        ];
        // Of two harms by the same steps the one that it is known for.
        if let Some(harm) = self.harm {
            all.retain(|property| property.name == harm);
            return all;
        }
        if self.early_ends > 0 {
            all.push(Property::sometimes("a grant while another one was not given back", |_, cluster: &Cluster| {
                cluster.attempts.iter().filter(|one| matches!(one.phase, Phase::Held { .. })).count() > 1
            }));
        }
        if self.losses > 0 {
            all.push(Property::sometimes("a vote of a node that had forgotten", |_, cluster: &Cluster| {
                cluster.nodes.iter().any(|node| node.has_forgotten && node.holder.is_some())
            }));
        }
        all
    }
}

impl Scene {
    /// What a client may propose: anything, since clocks may show anything, and a refused client is told more.
    fn proposals(&self) -> std::ops::RangeInclusive<u8> {
        match (self.scheme, self.timing) {
            (Scheme::Proposed, None) => 1..=self.tokens,
            (Scheme::Proposed, Some(timing)) => {
                let latest = EPOCH + timing.until + self.most_ahead() + timing.window;
                EPOCH.saturating_sub(timing.window)..=latest
            }
            _ => 0..=0,
        }
    }

    fn most_ahead(&self) -> u8 {
        2 * self.timing.map_or(0, |timing| timing.clock_error)
    }

    fn writes_back(&self) -> bool {
        matches!(self.scheme, Scheme::WriteBack | Scheme::WriteBackHeld | Scheme::WriteBackAbove)
    }

    fn valid_until(&self, attempt: &Attempt, tick: u8) -> u8 {
        match self.timing {
            None => NEVER,
            Some(timing) if timing.validity == Validity::FromAsking => attempt.began + timing.lease,
            Some(timing) => tick + timing.lease,
        }
    }
}

impl Node {
    /// Carries out a request for the lease. Answers the largest token that it knows then, if it grants.
    fn grant(&mut self, scene: &Scene, tick: u8, attempt: usize, token: u8) -> Option<u8> {
        let clock = EPOCH + tick + self.ahead;
        let is_near = scene.timing.is_none_or(|timing| clock.abs_diff(token) <= timing.window);
        let is_free = self.holder.is_none_or(|holder| holder.until <= tick);
        let is_above = scene.scheme != Scheme::Proposed || token > self.highest;
        if !is_free || !is_above || !is_near || tick < self.rests_until {
            return None;
        }
        let until = scene.timing.map_or(NEVER, |timing| tick + timing.lease);
        self.holder = Some(Holder { attempt, until });
        match scene.scheme {
            Scheme::Counters => self.highest += 1,
            Scheme::Proposed => self.highest = token,
            Scheme::WriteBack | Scheme::WriteBackHeld | Scheme::WriteBackAbove => {}
        }
        Some(self.highest)
    }
}

impl Cluster {
    /// What there is of it goes back on all nodes at once; what is under way stays under way.
    fn end(&mut self, attempt: usize, phase: Phase) {
        self.attempts[attempt].phase = phase;
        for node in &mut self.nodes {
            node.voted &= !(1 << attempt);
            node.holder = node.holder.filter(|holder| holder.attempt != attempt);
        }
    }

    /// Two states that differ in nothing that matters any more are one.
    fn forget_the_past(&mut self) {
        for node in &mut self.nodes {
            node.holder = node.holder.filter(|holder| holder.until > self.tick);
            if node.rests_until <= self.tick {
                node.rests_until = 0;
            }
        }
        for attempt in &mut self.attempts {
            if matches!(attempt.phase, Phase::Held { until } if until <= self.tick) {
                attempt.phase = Phase::GivenBack;
            }
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&Attempt, &Attempt)> {
        let all = &self.attempts;
        (1..all.len()).flat_map(move |b| (0..b).map(move |a| (&all[a], &all[b])))
    }
}

fn has(set: u8, attempt: usize) -> bool {
    set & (1 << attempt) != 0
}

/// A step in words. Nodes are interchangeable: their numbers are those of the moment.
pub(super) fn told(act: &Act) -> String {
    match act {
        Act::Tick => "a tick".into(),
        Act::Ask { attempt, token: 0 } => format!("attempt {attempt} asks all nodes"),
        Act::Ask { attempt, token } => format!("attempt {attempt} asks all nodes, and proposes {token}"),
        Act::Vote { node, attempt } => format!("what attempt {attempt} asks is carried out at node {node}"),
        Act::WriteBack { attempt } => format!("attempt {attempt} has a majority, and writes one more back"),
        Act::Store { node, attempt } => format!("what attempt {attempt} writes back comes to node {node}"),
        Act::Enter { attempt } => format!("attempt {attempt} has a majority, and holds"),
        Act::Leave { attempt } => format!("attempt {attempt} gives back"),
        Act::GiveUp { attempt } => format!("attempt {attempt} gives up"),
        Act::EndEarly { node } => format!("the lease ends early at node {node}"),
        Act::Forget { node, ahead: 0 } => format!("node {node} forgets everything"),
        Act::Forget { node, ahead } => format!("node {node} forgets everything, and its clock is ahead by {ahead}"),
    }
}
