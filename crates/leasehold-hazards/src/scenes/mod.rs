//! The scenes, by what goes wrong in them.
//!
//! | File | Scenes |
//! |---|---|
//! | `beginnings.rs` | S0a, S0b, H1, H2: no lock, and locks of dead processes |
//! | `expiry.rs` | H3, H4, H5, S8, N7: leases that end while their holders work |
//! | `clocks.rs` | H6, H7, H8, H11: clocks of clients, and clocks that jump |
//! | `servers.rs` | H9, H10, S10: servers that forget |
//! | `replies.rs` | H12, H13, N8, N9: requests, replies and messages that are lost or never sent |
//! | `queues.rs` | H14, H15, H17: the order, the number and the time limits of waiters |
//! | `owners.rs` | H16, H18, S6: the re-entrant lock of one tutorial |

mod beginnings;
mod clocks;
mod expiry;
mod owners;
mod queues;
mod replies;
mod servers;

use crate::client::{Client, Mark};
use crate::judge::Observable;
use crate::scene::{Ours, Scene};
use crate::specimens::Lock;
use crate::specimens::leasehold::Leasehold;
use crate::specimens::quorum::Quorum;
use crate::world::{Bounds, Faults, Stage};

/// All scenes, in the order of the list.
pub(crate) const ALL: &[Scene] = &[
    beginnings::NO_LOCK,
    beginnings::LOCAL,
    beginnings::TWO_STEPS,
    beginnings::DEAD_HOLDER,
    expiry::WRONG_OWNER,
    expiry::CHECK_THEN_DELETE,
    expiry::OVERSTAY,
    clocks::CLIENT_CLOCKS,
    clocks::OVERWRITES,
    clocks::DELETE_ON_EXPIRY,
    servers::FAILOVER,
    servers::AMNESIA,
    clocks::JUMP,
    replies::UNKNOWN_OUTCOME,
    replies::MISSED_WAKE_UP,
    queues::STARVATION,
    queues::HERD,
    owners::NO_OWNER,
    queues::WAIT_FOR_LEASE,
    owners::RENEWED_FOR_EVER,
    owners::EMPTY_METHODS,
    expiry::LATE_GUARD,
    servers::MULTI_LOCK,
    expiry::INSTANCE_OWNER,
    replies::ORPHAN,
    replies::CANCELLED,
];

/// The key of the lock.
const KEY: &str = "lock";
/// The lease of all locks, in seconds.
const LEASE_S: u64 = 3;
/// A lock that nobody holds is free after this time, if it becomes free at all: its lease, and time for a retry.
const STALL: Observable = Observable::Stall((LEASE_S + 2) * 1000);

/// Bounds without faults: time passes only when everybody waits for it.
const PUNCTUAL: Bounds = Bounds { faults: NO_FAULTS, tick_ms: 1000, end_ms: 7000, jump_ms: LEASE_S * 1000 };
const NO_FAULTS: Faults = Faults {
    pauses: &[],
    lost_replies: 0,
    lost_requests: 0,
    lost_messages: 0,
    kills: &[],
    stops: &[],
    restarts: 0,
    jumps: 0,
    failovers: 0,
};
/// Bounds in which the first process can pause at any time.
const PAUSES: Bounds = Bounds { faults: Faults { pauses: &[0], ..NO_FAULTS }, end_ms: LEASE_S * 1000, ..PUNCTUAL };

/// A process that locks, writes to the resource and unlocks, this many times.
async fn work(client: Client, lock: impl Lock, rounds: usize) {
    for _ in 0..rounds {
        once(&client, &lock).await;
    }
}

/// One round of [`work`].
async fn once(client: &Client, lock: &impl Lock) {
    client.mark(Mark::Wants(None));
    let grant = lock.lock(client).await;
    client.mark(Mark::Enters(grant.held));
    if lock.check(client, &grant).await {
        client.write(grant.held).await;
    }
    client.mark(Mark::Leaves);
    lock.unlock(client, &grant).await;
}

/// Adds processes with the same lock.
fn workers<L: Lock + 'static>(stage: &mut Stage, names: &[&'static str], lock: fn(&Client) -> L) {
    for name in names {
        stage.process(name, move |client| async move {
            let lock = lock(&client);
            work(client, lock, 1).await;
        });
    }
}

fn our_lock(label: &str) -> Leasehold {
    Leasehold::new(KEY, label, LEASE_S)
}

/// Adds processes that lock once with Leasehold.
fn our_workers(stage: &mut Stage, names: &[&'static str]) {
    for name in names {
        stage.process(name, |client| work(client, our_lock(name), 1));
    }
}

/// Two processes with Leasehold on one server.
const OUR_TWO: Ours = Ours { store: "redis://", stage: |stage| our_workers(stage, &["A", "B"]), permits: None };
/// Two processes with Leasehold on one server, of which the first one locks twice: if its late release ended the grant of
/// the second one, it would enter beside it.
const OUR_TWO_AGAIN: Ours = Ours {
    store: "redis://",
    stage: |stage| {
        stage.process("A", |client| work(client, our_lock("A"), 2));
        our_workers(stage, &["B"]);
    },
    permits: None,
};
/// Two processes with Leasehold on a quorum of three.
const OUR_QUORUM: Ours = Ours {
    store: "quorum:",
    stage: |stage| {
        stage.servers(3);
        for name in ["A", "B"] {
            stage.process(name, |client| work(client, Quorum::new(KEY, name, LEASE_S, 3), 1));
        }
    },
    permits: None,
};
