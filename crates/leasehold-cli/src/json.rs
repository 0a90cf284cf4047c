//! Output for programs: locks as `--json` prints them. Later versions may add fields.

use std::time::Duration;

use humantime::format_rfc3339_micros;
use leasehold::{Holder, Inspection, Kind, Mode, NodeSays, NodeView, Waiter};
use serde::Serialize;

/// A lock.
#[derive(Serialize)]
pub(crate) struct Lock<'a> {
    name: &'a str,
    state: &'static str,
    /// The first holder.
    holder: Option<HeldBy<'a>>,
    /// The number of waiters.
    waiters: usize,
    kind: &'static str,
    /// The number of units of the name: the permits of a semaphore.
    limit: u32,
    /// How many units are taken.
    units: u32,
    /// The first 16 holders.
    holders: Vec<HeldBy<'a>>,
    holder_count: usize,
    /// The first 16 waiters, in order. Empty on a quorum.
    queue: Vec<WaitsFor<'a>>,
    /// Empty if the store is not a quorum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Node<'a>>,
}

/// The reply of a node of a quorum.
#[derive(Serialize)]
struct Node<'a> {
    at: &'a str,
    state: &'static str,
    holder: Option<HeldBy<'a>>,
    rests_ms: Option<u64>,
    why: Option<&'a str>,
}

/// A holder of a lock.
#[derive(Serialize)]
pub(crate) struct HeldBy<'a> {
    label: &'a str,
    grant: String,
    token: u64,
    /// RFC 3339, by the clock of the store.
    held_since: String,
    remaining_ms: u64,
    mode: &'static str,
    units: u32,
}

/// A waiter.
#[derive(Serialize)]
struct WaitsFor<'a> {
    label: &'a str,
    /// The grant that the waiter will have.
    grant: String,
    mode: &'static str,
    units: u32,
    /// For how long the caller still waits; null: without a limit.
    remaining_ms: Option<u64>,
}

impl<'a> Lock<'a> {
    pub(crate) fn new(name: &'a str, inspection: &'a Inspection) -> Self {
        let holder = inspection.holder();
        let state = match holder {
            None if inspection.is_known() => "free",
            None => "unknown",
            Some(holder) if holder.is_revoked => "revoked",
            Some(holder) if holder.is_cooling_down => "cooling_down",
            Some(_) => "held",
        };
        Self {
            name,
            state,
            holder: holder.map(HeldBy::new),
            waiters: inspection.waiters,
            kind: kind(inspection.kind),
            limit: inspection.limit,
            units: inspection.units,
            holders: inspection.holders.iter().map(HeldBy::new).collect(),
            holder_count: inspection.holder_count,
            queue: inspection.queue.iter().map(WaitsFor::new).collect(),
            nodes: inspection.nodes.iter().map(Node::new).collect(),
        }
    }
}

impl<'a> Node<'a> {
    fn new(node: &'a NodeView) -> Self {
        let silent = Self { at: &node.at, state: "unknown", holder: None, rests_ms: None, why: None };
        match &node.says {
            NodeSays::Voted(holder) => Self { state: "voted", holder: Some(HeldBy::new(holder)), ..silent },
            NodeSays::Free => Self { state: "free", ..silent },
            NodeSays::Resting { left } => Self { state: "resting", rests_ms: Some(ms(*left)), ..silent },
            NodeSays::Nothing { why } => Self { why: Some(why), ..silent },
            _ => silent,
        }
    }
}

impl<'a> HeldBy<'a> {
    pub(crate) fn new(holder: &'a Holder) -> Self {
        Self {
            label: &holder.label,
            grant: holder.id(),
            token: holder.token.get(),
            held_since: format_rfc3339_micros(holder.held_since()).to_string(),
            remaining_ms: ms(holder.remaining),
            mode: mode(holder.mode),
            units: holder.units,
        }
    }
}

impl<'a> WaitsFor<'a> {
    fn new(waiter: &'a Waiter) -> Self {
        Self {
            label: &waiter.label,
            grant: waiter.id(),
            mode: mode(waiter.mode),
            units: waiter.units,
            remaining_ms: waiter.remaining.map(ms),
        }
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Mutex => "mutex",
        Kind::ReadWrite => "read_write",
        Kind::Semaphore => "semaphore",
        Kind::Condition => "condition",
        Kind::Latch => "latch",
        Kind::Barrier => "barrier",
        _ => "other",
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Lock => "lock",
        Mode::Read => "read",
        Mode::UpgradeableRead => "upgradeable_read",
        Mode::Write => "write",
        Mode::Upgrade => "upgrade",
        Mode::Permits => "permits",
        _ => "other",
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
