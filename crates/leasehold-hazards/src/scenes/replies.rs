//! Requests, replies and messages that are lost or never sent.

use super::{KEY, LEASE_S, NO_FAULTS, OUR_TWO, PUNCTUAL, STALL, once, our_workers, workers};
use crate::client::Mark;
use crate::judge::Observable;
use crate::scene::{Ours, Scene};
use crate::specimens::Lock as _;
use crate::specimens::cancelled::Cancelled;
use crate::specimens::compare_and_delete::CompareAndDelete;
use crate::specimens::orphan::Orphan;
use crate::specimens::redisson::Redisson;
use crate::world::{Bounds, Faults};

pub(super) const UNKNOWN_OUTCOME: Scene = Scene {
    id: "H12",
    title: "an unknown outcome",
    lock: "SET NX EX with a new ID for each try",
    story: "A's SET is carried out, and its reply is lost. A tries again with a new ID and waits for its own \
            lock, until that expires.",
    remedy: "A repeat has the same ID. If the first request was carried out, the repeat returns its grant.",
    seeks: Observable::Stall((LEASE_S - 1) * 1000),
    flawed: |stage| workers(stage, &["A"], |_| CompareAndDelete::new(KEY, LEASE_S)),
    ours: Ours { stage: |stage| our_workers(stage, &["A"]), ..OUR_TWO },
    bounds: Bounds { faults: Faults { lost_replies: 1, ..NO_FAULTS }, ..PUNCTUAL },
};

pub(super) const MISSED_WAKE_UP: Scene = Scene {
    id: "H13",
    title: "a missed wake-up",
    lock: "Redisson's lock",
    story: "A releases, and the message to B is lost. B sleeps until the TTL that it has read is over, \
            although the lock is free.",
    remedy: "A release grants to the next waiter. If the message is lost, a re-check finds the grant within a \
             third of the lease.",
    seeks: Observable::Stall((LEASE_S - 1) * 1000),
    flawed: |stage| workers(stage, &["A", "B"], |client| Redisson::new(client, KEY, LEASE_S)),
    ours: OUR_TWO,
    bounds: Bounds { faults: Faults { lost_messages: 1, ..NO_FAULTS }, ..PUNCTUAL },
};

pub(super) const ORPHAN: Scene = Scene {
    id: "N8",
    title: "a watchdog that outlives the unlock",
    lock: "a lock with a watchdog that a successful release stops",
    story: "A's release is lost. A goes on without the lock, and its watchdog renews it for ever.",
    remedy: "The hold ends before its release is sent, and renewals end with the hold. The release is \
             repeated until it is confirmed.",
    seeks: STALL,
    flawed: |stage| workers(stage, &["A", "B"], |client| Orphan::new(client, KEY, LEASE_S)),
    ours: OUR_TWO,
    bounds: Bounds { faults: Faults { lost_requests: 1, ..NO_FAULTS }, ..PUNCTUAL },
};

pub(super) const CANCELLED: Scene = Scene {
    id: "N9",
    title: "a release with a cancelled context",
    lock: "compare-and-delete, released with the context of the request",
    story: "The caller of A goes away, and the context of its request is cancelled. The release checks the \
            context and sends nothing. B waits until the lock expires.",
    remedy: "A guard that is dropped is released in the background. No cancellation stops a release.",
    seeks: Observable::Stall((LEASE_S - 1) * 1000),
    flawed: |stage| {
        stage.process("A", |client| async move {
            let lock = Cancelled::new(KEY, LEASE_S);
            client.mark(Mark::Wants(None));
            let grant = lock.lock(&client).await;
            client.mark(Mark::Enters(grant.held));
            client.write(grant.held).await;
            lock.is_cancelled.set(true);
            client.mark(Mark::Leaves);
            lock.unlock(&client, &grant).await;
        });
        stage.process("B", |client| async move { once(&client, &CompareAndDelete::new(KEY, LEASE_S)).await });
    },
    ours: OUR_TWO,
    bounds: PUNCTUAL,
};
