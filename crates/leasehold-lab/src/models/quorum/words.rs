//! What may happen next, and how it is told.

/// What may happen. Nodes are numbered as the state before it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Tick,
    Ask {
        attempt: usize,
        token: u8,
    },
    /// A request for a vote is carried out, of whichever round.
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
    /// The round is lost: its votes go back, and the next one comes later.
    Withdraw {
        attempt: usize,
    },
    /// What was withdrawn is given back at this node.
    TakeBack {
        node: usize,
        attempt: usize,
        token: u8,
    },
    Renew {
        attempt: usize,
    },
    /// A renewal is carried out.
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
    /// An operator's connections to all nodes are there.
    Prepare,
    /// Nobody rests any longer.
    Begin,
    /// And its clock is so far ahead from then on.
    Forget {
        node: usize,
        ahead: u8,
    },
}

/// A step in words. Nodes are interchangeable: their numbers are those of the moment.
pub(super) fn told(act: &Act) -> String {
    match act {
        Act::Tick => "a tick".into(),
        Act::Ask { attempt, token: 0 } => format!("attempt {attempt} asks all nodes"),
        Act::Ask { attempt, token } => format!("attempt {attempt} asks all nodes, and proposes {token}"),
        Act::Vote { node, attempt, token: 0 } => {
            format!("what attempt {attempt} asks is carried out at node {node}")
        }
        Act::Vote { node, attempt, token } => {
            format!("what attempt {attempt} asks with {token} is carried out at node {node}")
        }
        Act::WriteBack { attempt } => format!("attempt {attempt} has a majority, and writes one more back"),
        Act::Store { node, attempt } => format!("what attempt {attempt} writes back comes to node {node}"),
        Act::Enter { attempt } => format!("attempt {attempt} has a majority, and holds"),
        Act::Withdraw { attempt } => format!("attempt {attempt} has lost the round, gives its votes back, and waits"),
        Act::TakeBack { node, attempt, token } => {
            format!("what attempt {attempt} gave back after it asked with {token} comes to node {node}")
        }
        Act::Renew { attempt } => format!("attempt {attempt} renews at all nodes"),
        Act::Keep { node, attempt } => format!("a renewal of attempt {attempt} is carried out at node {node}"),
        Act::Leave { attempt } => format!("attempt {attempt} gives back"),
        Act::GiveUp { attempt } => format!("attempt {attempt} gives up"),
        Act::EndEarly { node } => format!("the lease ends early at node {node}"),
        Act::Prepare => "an operator connects to all nodes".into(),
        Act::Begin => "the operator begins the quorum: no node rests".into(),
        Act::Forget { node, ahead: 0 } => format!("node {node} forgets everything"),
        Act::Forget { node, ahead } => format!("node {node} forgets everything, and its clock is ahead by {ahead}"),
    }
}
