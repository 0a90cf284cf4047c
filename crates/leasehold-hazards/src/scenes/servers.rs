//! Servers that forget.

use super::{KEY, LEASE_S, NO_FAULTS, OUR_QUORUM, OUR_TWO, PUNCTUAL, workers};
use crate::judge::Observable;
use crate::scene::{Ours, Scene};
use crate::specimens::multi_lock::MultiLock;
use crate::specimens::redisson::Redisson;
use crate::specimens::redlock::Redlock;
use crate::world::{Bounds, Faults};

pub(super) const FAILOVER: Scene = Scene {
    id: "H9",
    title: "a failover before the replication",
    lock: "Redisson's lock without WAIT, on a server with a replica",
    story: "A locks. The server dies before its replica has received the lock. The replica takes its place, \
            and B locks beside A.",
    remedy: "On one server the same happens, and the documentation says so. The token of B is larger, and the \
             resource refuses A. On a quorum no single failure loses a lock.",
    seeks: Observable::Overlap,
    flawed: |stage| workers(stage, &["A", "B"], |client| Redisson::new(client, KEY, LEASE_S)),
    ours: Ours { permits: Some("redis://: a failover can lose a grant"), ..OUR_TWO },
    bounds: Bounds { faults: Faults { failovers: 1, ..NO_FAULTS }, end_ms: 2000, ..PUNCTUAL },
};

pub(super) const AMNESIA: Scene = Scene {
    id: "H10",
    title: "a restart with amnesia",
    lock: "Redlock on three masters",
    story: "A holds with the votes of two masters, because a request to the third was lost. One of the two \
            restarts without its data. B gets its vote and that of the third, and works beside A.",
    remedy: "A node that may have forgotten something gives no vote until the longest lease is over.",
    seeks: Observable::Overlap,
    flawed: |stage| {
        stage.servers(3);
        workers(stage, &["A", "B"], |_| Redlock::new(KEY, LEASE_S, 3));
    },
    ours: OUR_QUORUM,
    bounds: Bounds { faults: Faults { restarts: 1, lost_requests: 1, ..NO_FAULTS }, end_ms: 1000, ..PUNCTUAL },
};

pub(super) const MULTI_LOCK: Scene = Scene {
    id: "S10",
    title: "a crashed master is harmless",
    lock: "a lock on each of three masters that reply",
    story: "A has the lock on every master. One master restarts, and has forgotten A. The two others stop. B \
            has the lock on every master that replies, and works beside A.",
    remedy: "A majority of all nodes must agree, whether they reply or not. A node that has forgotten gives \
             no vote.",
    seeks: Observable::Overlap,
    flawed: |stage| {
        stage.servers(3);
        workers(stage, &["A", "B"], |_| MultiLock::new(KEY, LEASE_S, 3));
    },
    ours: OUR_QUORUM,
    bounds: Bounds { faults: Faults { restarts: 1, stops: &[0, 1], ..NO_FAULTS }, end_ms: 0, ..PUNCTUAL },
};
