//! The scripts: one table.
//!
//! A new script is a variant, a row and a Lua file here, and its arguments in `call.rs` or `node/call.rs`. If it ends a
//! grant or a wait, it is also listed in [`Script::may_precede_acquire`]. Everything else takes what it needs from the
//! row: which scripts are loaded (`handshake.rs`), which replies are believed (`reply.rs`), which rights are checked
//! (`rights.rs`), and the server of the tests (`front` in leasehold-testkit). If a script calls a command that no other
//! script calls, `rights.rs` gets that command, too.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use super::source::{Source, assemble, digest};

/// A script. Variants are in the order of the rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Takes the lease, or a place in the queue.
    Acquire,
    /// Takes several leases, or none.
    AcquireAll,
    /// Acquires and releases many names.
    Many,
    /// Renews the leases of up to 16 names.
    Renew,
    /// Gives the lease back.
    Release,
    /// Makes the range of tokens of a grant longer.
    Reserve,
    /// Changes the label of a grant.
    Put,
    /// Gives the lease to the waiter that the holder names.
    HandTo,
    /// Stops waiting.
    Leave,
    /// Gives the lease back, and grants it to nobody for a while.
    CoolDown,
    /// Marks a grant, and shortens its lease to the grace.
    Revoke,
    /// Ends what has ended, and hands a free lease on.
    Settle,
    /// Reads, and writes nothing.
    Inspect,
    /// Takes units of a pool, or a place in its queue.
    PoolAcquire,
    /// Renews grants of pools, of up to 16 names.
    PoolRenew,
    /// Gives units back.
    PoolRelease,
    /// Gives units back, and grants them to nobody for a while.
    PoolCoolDown,
    /// Stops waiting for units.
    PoolLeave,
    /// Makes a grant smaller.
    PoolLower,
    /// Gives a semaphore another limit.
    PoolResize,
    /// Notifies waiters of a condition variable.
    PoolNotify,
    /// Ends a notification.
    PoolSpend,
    /// Creates a latch.
    PoolCreate,
    /// Returns the state of a latch.
    PoolState,
    /// Counts a latch down.
    PoolCountDown,
    /// Deletes a latch.
    PoolDelete,
    /// Marks a grant of a pool, and shortens its lease to the grace.
    PoolRevoke,
    /// Ends what has ended, and grants to the waiters that fit.
    PoolSettle,
    /// Reads a pool, and writes nothing.
    PoolInspect,
    /// Gives the vote, or a place in the queue.
    NodeAsk,
    /// Renews the votes of up to 16 names.
    NodeRenew,
    /// Takes the vote back, and the place in the queue.
    NodeGiveBack,
    /// Takes the vote back, and gives it to nobody for a while.
    NodeCoolDown,
    /// Marks a grant, and shortens its vote to the grace.
    NodeRevoke,
    /// Ends what has ended, and calls the next waiter.
    NodeSettle,
    /// Reads, and writes nothing.
    NodeInspect,
    /// Greets the node: writes and returns the marker.
    NodeEnter,
    /// Ends a quarantine.
    NodeBegin,
}

/// The scripts of one protocol. A connection to one Redis uses `Locks` and `Pools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Mutexes on one Redis. The first exchange loads all of them (`handshake.rs`).
    Locks,
    /// Pools on one Redis: names of every kind but mutexes. They are loaded when the server misses one (`wire.rs`).
    Pools,
    /// A node of a quorum. The first exchange loads all of them.
    Node,
}

/// When the server runs a script, as the first line of its file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flags {
    /// No flags: on a primary that has memory left.
    Plain,
    /// `allow-oom`: also if the memory is full, since the script gives back or hands on.
    AllowOom,
    /// `no-writes`: also on a replica.
    NoWrites,
}

struct Row {
    script: Script,
    family: Family,
    /// The path of the file, without `.lua`.
    name: &'static str,
    own: &'static str,
    flags: Flags,
    /// The number of arguments, without those that each name has.
    arguments: RangeInclusive<usize>,
    /// The number of arguments that each name has.
    each: usize,
    /// The first words of the replies that report on a record.
    replies: &'static [&'static str],
}

#[rustfmt::skip]
static TABLE: [Row; 38] = {
    use Family::{Locks, Node, Pools};
    use Flags::{AllowOom, NoWrites, Plain};
    use Script::{
        Acquire, AcquireAll, CoolDown, HandTo, Inspect, Leave, Many,
        NodeAsk, NodeBegin, NodeCoolDown, NodeEnter, NodeGiveBack, NodeInspect,
        NodeRenew, NodeRevoke, NodeSettle, PoolAcquire, PoolCoolDown, PoolCountDown, PoolCreate, PoolDelete,
        PoolInspect, PoolLeave, PoolLower, PoolNotify, PoolRelease, PoolRenew, PoolResize, PoolRevoke, PoolSettle,
        PoolSpend, PoolState, Put, Release, Renew, Reserve, Revoke, Settle,
    };
    [
        Row { script: Acquire, family: Locks, name: "acquire", own: include_str!("acquire.lua"),
            flags: Plain, arguments: 5..=8, each: 0, replies: &["GRANTED", "QUEUED", "BUSY", "GONE", "LATE", "FULL"] },
        Row { script: AcquireAll, family: Locks, name: "acquire_all", own: include_str!("acquire_all.lua"),
            flags: Plain, arguments: 1..=1, each: 4, replies: &[] },
        Row { script: Many, family: Locks, name: "many", own: include_str!("many.lua"),
            flags: Plain, arguments: 8..=8, each: 1, replies: &[] },
        Row { script: Renew, family: Locks, name: "renew", own: include_str!("renew.lua"),
            flags: AllowOom, arguments: 2..=2, each: 1, replies: &["RENEWED", "LOST", "LATE"] },
        Row { script: Release, family: Locks, name: "release", own: include_str!("release.lua"),
            flags: AllowOom, arguments: 1..=3, each: 0, replies: &["RELEASED", "NOTHELD"] },
        Row { script: Reserve, family: Locks, name: "reserve", own: include_str!("reserve.lua"),
            flags: AllowOom, arguments: 1..=1, each: 0, replies: &["RESERVED", "LOST"] },
        Row { script: Put, family: Locks, name: "put", own: include_str!("put.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["PUT", "LOST"] },
        Row { script: HandTo, family: Locks, name: "hand_to", own: include_str!("hand_to.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["RELEASED", "NOWAITER", "LOST"] },
        Row { script: Leave, family: Locks, name: "leave", own: include_str!("leave.lua"),
            flags: AllowOom, arguments: 1..=2, each: 0, replies: &["LEFT"] },
        Row { script: CoolDown, family: Locks, name: "cool_down", own: include_str!("cool_down.lua"),
            flags: AllowOom, arguments: 2..=3, each: 0, replies: &["LEFT"] },
        Row { script: Revoke, family: Locks, name: "revoke", own: include_str!("revoke.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["REVOKING", "NOTHELD"] },
        Row { script: Settle, family: Locks, name: "settle", own: include_str!("settle.lua"),
            flags: AllowOom, arguments: 0..=0, each: 0, replies: &["SETTLED"] },
        Row { script: Inspect, family: Locks, name: "inspect", own: include_str!("inspect.lua"),
            flags: NoWrites, arguments: 0..=0, each: 0, replies: &["INSPECTED"] },
        Row { script: PoolAcquire, family: Pools, name: "pool/acquire", own: include_str!("pool/acquire.lua"),
            flags: Plain, arguments: 6..=9, each: 0,
            replies: &["GRANTED", "QUEUED", "BUSY", "GONE", "LATE", "FULL", "REFUSED"] },
        Row { script: PoolRenew, family: Pools, name: "pool/renew", own: include_str!("pool/renew.lua"),
            flags: AllowOom, arguments: 2..=2, each: 1, replies: &["RENEWED", "LOST", "LATE"] },
        Row { script: PoolRelease, family: Pools, name: "pool/release", own: include_str!("pool/release.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["RELEASED", "NOTHELD"] },
        Row { script: PoolCoolDown, family: Pools, name: "pool/cool_down", own: include_str!("pool/cool_down.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["LEFT"] },
        Row { script: PoolLeave, family: Pools, name: "pool/leave", own: include_str!("pool/leave.lua"),
            flags: AllowOom, arguments: 1..=1, each: 0, replies: &["LEFT"] },
        Row { script: PoolLower, family: Pools, name: "pool/lower", own: include_str!("pool/lower.lua"),
            flags: AllowOom, arguments: 3..=3, each: 0, replies: &["LOWERED", "LOST"] },
        Row { script: PoolResize, family: Pools, name: "pool/resize", own: include_str!("pool/resize.lua"),
            flags: AllowOom, arguments: 3..=3, each: 0, replies: &["RESIZED", "REFUSED", "LATE"] },
        Row { script: PoolNotify, family: Pools, name: "pool/notify", own: include_str!("pool/notify.lua"),
            flags: AllowOom, arguments: 1..=1, each: 0, replies: &["NOTIFIED", "REFUSED"] },
        Row { script: PoolSpend, family: Pools, name: "pool/spend", own: include_str!("pool/spend.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["SPENT", "NOTHELD"] },
        Row { script: PoolCreate, family: Pools, name: "pool/create", own: include_str!("pool/create.lua"),
            flags: Plain, arguments: 3..=3, each: 0, replies: &["COUNTED", "REFUSED", "LATE"] },
        Row { script: PoolState, family: Pools, name: "pool/state", own: include_str!("pool/state.lua"),
            flags: AllowOom, arguments: 1..=1, each: 0, replies: &["COUNTED", "REFUSED", "LATE"] },
        Row { script: PoolCountDown, family: Pools, name: "pool/count_down", own: include_str!("pool/count_down.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["COUNTED", "REFUSED"] },
        Row { script: PoolDelete, family: Pools, name: "pool/delete", own: include_str!("pool/delete.lua"),
            flags: AllowOom, arguments: 1..=1, each: 0, replies: &["DELETED"] },
        Row { script: PoolRevoke, family: Pools, name: "pool/revoke", own: include_str!("pool/revoke.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["REVOKING", "NOTHELD"] },
        Row { script: PoolSettle, family: Pools, name: "pool/settle", own: include_str!("pool/settle.lua"),
            flags: AllowOom, arguments: 0..=0, each: 0, replies: &["SETTLED"] },
        Row { script: PoolInspect, family: Pools, name: "pool/inspect", own: include_str!("pool/inspect.lua"),
            flags: NoWrites, arguments: 0..=0, each: 0, replies: &["INSPECTED"] },
        Row { script: NodeAsk, family: Node, name: "node/ask", own: include_str!("node/ask.lua"),
            flags: Plain, arguments: 7..=8, each: 0, replies: &["GRANTED", "REFUSED", "BELOW", "FAR", "LATE", "FULL"] },
        Row { script: NodeRenew, family: Node, name: "node/renew", own: include_str!("node/renew.lua"),
            flags: AllowOom, arguments: 3..=3, each: 1, replies: &["RENEWED", "FILLED", "LOST", "LATE"] },
        Row { script: NodeGiveBack, family: Node, name: "node/give_back", own: include_str!("node/give_back.lua"),
            flags: AllowOom, arguments: 2..=4, each: 0, replies: &["GIVEN"] },
        Row { script: NodeCoolDown, family: Node, name: "node/cool_down", own: include_str!("node/cool_down.lua"),
            flags: AllowOom, arguments: 3..=3, each: 0, replies: &["GIVEN"] },
        Row { script: NodeRevoke, family: Node, name: "node/revoke", own: include_str!("node/revoke.lua"),
            flags: AllowOom, arguments: 2..=2, each: 0, replies: &["REVOKING", "NOTHELD"] },
        Row { script: NodeSettle, family: Node, name: "node/settle", own: include_str!("node/settle.lua"),
            flags: AllowOom, arguments: 0..=0, each: 0, replies: &["SETTLED"] },
        Row { script: NodeInspect, family: Node, name: "node/inspect", own: include_str!("node/inspect.lua"),
            flags: NoWrites, arguments: 0..=0, each: 0, replies: &["INSPECTED"] },
        Row { script: NodeEnter, family: Node, name: "node/enter", own: include_str!("node/enter.lua"),
            flags: AllowOom, arguments: 4..=4, each: 0, replies: &[] },
        Row { script: NodeBegin, family: Node, name: "node/begin", own: include_str!("node/begin.lua"),
            flags: AllowOom, arguments: 4..=4, each: 0, replies: &[] },
    ]
};

/// Each row is at the index of its variant.
const _: () = {
    let mut at = 0;
    while at < TABLE.len() {
        assert!(TABLE[at].script as usize == at);
        at += 1;
    }
};

impl Script {
    pub(super) const COUNT: usize = TABLE.len();

    /// Returns the path of its file, without `.lua`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns what the server runs. Assembled at the first call.
    #[must_use]
    pub fn source(self) -> &'static str {
        &self.assembled().text
    }

    /// Returns the name by which the server knows it: the SHA-1 of the source, in hexadecimal.
    #[must_use]
    pub fn sha(self) -> &'static str {
        &self.assembled().sha
    }

    /// Returns when the server runs it.
    #[must_use]
    pub fn flags(self) -> Flags {
        self.row().flags
    }

    /// Returns the scripts with which it is loaded.
    pub(super) fn family(self) -> Family {
        self.row().family
    }

    /// Whether a call about so many names can have so many arguments.
    #[must_use]
    pub fn takes(self, names: usize, arguments: usize) -> bool {
        let Row { arguments: alone, each, .. } = self.row();
        arguments.checked_sub(each * names).is_some_and(|arguments| alone.contains(&arguments))
    }

    /// Whether a client may send it right before its own acquire of the same name, on the same connection.
    pub(super) fn may_precede_acquire(self) -> bool {
        matches!(
            self,
            Self::Release
                | Self::Leave
                | Self::CoolDown
                | Self::PoolRelease
                | Self::PoolLeave
                | Self::PoolCoolDown
                | Self::NodeGiveBack
                | Self::NodeCoolDown
        )
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    fn assembled(self) -> &'static Source {
        static SOURCES: [OnceLock<Source>; Script::COUNT] = [const { OnceLock::new() }; Script::COUNT];
        SOURCES[self as usize].get_or_init(|| {
            let Row { name, own, family, .. } = self.row();
            assemble(own, family.parts(), |text| patched(name, text))
        })
    }
}

impl Family {
    /// Returns its scripts, in the order of the table.
    pub fn scripts(self) -> impl Iterator<Item = Script> + Clone {
        TABLE.iter().filter(move |row| row.family == self).map(|row| row.script)
    }

    /// Returns the script that asks the server which of our commands its user may not call. One line of it stands for all
    /// scripts of the family. So a server that knows it knows them: see `handshake.rs`.
    #[must_use]
    pub fn question(self) -> &'static Source {
        static QUESTIONS: [OnceLock<Source>; 3] = [const { OnceLock::new() }; 3];
        QUESTIONS[self as usize].get_or_init(|| {
            let all: Vec<&str> = self.scripts().map(Script::sha).collect();
            let own = assemble(include_str!("rights.lua"), &[], |text| text).text;
            Source::new(format!("{own}-- for {}\n", digest(&all.join("\n"))))
        })
    }

    /// Whether a reply that begins with this word reports on a record.
    pub(super) fn reports(self, word: &str) -> bool {
        TABLE.iter().any(|row| row.family == self && row.replies.contains(&word))
    }
}

#[cfg(leasehold_lab)]
fn patched(name: &str, text: String) -> String {
    super::mutants::patched(name, text)
}

#[cfg(not(leasehold_lab))]
fn patched(_: &str, text: String) -> String {
    text
}

#[cfg(test)]
#[path = "scripts_tests.rs"]
mod tests;
