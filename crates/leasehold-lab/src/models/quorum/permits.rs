//! A semaphore over independent nodes, which is impossible: each node counts its own permits, and two majorities overlap
//! in a node that can let two holders in.

use stateright::{Model, Property};

pub(super) const TOO_MANY: &str = "more holders than permits";

/// Each attempt requests one permit from all nodes, and no attempt gives its permit back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permits {
    pub(super) nodes: usize,
    pub(super) attempts: usize,
    pub(super) permits: u32,
}

/// Sets of attempts, a bit each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Given {
    by_node: Vec<u8>,
    holders: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Grant { node: usize, attempt: usize },
    Enter { attempt: usize },
}

impl Model for Permits {
    type State = Given;
    type Action = Act;

    fn init_states(&self) -> Vec<Given> {
        vec![Given { by_node: vec![0; self.nodes], holders: 0 }]
    }

    fn actions(&self, given: &Given, acts: &mut Vec<Act>) {
        for attempt in 0..self.attempts {
            let bit = 1 << attempt;
            for (node, granted) in given.by_node.iter().enumerate() {
                if granted & bit == 0 && granted.count_ones() < self.permits {
                    acts.push(Act::Grant { node, attempt });
                }
            }
            let votes = given.by_node.iter().filter(|&granted| granted & bit != 0).count();
            if given.holders & bit == 0 && votes * 2 > self.nodes {
                acts.push(Act::Enter { attempt });
            }
        }
    }

    fn next_state(&self, given: &Given, act: Act) -> Option<Given> {
        let mut next = given.clone();
        match act {
            Act::Grant { node, attempt } => next.by_node[node] |= 1 << attempt,
            Act::Enter { attempt } => next.holders |= 1 << attempt,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(TOO_MANY, |permits: &Self, given: &Given| given.holders.count_ones() <= permits.permits),
            Property::sometimes("all permits were given", |permits: &Self, given: &Given| {
                given.holders.count_ones() == permits.permits
            }),
        ]
    }
}

pub(super) fn describe(act: &Act) -> String {
    match act {
        Act::Grant { node, attempt } => format!("node {node} grants a permit to attempt {attempt}"),
        Act::Enter { attempt } => format!("attempt {attempt} has a majority, and holds"),
    }
}
