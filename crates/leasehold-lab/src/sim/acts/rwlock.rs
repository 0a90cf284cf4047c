//! The read-write lock: readers, writers, and readers that become writers.

use std::time::Duration;

use leasehold::RwLock;
use leasehold_spec::limits::GRANTS_MAX;
use leasehold_testkit::history::Ended;

use super::super::call::Method;
use super::super::plan::{MS, Plan};
use super::super::worker::Worker;
use super::pool::{give_up, random_wait, try_for, try_once, wait};
use super::table::{Act, ActFuture, Primitive, choose};

pub(super) const PRIMITIVE: Primitive = Primitive {
    word: "rw",
    limit: GRANTS_MAX,
    act: |worker, name| Box::pin(act(worker, name)),
    ask: |worker, name, lease| {
        Box::pin(async move {
            let lock = worker.leasehold.rw_lock(name).lease(lease);
            (worker.is_renewed, worker.is_kept) = (true, false);
            wait(worker, WRITE, name, lock.write()).await
        })
    },
    revoke: |leasehold, name, grace| {
        let lock = leasehold.rw_lock(name);
        Box::pin(async move {
            let holder = lock.inspect().await.ok().and_then(|inspection| inspection.holder().cloned());
            let Some(holder) = holder else { return false };
            lock.revoke(&holder, grace).await.is_ok()
        })
    },
};

const READ: Method = Method::waits("read");
const WRITE: Method = Method::waits("write");
const TRY_READ: Method = Method::asks("try_read");
const TRY_WRITE: Method = Method::asks("try_write");
const UPGRADEABLE: Method = Method::waits("upgradeable_read");
const UPGRADE: Method = Method::waits("upgrade").may_lose();
const TRY_UPGRADE: Method = Method::asks("try_upgrade").may_lose();

type Run = for<'a> fn(&'a mut Worker, &'a RwLock, &'a str) -> ActFuture<'a>;

const fn of(weight: fn(&Plan) -> u64, run: Run) -> Act<Run> {
    Act { weight, run }
}

/// An upgrade goes before waiters that came earlier, so a plan that judges the order has none.
const fn upgrades(plan: &Plan) -> u64 {
    if plan.remote == 100 && plan.faults.is_empty() { 0 } else { 20 }
}

const ACTS: &[&[Act<Run>]] = &[
    &[
        of(|plan| plan.cancels / 2, |worker, lock, name| Box::pin(give_up(worker, READ, name, lock.read()))),
        of(|plan| plan.cancels / 2, |worker, lock, name| Box::pin(give_up(worker, WRITE, name, lock.write()))),
        of(|plan| plan.revokes, |worker, lock, _| Box::pin(revoke(worker, lock))),
    ],
    &[
        of(upgrades, |worker, lock, name| Box::pin(upgrade(worker, lock, name))),
        of(|_| 10, |worker, lock, name| Box::pin(downgrade(worker, lock, name))),
    ],
    &[
        of(|_| 35, |worker, lock, name| Box::pin(waits(worker, READ, name, lock))),
        of(|_| 25, |worker, lock, name| Box::pin(waits(worker, WRITE, name, lock))),
        of(|_| 10, |worker, lock, name| Box::pin(try_once(worker, TRY_READ, name, lock.try_read()))),
        of(|_| 10, |worker, lock, name| Box::pin(try_once(worker, TRY_WRITE, name, lock.try_write()))),
        of(
            |_| 10,
            |worker, lock, name| {
                let wait = random_wait(worker);
                Box::pin(try_for(worker, (TRY_READ, wait), name, lock.try_read_for(wait)))
            },
        ),
        of(
            |_| 10,
            |worker, lock, name| {
                let wait = random_wait(worker);
                Box::pin(try_for(worker, (TRY_WRITE, wait), name, lock.try_write_for(wait)))
            },
        ),
    ],
];

async fn act(worker: &mut Worker, name: &str) {
    let (lease, is_fixed) = (worker.lease(), worker.rng.percent(15));
    let lock = worker.leasehold.rw_lock(name);
    let lock = if is_fixed { lock.fixed_lease(lease) } else { lock.lease(lease) };
    (worker.is_renewed, worker.is_kept) = (!is_fixed, false);
    let run = choose(worker, ACTS);
    run(worker, &lock, name).await;
}

async fn waits(worker: &mut Worker, method: Method, name: &str, lock: &RwLock) {
    if method.what == WRITE.what {
        wait(worker, method, name, lock.write()).await;
    } else {
        wait(worker, method, name, lock.read()).await;
    }
}

async fn revoke(worker: &mut Worker, lock: &RwLock) {
    let Ok(inspection) = lock.inspect().await else { return };
    let Some(holder) = inspection.holder() else { return };
    let grace = Duration::from_millis(worker.rng.between(0, 5_000));
    let _answered_or_not = lock.revoke(holder, grace).await;
}

/// Writes, and becomes a reader: by the same grant, with fewer units.
async fn downgrade(worker: &mut Worker, lock: &RwLock, name: &str) {
    let call = worker.call(WRITE.what);
    let guard = match lock.write().await {
        Ok(guard) => guard,
        Err(error) => return worker.check_result(WRITE, Some(&error), &call),
    };
    let grant = worker.entered(&guard, name, call.began_us);
    let _is_held = worker.effect(&guard, &grant).await;
    let how = guard.check().map_or_else(|lost| Ended::Lost(format!("{:?}", lost.reason())), |_| Ended::Released);
    grant.ended(&worker.sim.book, worker.sim.exec.now_us(), how);
    let reader = guard.downgrade();
    let us = worker.rng.scaled(100, worker.sim.plan.section_us);
    worker.sleep(us).await;
    if reader.check().is_ok() {
        worker.sim.book.count("a downgrade");
    }
    drop(reader);
}

/// Reads, and becomes a writer: at once, if there are no others, or after a while. Some of these futures are dropped.
async fn upgrade(worker: &mut Worker, lock: &RwLock, name: &str) {
    let call = worker.call(UPGRADEABLE.what);
    let guard = match lock.upgradeable_read().await {
        Ok(guard) => guard,
        Err(error) => return worker.check_result(UPGRADEABLE, Some(&error), &call),
    };
    let grant = worker.entered(&guard, name, call.began_us);
    let is_held = worker.effect(&guard, &grant).await;
    // Later reads are not judged: the store ends this grant at some moment of the upgrade.
    let how = guard.check().map_or_else(|lost| Ended::Lost(format!("{:?}", lost.reason())), |_| Ended::Released);
    grant.ended(&worker.sim.book, worker.sim.exec.now_us(), how);
    if !is_held {
        return;
    }
    let (kind, wait) = (worker.rng.below(4), random_wait(worker));
    let method = if kind < 2 { UPGRADE } else { TRY_UPGRADE };
    let call = worker.call(method.what);
    let upgraded = match kind {
        0 => guard.upgrade().await.map(Ok),
        1 => {
            let after_us = worker.rng.scaled(1, 2_000 * MS);
            tokio::select! {
                biased;
                upgraded = guard.upgrade() => upgraded.map(Ok),
                () = worker.sleep(after_us) => return worker.sim.book.count("a dropped upgrade"),
            }
        }
        2 => guard.try_upgrade().await,
        _ => guard.try_upgrade_for(wait).await,
    };
    match upgraded {
        Ok(Ok(writer)) => {
            worker.sim.book.count("an upgrade");
            worker.section(writer, name, call.began_us).await;
        }
        Ok(Err(reader)) => {
            worker.sim.book.count("an upgrade that was given up");
            if reader.check().is_ok() {
                // It is what it was, and goes back like any other.
                let _released_or_not = reader.release().await;
            }
        }
        Err(error) => worker.check_result(method, Some(&error), &call),
    }
}
