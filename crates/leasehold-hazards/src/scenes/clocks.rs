//! Clocks of clients, and clocks of servers that jump.

use super::{KEY, LEASE_S, NO_FAULTS, OUR_QUORUM, OUR_TWO, PUNCTUAL, our_workers, workers};
use crate::judge::Observable;
use crate::redis::Command;
use crate::scene::{Ours, Scene};
use crate::specimens::delete_expired::DeleteExpired;
use crate::specimens::getset::{GetSet, Test};
use crate::specimens::redlock::Redlock;
use crate::world::{Bounds, Faults, Stage};

/// The time by which the clock of B is ahead.
const AHEAD_MS: u64 = (LEASE_S + 1) * 1000;

/// Begins with the lock of a process that is gone. Its time is one second in the past.
fn expired(stage: &mut Stage) {
    stage.before(Command::SetNx(KEY.into(), "999000".into()));
}

pub(super) const CLIENT_CLOCKS: Scene = Scene {
    id: "H6",
    title: "clocks of clients",
    lock: "SETNX and GETSET with timestamps",
    story: "B's clock is ahead by more than the lease. To B, the lock of A has expired. B takes it over and \
            works beside A.",
    remedy: "Only the clock of the server counts leases.",
    seeks: Observable::Overlap,
    flawed: |stage| {
        workers(stage, &["A", "B"], |_| GetSet::new(KEY, LEASE_S, Test::OldIsPast));
        stage.clock_ahead(AHEAD_MS);
    },
    ours: Ours {
        stage: |stage| {
            our_workers(stage, &["A", "B"]);
            stage.clock_ahead(AHEAD_MS);
        },
        ..OUR_TWO
    },
    bounds: PUNCTUAL,
};

pub(super) const OVERWRITES: Scene = Scene {
    id: "H7",
    title: "a loser overwrites the winner",
    lock: "SETNX and GETSET, test by the value read before",
    story: "A and B read an expired lock. A takes it over with GETSET, works and deletes it. Now B's GETSET \
            comes. It loses, because the old value is not the one that B has read. But it has written a \
            time, and until that time the lock is taken by nobody.",
    remedy: "No client takes over. The server ends a lease and grants the next one in the same step.",
    seeks: Observable::Stall((LEASE_S - 1) * 1000),
    flawed: |stage| {
        expired(stage);
        workers(stage, &["A", "B"], |_| GetSet::new(KEY, LEASE_S, Test::OldIsCurrent));
    },
    ours: OUR_TWO,
    bounds: PUNCTUAL,
};

pub(super) const DELETE_ON_EXPIRY: Scene = Scene {
    id: "H8",
    title: "two waiters delete an expired lock",
    lock: "SETNX with timestamps, and DEL of an expired lock",
    story: "A and B find an expired lock. A deletes it and acquires. B deletes the lock of A, acquires, and \
            works beside A.",
    remedy: "No client deletes. The server ends a lease and grants the next one in the same step.",
    seeks: Observable::Overlap,
    flawed: |stage| {
        expired(stage);
        workers(stage, &["A", "B"], |_| DeleteExpired::new(KEY, LEASE_S));
    },
    ours: OUR_TWO,
    bounds: PUNCTUAL,
};

pub(super) const JUMP: Scene = Scene {
    id: "H11",
    title: "clocks of servers jump",
    lock: "Redlock on three masters",
    story: "A has the votes of two masters. The clock of one of them jumps ahead by the lease, and the vote \
            ends there. B gets this vote and that of the third master, and works beside A.",
    remedy: "A client usually has the votes of all nodes, and one jump changes nothing. If its majority needs \
             the vote that ended early, another client can hold beside it. The resource refuses the writes of \
             the earlier one, by their tokens.",
    seeks: Observable::Overlap,
    flawed: |stage| {
        stage.servers(3);
        workers(stage, &["A", "B"], |_| Redlock::new(KEY, LEASE_S, 3));
    },
    ours: Ours { permits: Some("quorum: a clock that is set forward ends votes early"), ..OUR_QUORUM },
    bounds: Bounds { faults: Faults { jumps: 2, ..NO_FAULTS }, end_ms: 1000, ..PUNCTUAL },
};
