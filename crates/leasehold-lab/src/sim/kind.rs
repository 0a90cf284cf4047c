//! The kinds of faults.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A connection breaks; the requests and replies in flight are lost.
    Cut,
    /// A connection breaks; the requests in flight are carried out later.
    Ghosts,
    /// A connection carries nothing any more, and neither end is notified.
    HalfOpen,
    /// A connection carries nothing for a while.
    Stall,
    /// A client is cut off from the server.
    Partition,
    /// New connections are refused.
    Refuse,
    /// A reply is lost, and its connection breaks.
    LoseReply,
    /// Pushes are lost.
    LosePushes,
    /// The server stands still; requests pile up, and are carried out late.
    Freeze,
    /// The server restarts, with its data.
    Restart,
    /// The server restarts empty.
    Amnesia,
    /// A replica takes over, without the last writes; the old primary may continue for a while.
    Failover,
    /// The server's clock is set forward.
    JumpForward,
    /// The server's clock is set back.
    JumpBack,
    /// The server's memory is full.
    NoMemory,
    /// A process stands still; its clock continues.
    Pause,
    /// A machine sleeps: its timers stand still, too.
    Suspend,
    /// A program blocks one of its runtimes; the client's thread continues.
    Block,
    /// A runtime ends, with all that runs on it; the program continues.
    EndRuntime,
    /// A process dies, and another comes.
    Crash,
    /// A holder dies. Mostly the store's clock is set back then.
    KillHolder,
    /// A holder stands still. Mostly an operator revokes its lease then.
    PauseHolder,
    /// All waiters in a process drop their futures.
    Storm,
    /// Of a quorum: a node loses everything, and its connections live on.
    Flush,
    /// Of a quorum: a node restarts, without its last writes.
    Rollback,
    /// Of a quorum: all clients are cut off from some nodes.
    Isolate,
}

impl Kind {
    pub(super) const ALL: &[Self] = &[
        Self::Cut,
        Self::Ghosts,
        Self::HalfOpen,
        Self::Stall,
        Self::Partition,
        Self::Refuse,
        Self::LoseReply,
        Self::LosePushes,
        Self::Freeze,
        Self::Restart,
        Self::Amnesia,
        Self::Failover,
        Self::JumpForward,
        Self::JumpBack,
        Self::NoMemory,
        Self::Pause,
        Self::Suspend,
        Self::Block,
        Self::EndRuntime,
        Self::Crash,
        Self::KillHolder,
        Self::PauseHolder,
        Self::Storm,
    ];

    /// The kinds of faults of a quorum.
    pub(super) const OF_QUORUM: &[Self] = &[
        Self::Cut,
        Self::Ghosts,
        Self::HalfOpen,
        Self::Stall,
        Self::Partition,
        Self::Isolate,
        Self::Refuse,
        Self::LoseReply,
        Self::LosePushes,
        Self::Freeze,
        Self::Restart,
        Self::Amnesia,
        Self::Flush,
        Self::Rollback,
        Self::JumpForward,
        Self::JumpBack,
        Self::NoMemory,
        Self::Pause,
        Self::Suspend,
        Self::Block,
        Self::EndRuntime,
        Self::Crash,
        Self::KillHolder,
        Self::PauseHolder,
        Self::Storm,
    ];

    /// Returns whether it acts on one client.
    pub(super) const fn is_of_a_process(self) -> bool {
        matches!(
            self,
            Self::Partition | Self::Pause | Self::Suspend | Self::Block | Self::EndRuntime | Self::Crash | Self::Storm
        )
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Ghosts => "ghosts",
            Self::HalfOpen => "half open",
            Self::Stall => "stall",
            Self::Partition => "partition",
            Self::Refuse => "connections refused",
            Self::LoseReply => "lost reply",
            Self::LosePushes => "lost pushes",
            Self::Freeze => "frozen server",
            Self::Restart => "restart",
            Self::Amnesia => "restart without data",
            Self::Failover => "failover",
            Self::JumpForward => "clock forward",
            Self::JumpBack => "clock back",
            Self::NoMemory => "full memory",
            Self::Pause => "pause",
            Self::Suspend => "suspend",
            Self::Block => "blocked runtime",
            Self::EndRuntime => "ended runtime",
            Self::Crash => "crash",
            Self::KillHolder => "crash of a holder",
            Self::PauseHolder => "pause of a holder",
            Self::Storm => "cancel storm",
            Self::Flush => "flush",
            Self::Rollback => "restart without the last writes",
            Self::Isolate => "isolated nodes",
        }
    }
}
