//! Replies and messages.

use std::fmt;

use leasehold_spec::node::{Said, Vote};
use leasehold_spec::{Answer, Delivery};

/// The reply of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// A simple string such as OK.
    Ok,
    /// The null reply.
    Nil,
    /// A number.
    Number(i64),
    /// A string.
    Text(String),
    /// The answer of Leasehold's scripts.
    Answer(Box<Answer>),
    /// The vote of a node of Leasehold's quorum. `None` if the node abstains.
    Vote(Option<Box<Vote>>),
}

impl Reply {
    /// Returns the number. Every other reply counts as 0.
    #[must_use]
    pub fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            _ => 0,
        }
    }

    /// Returns the string, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("OK"),
            Self::Nil => f.write_str("nil"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
            Self::Answer(answer) => f.write_str(answer.outcome.word()),
            Self::Vote(None) => f.write_str("abstains"),
            Self::Vote(Some(vote)) => f.write_str(match vote.said {
                Said::Granted { .. } => "vote",
                Said::Refused { .. } => "refused",
                Said::Renewed { .. } => "renewed",
                Said::GivenBack { .. } => "given back",
                Said::Lost { .. } => "lost",
                _ => "no vote",
            }),
        }
    }
}

/// A message on a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// A text.
    Text(String),
    /// A message of Leasehold to the inbox of a session.
    Delivery(Box<Delivery>),
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Delivery(delivery) => write!(f, "{:?}", delivery.event),
        }
    }
}
