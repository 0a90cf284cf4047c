//! Leases that end while their holders work.

use std::rc::Rc;

use super::{KEY, LEASE_S, OUR_TWO, OUR_TWO_AGAIN, PAUSES, once, workers};
use crate::judge::Observable;
use crate::scene::Scene;
use crate::specimens::compare_and_delete::CompareAndDelete;
use crate::specimens::get_del::GetDel;
use crate::specimens::guard_thread::GuardThread;
use crate::specimens::instance_owner::InstanceOwner;
use crate::specimens::set_ex::SetEx;

pub(super) const WRONG_OWNER: Scene = Scene {
    id: "H3",
    title: "the wrong owner deletes",
    lock: "SET NX EX, then DEL",
    story: "A pauses until its lease has ended. B acquires. A goes on and deletes B's lock. C acquires and \
            works beside B.",
    remedy: "A release names its grant. The release of another grant changes nothing.",
    seeks: Observable::Overlap,
    flawed: |stage| workers(stage, &["A", "B", "C"], |_| SetEx::new(KEY, LEASE_S)),
    ours: OUR_TWO_AGAIN,
    bounds: PAUSES,
};

pub(super) const CHECK_THEN_DELETE: Scene = Scene {
    id: "H4",
    title: "check, then delete",
    lock: "GET, compare, DEL",
    story: "A reads its own ID and pauses. Its lease ends, and B acquires. A's DEL removes B's lock, and C \
            works beside B.",
    remedy: "One script compares and releases.",
    seeks: Observable::Overlap,
    flawed: |stage| workers(stage, &["A", "B", "C"], |_| GetDel::new(KEY, LEASE_S)),
    ours: OUR_TWO_AGAIN,
    bounds: PAUSES,
};

pub(super) const OVERSTAY: Scene = Scene {
    id: "H5",
    title: "the lease ends during the work",
    lock: "SET NX EX, and a script that compares and deletes",
    story: "A pauses in its critical section until its lease has ended. B enters. A goes on and writes after B.",
    remedy: "The holder detects the end of its lease by its own clock before the server grants to anybody \
             else, and stops. A write that left before can still arrive after: only the resource can refuse \
             it, by its token.",
    seeks: Observable::Overstay,
    flawed: |stage| workers(stage, &["A", "B"], |_| CompareAndDelete::new(KEY, LEASE_S)),
    ours: OUR_TWO,
    bounds: PAUSES,
};

pub(super) const LATE_GUARD: Scene = Scene {
    id: "S8",
    title: "a guard that renews at second 29 of 30",
    lock: "compare-and-delete, with a guard thread",
    story: "The guard has one second for its first renewal. It pauses for longer. The lease ends, B enters, \
            and A goes on.",
    remedy: "Renewals begin after a third of the lease. A holder whose renewal comes too late knows it, and stops.",
    seeks: Observable::Overstay,
    flawed: |stage| workers(stage, &["A", "B"], |_| GuardThread::new(KEY, LEASE_S)),
    ours: OUR_TWO,
    bounds: PAUSES,
};

pub(super) const INSTANCE_OWNER: Scene = Scene {
    id: "N7",
    title: "the owner is the process",
    lock: "compare-and-delete, with an ID of the process as the owner",
    story: "Thread 1 of A pauses until its lease has ended. Thread 2 of A acquires, with the same owner. The \
            late release of thread 1 deletes the lock of thread 2, and B works beside it.",
    remedy: "Each grant has an ID of its own.",
    seeks: Observable::Overlap,
    flawed: |stage| {
        stage.process("A", |client| async move {
            let lock = Rc::new(InstanceOwner::new(&client, KEY, LEASE_S));
            let other = Rc::clone(&lock);
            client.spawn(|client| async move { once(&client, &*other).await });
            once(&client, &*lock).await;
        });
        workers(stage, &["B"], |client| InstanceOwner::new(client, KEY, LEASE_S));
    },
    ours: OUR_TWO_AGAIN,
    bounds: PAUSES,
};
