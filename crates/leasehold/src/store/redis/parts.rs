//! The parts that scripts share. They are put in as text: `part/open.lua` says why they are not functions.
//!
//! A part that contains the mark of another part comes before that part.

use super::scripts::Family;

impl Family {
    /// Returns the marks of its scripts, and the part that replaces each.
    pub(super) fn parts(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Locks => LOCK_PARTS,
            Self::Pools => POOL_PARTS,
            Self::Node => NODE_PARTS,
        }
    }
}

/// The parts of the scripts of locks.
const LOCK_PARTS: &[(&str, &str)] = &[
    ("--@long\n", include_str!("part/long.lua")),
    ("--@acquire\n", include_str!("part/acquire.lua")),
    ("--@release\n", include_str!("part/release.lua")),
    ("--@clock\n", include_str!("part/clock.lua")),
    ("--@take\n", include_str!("part/take.lua")),
    ("--@join\n", include_str!("part/join.lua")),
    ("--@free\n", include_str!("part/free.lua")),
    ("--@pass\n", include_str!("part/pass.lua")),
    ("--@prolong\n", include_str!("part/prolong.lua")),
    ("--@open\n", include_str!("part/open.lua")),
    ("--@fetch\n", include_str!("part/fetch.lua")),
    ("--@cut\n", include_str!("part/cut.lua")),
    ("--@enqueue\n", include_str!("part/enqueue.lua")),
    ("--@recheck\n", include_str!("part/recheck.lua")),
    ("--@wait\n", include_str!("part/wait.lua")),
    ("--@unlink\n", include_str!("part/unlink.lua")),
    ("--@settle\n", include_str!("part/settle.lua")),
    ("--@correct\n", include_str!("part/correct.lua")),
    ("--@expire\n", include_str!("part/expire.lua")),
    ("--@promote\n", include_str!("part/promote.lua")),
    ("--@next\n", include_str!("part/next.lua")),
    ("--@alive\n", include_str!("part/alive.lua")),
    ("--@spend\n", include_str!("part/spend.lua")),
    ("--@mint\n", include_str!("part/mint.lua")),
    ("--@last\n", include_str!("part/last.lua")),
    ("--@save\n", include_str!("part/save.lua")),
];

/// The parts of the scripts of pools.
const POOL_PARTS: &[(&str, &str)] = &[
    ("--@clock\n", include_str!("part/clock.lua")),
    ("--@take\n", include_str!("pool/part/take.lua")),
    ("--@free\n", include_str!("pool/part/free.lua")),
    ("--@prolong\n", include_str!("pool/part/prolong.lua")),
    ("--@pool\n", include_str!("pool/part/pool.lua")),
    ("--@open\n", include_str!("pool/part/open.lua")),
    ("--@cut\n", include_str!("pool/part/cut.lua")),
    ("--@grant\n", include_str!("pool/part/grant.lua")),
    ("--@latch\n", include_str!("pool/part/latch.lua")),
    ("--@policy\n", include_str!("pool/part/policy.lua")),
    ("--@queue\n", include_str!("pool/part/queue.lua")),
    ("--@expire\n", include_str!("pool/part/expire.lua")),
    ("--@sweep\n", include_str!("pool/part/sweep.lua")),
    ("--@serve\n", include_str!("pool/part/serve.lua")),
    ("--@round\n", include_str!("pool/part/round.lua")),
    ("--@replace\n", include_str!("pool/part/replace.lua")),
    ("--@settle\n", include_str!("pool/part/settle.lua")),
    ("--@give_back\n", include_str!("pool/part/give_back.lua")),
    ("--@save\n", include_str!("pool/part/save.lua")),
    ("--@enqueue\n", include_str!("pool/part/enqueue.lua")),
    ("--@refuse\n", include_str!("pool/part/refuse.lua")),
    ("--@arrive\n", include_str!("pool/part/arrive.lua")),
    ("--@upgrade\n", include_str!("pool/part/upgrade.lua")),
    ("--@leave\n", include_str!("pool/part/leave.lua")),
];

/// The parts of the scripts of a node.
const NODE_PARTS: &[(&str, &str)] = &[
    ("--@clock\n", include_str!("part/clock.lua")),
    ("--@marked\n", include_str!("node/part/marked.lua")),
    ("--@vote\n", include_str!("node/part/vote.lua")),
    ("--@prolong\n", include_str!("node/part/prolong.lua")),
    ("--@open\n", include_str!("node/part/open.lua")),
    ("--@queue\n", include_str!("node/part/queue.lua")),
    ("--@cut\n", include_str!("node/part/cut.lua")),
    ("--@enqueue\n", include_str!("node/part/enqueue.lua")),
    ("--@unlink\n", include_str!("node/part/unlink.lua")),
    ("--@give\n", include_str!("node/part/give.lua")),
    ("--@settle\n", include_str!("node/part/settle.lua")),
    ("--@lapse\n", include_str!("node/part/lapse.lua")),
    ("--@next\n", include_str!("node/part/next.lua")),
    ("--@head\n", include_str!("node/part/head.lua")),
    ("--@save\n", include_str!("node/part/save.lua")),
];
