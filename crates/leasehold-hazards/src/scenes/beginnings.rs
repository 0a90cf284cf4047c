//! Where the tutorials begin: no lock, a lock inside one process, and locks whose holder dies.

use std::rc::Rc;

use super::{KEY, LEASE_S, NO_FAULTS, OUR_TWO, PUNCTUAL, STALL, once, workers};
use crate::judge::Observable;
use crate::scene::Scene;
use crate::specimens::local::Local;
use crate::specimens::no_lock::NoLock;
use crate::specimens::setnx::SetNx;
use crate::specimens::setnx_expire::SetNxExpire;
use crate::world::{Bounds, Faults};

pub(super) const NO_LOCK: Scene = Scene {
    id: "S0a",
    title: "no lock",
    lock: "none",
    story: "Two processes read the stock, subtract one, and write it back. Both sell the last item.",
    remedy: "A lock that all processes share.",
    seeks: Observable::Overlap,
    flawed: |stage| workers(stage, &["A", "B"], |_| NoLock),
    ours: OUR_TWO,
    bounds: PUNCTUAL,
};

pub(super) const LOCAL: Scene = Scene {
    id: "S0b",
    title: "a lock inside one process",
    lock: "synchronized, or std::sync::Mutex",
    story: "The lock excludes the threads of its process. The second process has a lock of its own.",
    remedy: "A lock that all processes share.",
    seeks: Observable::Overlap,
    flawed: |stage| {
        for name in ["A", "B"] {
            stage.process(name, |client| async move {
                let lock = Rc::new(Local::default());
                let other = Rc::clone(&lock);
                client.spawn(|client| async move { once(&client, &*other).await });
                once(&client, &*lock).await;
            });
        }
    },
    ours: OUR_TWO,
    bounds: PUNCTUAL,
};

pub(super) const TWO_STEPS: Scene = Scene {
    id: "H1",
    title: "an acquisition in two steps",
    lock: "SETNX, then EXPIRE",
    story: "A takes the lock with SETNX and dies before EXPIRE. The key never expires, and nobody locks again.",
    remedy: "One script takes the lock together with its lease.",
    seeks: STALL,
    flawed: |stage| workers(stage, &["A", "B"], |_| SetNxExpire::new(KEY, LEASE_S)),
    ours: OUR_TWO,
    bounds: Bounds { faults: Faults { kills: &[0], ..NO_FAULTS }, ..PUNCTUAL },
};

pub(super) const DEAD_HOLDER: Scene = Scene {
    id: "H2",
    title: "a holder that dies",
    lock: "SETNX and DEL, without an expiry",
    story: "A holds the lock and dies. No DEL comes, and nobody locks again.",
    remedy: "Every lock is a lease. It ends by itself, and the next waiter is granted within the lease and \
             one second.",
    seeks: STALL,
    flawed: |stage| workers(stage, &["A", "B"], |_| SetNx::new(KEY)),
    ours: OUR_TWO,
    bounds: Bounds { faults: Faults { kills: &[0], ..NO_FAULTS }, ..PUNCTUAL },
};
