//! The lines of a timeline.

use std::fmt;

use crate::client::{ServerId, ThreadId};
use crate::judge::{Holder, Waiter};
use crate::redis::{Command, Holding, Message, seconds};

/// A line of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of the choice that this line is a part of, counted from 1.
    pub step: usize,
    /// The time, in milliseconds since the beginning.
    pub at_ms: u64,
    /// The name of the process or the thread, or of what failed.
    pub actor: String,
    /// The thread that acts, or that the fault hits. `None` if it is a process, a server, the network or the time.
    pub thread: Option<ThreadId>,
    /// The action.
    pub action: Action,
    /// The action in words.
    pub what: String,
    /// The reply, if the server sent one.
    pub reply: Option<String>,
    /// The contents of the servers after the action.
    pub holds: String,
    /// The servers after the action.
    pub servers: Vec<ServerView>,
    /// The threads that are in their critical sections then.
    pub inside: Vec<Holder>,
    /// The threads that are in their critical sections, and whose own clocks say that the lease has ended.
    pub late: Vec<Holder>,
    /// The threads that have asked for the lock, and are neither granted nor gone.
    pub waiting: Vec<Waiter>,
}

/// A server, as a timeline shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// Whether the server replies.
    pub is_up: bool,
    /// The contents.
    pub holds: Vec<Holding>,
}

/// The action of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The server carries out a command, and sends messages to these threads.
    Command(ServerId, Command, Vec<ThreadId>),
    /// The reply to the command of the line before is lost.
    LoseReply,
    /// The command is lost on its way to the server.
    LoseRequest(ServerId, Command),
    /// The first message to the thread is lost.
    LoseMessage(String),
    /// The thread receives a message.
    Message(Message),
    /// The thread has received no message in time.
    Timeout,
    /// The thread writes to the resource, with its token. A write without a token is never refused.
    Write {
        /// The token of the grant, if the lock has tokens.
        token: Option<u64>,
        /// Whether the fence lets the write pass.
        is_accepted: bool,
    },
    /// The thread begins its critical section, with its token.
    Enters(Option<u64>),
    /// The thread ends its critical section.
    Leaves,
    /// The thread gives up.
    GivesUp,
    /// Time passes.
    Tick {
        /// The time, in milliseconds.
        ms: u64,
        /// The threads that have something to do, and pause.
        paused: Vec<ThreadId>,
    },
    /// The process with this number dies.
    Kill(usize),
    /// The server stops for good.
    Stop(ServerId),
    /// The server starts again without its data.
    Restart(ServerId),
    /// The clock of the server jumps ahead by this many milliseconds.
    Jump(ServerId, u64),
    /// The replica of the first server receives no more changes.
    CutReplica,
    /// The replica takes the place of the first server.
    FailOver,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(_, command, _) => write!(f, "{command}"),
            Self::LoseReply => f.write_str("receives no reply"),
            Self::LoseRequest(_, command) => write!(f, "sends {command}, which is lost"),
            Self::LoseMessage(receiver) => write!(f, "loses the message to {receiver}"),
            Self::Message(message) => write!(f, "receives the message {message}"),
            Self::Timeout => f.write_str("has waited for long enough"),
            Self::Write { token: None, .. } => f.write_str("writes to the resource"),
            Self::Write { token: Some(token), is_accepted: true } => write!(f, "writes with token {token}: accepted"),
            Self::Write { token: Some(token), is_accepted: false } => {
                write!(f, "writes with token {token}: the fence refuses it")
            }
            Self::Enters(Some(token)) => write!(f, "enters with token {token}"),
            Self::Enters(None) => f.write_str("enters"),
            Self::Leaves => f.write_str("leaves"),
            Self::GivesUp => f.write_str("gives up"),
            Self::Tick { ms, .. } => write!(f, "{} s passes", seconds(*ms)),
            Self::Kill(_) => f.write_str("is killed"),
            Self::Stop(_) => f.write_str("stops"),
            Self::Restart(_) => f.write_str("restarts without its data"),
            Self::Jump(_, ms) => write!(f, "its clock jumps ahead by {} s", seconds(*ms)),
            Self::CutReplica => f.write_str("the replica receives no more changes"),
            Self::FailOver => f.write_str("the replica takes the place of the server"),
        }
    }
}
