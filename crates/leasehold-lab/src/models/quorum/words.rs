//! The events that may happen next, and their description in words.

/// An event that may happen. Nodes have the numbers of the state before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Tick,
    Ask {
        attempt: usize,
        token: u8,
    },
    /// The node carries out a request for a vote, of any round.
    Vote {
        node: usize,
        attempt: usize,
        token: u8,
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
    /// The attempt gives the votes of its lost round back and starts the next round later.
    Withdraw {
        attempt: usize,
    },
    /// The node carries out the withdrawal of a round.
    TakeBack {
        node: usize,
        attempt: usize,
        token: u8,
    },
    Renew {
        attempt: usize,
    },
    /// The node carries out a renewal.
    Keep {
        node: usize,
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
    /// An operator has connected to all nodes.
    Prepare,
    /// The quarantine of all nodes ends.
    Begin,
    /// The node loses everything, and its clock is this far ahead from then on.
    Forget {
        node: usize,
        ahead: u8,
    },
}

/// Describes an event in words. Nodes are interchangeable: their numbers are those of the current state.
pub(super) fn describe(act: &Act) -> String {
    match act {
        Act::Tick => "a tick".into(),
        Act::Ask { attempt, token: 0 } => format!("attempt {attempt} requests the votes of all nodes"),
        Act::Ask { attempt, token } => {
            format!("attempt {attempt} requests the votes of all nodes, and proposes {token}")
        }
        Act::Vote { node, attempt, token: 0 } => {
            format!("node {node} carries out the request of attempt {attempt}")
        }
        Act::Vote { node, attempt, token } => {
            format!("node {node} carries out the request of attempt {attempt} with {token}")
        }
        Act::WriteBack { attempt } => format!("attempt {attempt} has a majority, and writes one more back"),
        Act::Store { node, attempt } => format!("the token that attempt {attempt} writes back reaches node {node}"),
        Act::Enter { attempt } => format!("attempt {attempt} has a majority, and holds"),
        Act::Withdraw { attempt } => format!("attempt {attempt} has lost the round, gives its votes back, and waits"),
        Act::TakeBack { node, attempt, token } => {
            format!("the withdrawal of attempt {attempt} for its round with {token} reaches node {node}")
        }
        Act::Renew { attempt } => format!("attempt {attempt} renews at all nodes"),
        Act::Keep { node, attempt } => format!("node {node} carries out a renewal of attempt {attempt}"),
        Act::Leave { attempt } => format!("attempt {attempt} releases the lease"),
        Act::GiveUp { attempt } => format!("attempt {attempt} gives up"),
        Act::EndEarly { node } => format!("the lease ends early at node {node}"),
        Act::Prepare => "an operator connects to all nodes".into(),
        Act::Begin => "the operator begins the quorum: no node is in quarantine".into(),
        Act::Forget { node, ahead: 0 } => format!("node {node} forgets everything"),
        Act::Forget { node, ahead } => format!("node {node} forgets everything, and its clock is ahead by {ahead}"),
    }
}
