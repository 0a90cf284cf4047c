//! The kinds of faults, and their properties.

use super::options::Store;
use super::plan::{Disk, Epoch, Reach};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// kill -9 of a client, which is started again.
    KillClient,
    /// kill -9 of the client that holds the hottest lock.
    KillHolder,
    /// SIGSTOP of a client, for less than a lease or for more.
    StopClient,
    /// SIGSTOP of the client that holds the hottest lock, for longer than the lease.
    StopHolder,
    /// Four computing processes compete with everything else for the processors of the machine.
    Starve,
    /// One tokio runtime of a client is blocked.
    BlockRuntime,
    /// One tokio runtime of a client ends, with the tasks that wait and hold on it, and a new one replaces it.
    EndRuntime,
    /// SIGSTOP of a client that holds a lock with a long lease, which a client then revokes that exits at once.
    RevokeStopped,
    /// kill -9 of a server that flushes before it replies: nothing is lost.
    CrashKeeping,
    /// kill -9 of a server that flushes every second, on a slow disk: the last acknowledged writes are lost.
    CrashLosingTail,
    /// kill -9 of a server, and its disk is lost.
    CrashEmpty,
    /// SIGSTOP of the server, for less than a lease.
    Freeze,
    /// SIGSTOP of the server, for longer than every lease.
    FreezeLong,
    /// DEBUG SLEEP.
    Sleep,
    /// The server dies, and a replica that missed the last writes replaces it.
    Failover,
    /// The server's clock is set forward.
    ClockForward,
    /// The server's clock is set back.
    ClockBack,
    /// kill -9 of a client that holds a lock, after which the server's clock is set back.
    ClockBackBehindDead,
    /// Every flush takes long.
    SlowDisk,
    /// maxmemory is reached.
    Full,
    /// CLIENT KILL TYPE pubsub: every inbox.
    KillInboxes,
    /// CLIENT KILL TYPE normal.
    KillCallers,
    /// CLIENT KILL ID, of a few.
    KillConnection,
    /// SCRIPT FLUSH.
    ScriptFlush,
    /// FLUSHALL.
    FlushAll,
    /// CLIENT PAUSE ALL, or WRITE.
    ClientPause,
    /// Every connection is reset.
    Cut,
    /// Every connection is reset, and new ones are refused for a while.
    Refuse,
    /// Requests do not arrive.
    StallRequests,
    /// Replies do not arrive.
    StallReplies,
    /// Neither arrives.
    StallBoth,
    /// Requests on existing connections do not arrive; new connections work. The requests arrive later, or never.
    HalfOpen,
    /// Everything takes longer.
    Latency,
    /// A script is carried out, and its connection delivers nothing from its reply on.
    LoseReply,
    /// A script is carried out, and its connection breaks instead of delivering the reply.
    CutAtReply,
    /// A script arrives up to 2.5 s late.
    LateRequest,
    /// Pushed messages are lost.
    LosePush,
    /// The client receives bytes that are no reply.
    Garble,
}

/// The target of a fault: two faults on the same process come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Clients,
    ServerProcess,
    ServerInside,
    Network,
}

impl Kind {
    pub(crate) const ALL: [Self; 38] = [
        Self::KillClient,
        Self::KillHolder,
        Self::StopClient,
        Self::StopHolder,
        Self::Starve,
        Self::BlockRuntime,
        Self::EndRuntime,
        Self::RevokeStopped,
        Self::CrashKeeping,
        Self::CrashLosingTail,
        Self::CrashEmpty,
        Self::Freeze,
        Self::FreezeLong,
        Self::Sleep,
        Self::Failover,
        Self::ClockForward,
        Self::ClockBack,
        Self::ClockBackBehindDead,
        Self::SlowDisk,
        Self::Full,
        Self::KillInboxes,
        Self::KillCallers,
        Self::KillConnection,
        Self::ScriptFlush,
        Self::FlushAll,
        Self::ClientPause,
        Self::Cut,
        Self::Refuse,
        Self::StallRequests,
        Self::StallReplies,
        Self::StallBoth,
        Self::HalfOpen,
        Self::Latency,
        Self::LoseReply,
        Self::CutAtReply,
        Self::LateRequest,
        Self::LosePush,
        Self::Garble,
    ];

    /// Returns the kind with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| format!("{kind:?}") == name)
    }

    pub(crate) fn target(self) -> Target {
        match self {
            Self::KillClient
            | Self::KillHolder
            | Self::StopClient
            | Self::StopHolder
            | Self::Starve
            | Self::BlockRuntime
            | Self::EndRuntime
            | Self::RevokeStopped => Target::Clients,
            Self::CrashKeeping
            | Self::CrashLosingTail
            | Self::CrashEmpty
            | Self::Freeze
            | Self::FreezeLong
            | Self::Sleep
            | Self::Failover => Target::ServerProcess,
            Self::ClockForward
            | Self::ClockBack
            | Self::ClockBackBehindDead
            | Self::SlowDisk
            | Self::Full
            | Self::KillInboxes
            | Self::KillCallers
            | Self::KillConnection
            | Self::ScriptFlush
            | Self::FlushAll
            | Self::ClientPause => Target::ServerInside,
            _ => Target::Network,
        }
    }

    /// Whether the fault can strike the server of such an epoch.
    pub(crate) fn strikes(self, epoch: Epoch) -> bool {
        match self {
            Self::CrashKeeping => epoch.disk == Disk::Always,
            Self::CrashLosingTail => epoch.disk == Disk::EverySecond,
            Self::SlowDisk => epoch.disk != Disk::None,
            Self::Failover => epoch.reach == Reach::Led,
            _ => true,
        }
    }

    /// Whether the fault can strike this store. Nodes of a quorum have no replicas, and their clocks are not set.
    pub(crate) fn is_of(self, store: Store) -> bool {
        match store {
            Store::Redis => true,
            Store::File => self.target() == Target::Clients,
            Store::Quorum => {
                !matches!(self, Self::Failover | Self::ClockForward | Self::ClockBack | Self::ClockBackBehindDead)
            }
        }
    }

    /// Whether a round may begin with this fault alone: its promises are judged then.
    pub(crate) fn is_solo(self) -> bool {
        matches!(self, Self::BlockRuntime | Self::EndRuntime) || !self.is_mixed()
    }

    /// Whether the fault comes together with others.
    pub(crate) fn is_mixed(self) -> bool {
        !matches!(self, Self::RevokeStopped | Self::ClockBackBehindDead)
    }

    /// Whether a server loses data by the fault.
    pub(crate) fn forgets(self) -> bool {
        matches!(self, Self::CrashLosingTail | Self::CrashEmpty | Self::Failover | Self::FlushAll)
    }

    /// Whether there are epochs in which the fault cannot strike.
    pub(crate) fn is_rare(self) -> bool {
        matches!(self, Self::CrashKeeping | Self::CrashLosingTail | Self::SlowDisk | Self::Failover)
    }

    /// Returns the shortest and the longest duration, in milliseconds. Leases are 400 ms to 3 s.
    pub(crate) fn lasts_ms(self) -> (u64, u64) {
        match self {
            Self::KillClient | Self::KillHolder => (0, 1_500),
            Self::StopClient => (50, 4_000),
            Self::StopHolder => (1_200, 4_000),
            Self::Starve => (700, 1_500),
            Self::BlockRuntime => (300, 3_000),
            Self::CrashKeeping | Self::CrashEmpty => (0, 1_500),
            // The time for which the disk is slow before the kill: with flushes of 1.5 s, a write is delayed at any time
            // after the second one.
            Self::CrashLosingTail => (2_200, 3_500),
            Self::Freeze => (30, 350),
            Self::FreezeLong => (3_100, 4_000),
            Self::Sleep => (100, 1_200),
            Self::Failover => (100, 1_000),
            Self::SlowDisk => (500, 2_500),
            Self::Full => (300, 2_500),
            Self::ClientPause => (50, 1_500),
            Self::Refuse => (100, 2_500),
            Self::StallRequests | Self::StallReplies | Self::StallBoth => (100, 3_500),
            Self::HalfOpen => (500, 4_800),
            Self::Latency => (500, 3_000),
            // The time for which they are armed; each strikes a few times at most.
            Self::LoseReply | Self::CutAtReply | Self::LateRequest | Self::Garble => (2_000, 3_000),
            Self::LosePush => (500, 3_000),
            // These take no time.
            Self::ClockForward
            | Self::ClockBack
            | Self::ClockBackBehindDead
            | Self::EndRuntime
            | Self::RevokeStopped
            | Self::KillInboxes
            | Self::KillCallers
            | Self::KillConnection
            | Self::ScriptFlush
            | Self::FlushAll
            | Self::Cut => (0, 0),
        }
    }
}
