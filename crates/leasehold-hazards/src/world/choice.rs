//! The choices of the search, and the faults that a scene allows.

use crate::client::{ServerId, ThreadId};

/// One step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Choice {
    /// The ask of the thread takes effect, and the thread goes on to its next ask.
    Run(ThreadId),
    /// Time passes until the next deadline.
    Tick,
    /// The command of the thread is carried out, and its reply is lost.
    LoseReply(ThreadId),
    /// The command of the thread is lost.
    LoseRequest(ThreadId),
    /// The first message to the thread is lost.
    LoseMessage(ThreadId),
    /// The process of the thread dies.
    Kill(usize),
    /// The server stops for good.
    Stop(ServerId),
    /// The server starts again, and has forgotten everything.
    Restart(ServerId),
    /// The clock of the server jumps ahead, by the lease of the scene.
    Jump(ServerId),
    /// The replica of the server receives no more changes.
    CutReplica,
    /// The server dies, and its replica takes its place.
    FailOver,
}

/// The number of faults of each kind that a scene allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// The processes that can pause at any time.
    pub pauses: &'static [usize],
    /// Lost replies.
    pub lost_replies: u8,
    /// Lost commands.
    pub lost_requests: u8,
    /// Lost messages.
    pub lost_messages: u8,
    /// Processes that can die: those with these numbers, each once.
    pub kills: &'static [usize],
    /// Servers that can stop: those with these numbers.
    pub stops: &'static [ServerId],
    /// Restarts of servers.
    pub restarts: u8,
    /// Jumps of the clocks of servers.
    pub jumps: u8,
    /// Failovers to a replica.
    pub failovers: u8,
}

/// The bounds of a run.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The faults that are allowed.
    pub faults: Faults,
    /// The longest step of time.
    pub tick_ms: u64,
    /// The time at which a run ends.
    pub end_ms: u64,
    /// The length of a jump of a clock.
    pub jump_ms: u64,
}
