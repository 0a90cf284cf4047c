//! The re-entrant lock of one tutorial, as its code is printed.

use super::{KEY, LEASE_S, NO_FAULTS, OUR_TWO, PUNCTUAL, STALL, once, our_workers, workers};
use crate::client::{Held, Mark};
use crate::judge::Observable;
use crate::scene::{Ours, Scene};
use crate::specimens::reentrant::Reentrant;
use crate::world::{Bounds, Faults};

pub(super) const NO_OWNER: Scene = Scene {
    id: "H16",
    title: "an owner that is none",
    lock: "the re-entrant lock",
    story: "The owner is the text uuid: and a thread's number. The first threads of two processes are the \
            same owner. Both enter, as if one of them had entered twice.",
    remedy: "A client has a random ID. An owner is named for each call.",
    seeks: Observable::Overlap,
    flawed: |stage| workers(stage, &["A", "B"], |client| Reentrant::new(client, KEY, LEASE_S)),
    ours: OUR_TWO,
    bounds: Bounds { end_ms: 2000, ..PUNCTUAL },
};

pub(super) const RENEWED_FOR_EVER: Scene = Scene {
    id: "H18",
    title: "a renewal that outlives its lock",
    lock: "the re-entrant lock",
    story: "A locks and unlocks. Its timer runs on. B locks with the same owner and dies. The timer of A \
            renews the lock of B for ever, and C never locks.",
    remedy: "A renewal names its grant, and ends with it.",
    seeks: STALL,
    flawed: |stage| {
        workers(stage, &["A", "B"], |client| Reentrant::new(client, KEY, LEASE_S));
        stage.process("C", |client| async move {
            // Another thread makes the lock of C, so that it has another owner.
            client.spawn(|client| async move {
                let lock = Reentrant::new(&client, KEY, LEASE_S);
                once(&client, &lock).await;
            });
        });
    },
    ours: Ours { stage: |stage| our_workers(stage, &["A", "B", "C"]), ..OUR_TWO },
    bounds: Bounds { faults: Faults { kills: &[1], ..NO_FAULTS }, end_ms: 8000, ..PUNCTUAL },
};

pub(super) const EMPTY_METHODS: Scene = Scene {
    id: "S6",
    title: "methods that are empty",
    lock: "lockInterruptibly of the re-entrant lock",
    story: "lockInterruptibly does nothing. B calls it, returns at once, and works beside A. (newCondition \
            returns null.)",
    remedy: "A wait ends when its future is dropped, and there are condition variables.",
    seeks: Observable::Overlap,
    flawed: |stage| {
        workers(stage, &["A"], |client| Reentrant::new(client, KEY, LEASE_S));
        stage.process("B", |client| async move {
            let lock = Reentrant::new(&client, KEY, LEASE_S);
            client.mark(Mark::Wants(None));
            lock.lock_interruptibly(&client).await;
            client.mark(Mark::Enters(Held::default()));
            client.write(Held::default()).await;
            client.mark(Mark::Leaves);
        });
    },
    ours: OUR_TWO,
    bounds: Bounds { end_ms: 2000, ..PUNCTUAL },
};
