//! The commands, as the specimens send them.

use std::fmt;

use leasehold_spec::Op;
use leasehold_spec::node::Request;

use super::script::Script;

/// One command.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// `GET key`
    Get(String),
    /// `SETNX key value`
    SetNx(String, String),
    /// `SET key value NX EX seconds`
    SetNxEx(String, String, u64),
    /// `SET key value NX PX milliseconds`
    SetNxPx(String, String, u64),
    /// `GETSET key value`
    GetSet(String, String),
    /// `DEL key`
    Del(String),
    /// `EXPIRE key seconds`
    Expire(String, u64),
    /// `EVAL script 1 key arguments`
    Eval(Script, String, Vec<String>),
    /// `SUBSCRIBE channel`
    Subscribe(String),
    /// A request to Leasehold's scripts on one server, or to its other stores.
    Step(String, Box<Op>),
    /// A request to a node of Leasehold's quorum.
    Vote(String, Box<Request>),
}

impl Command {
    /// Returns the name of the command in a figure.
    #[must_use]
    pub fn short(&self) -> &'static str {
        match self {
            Self::Get(_) => "GET",
            Self::SetNx(..) => "SETNX",
            Self::SetNxEx(..) | Self::SetNxPx(..) => "SET NX",
            Self::GetSet(..) => "GETSET",
            Self::Del(_) => "DEL",
            Self::Expire(..) => "EXPIRE",
            Self::Eval(Script::CompareAndDelete, ..) => "compare, DEL",
            Self::Eval(script, ..) => script.name(),
            Self::Subscribe(_) => "SUBSCRIBE",
            Self::Step(_, op) => op.word(),
            Self::Vote(_, request) => match **request {
                Request::Ask(_) => "ask",
                Request::Renew(_) => "renew",
                Request::GiveBack { .. } | Request::Pause { .. } | Request::CoolDown { .. } => "return",
                Request::Revoke { .. } => "revoke",
                Request::Settle => "settle",
                Request::Inspect => "inspect",
            },
        }
    }

    /// Returns the words that go over the wire. Leasehold's own requests have none here: on a real server its own client
    /// sends them.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        match self {
            Self::Get(key) => words(&["GET", key]),
            Self::SetNx(key, value) => words(&["SETNX", key, value]),
            Self::SetNxEx(key, value, s) => words(&["SET", key, value, "NX", "EX", &s.to_string()]),
            Self::SetNxPx(key, value, ms) => words(&["SET", key, value, "NX", "PX", &ms.to_string()]),
            Self::GetSet(key, value) => words(&["GETSET", key, value]),
            Self::Del(key) => words(&["DEL", key]),
            Self::Expire(key, s) => words(&["EXPIRE", key, &s.to_string()]),
            Self::Eval(script, key, arguments) => {
                [words(&["EVAL", script.text(), "1", key]), arguments.clone()].concat()
            }
            Self::Subscribe(channel) => words(&["SUBSCRIBE", channel]),
            Self::Step(..) | Self::Vote(..) => vec![],
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eval(script, _, arguments) => write!(f, "EVAL {} {}", script.name(), arguments.join(" ")),
            Self::Step(_, op) => f.write_str(op.word()),
            Self::Vote(_, request) => f.write_str(match **request {
                Request::Ask(_) => "asks for the vote",
                Request::Renew(_) => "renews the vote",
                Request::GiveBack { .. } | Request::Pause { .. } | Request::CoolDown { .. } => "gives the vote back",
                Request::Revoke { .. } => "revoke",
                Request::Settle => "settle",
                Request::Inspect => "inspect",
            }),
            _ => f.write_str(&self.words().join(" ")),
        }
    }
}
