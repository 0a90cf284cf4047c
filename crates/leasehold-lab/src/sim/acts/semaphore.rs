//! The semaphore: tasks take one or two of three permits.

use std::time::Duration;

use leasehold::{Permit, Result, Semaphore};

use super::super::call::Method;
use super::super::plan::Plan;
use super::super::worker::Worker;
use super::pool::{give_up, random_wait, try_for, try_once, wait};
use super::table::{Act, ActFuture, Primitive, choose};
use crate::lease::Permits;

const LIMIT: u32 = 3;

pub(super) const PRIMITIVE: Primitive = Primitive {
    word: "pool",
    limit: LIMIT,
    act: |worker, name| Box::pin(act(worker, name)),
    ask: |worker, name, lease| {
        Box::pin(async move {
            let semaphore = worker.leasehold.semaphore(name, LIMIT).lease(lease);
            (worker.is_renewed, worker.is_kept) = (true, false);
            wait(worker, ACQUIRE, name, one(&semaphore)).await
        })
    },
    revoke: |leasehold, name, grace| {
        let semaphore = leasehold.semaphore(name, LIMIT);
        Box::pin(async move { revoked(&semaphore, grace).await })
    },
};

const ACQUIRE: Method = Method::waits("acquire");
const TRY: Method = Method::asks("try_acquire");
const REVOKE: Method = Method::asks("revoke");
const INSPECT: Method = Method::asks("inspect");

type Run = for<'a> fn(&'a mut Worker, &'a Semaphore, u32, &'a str) -> ActFuture<'a>;

const fn of(weight: fn(&Plan) -> u64, run: Run) -> Act<Run> {
    Act { weight, run }
}

const ACTS: &[&[Act<Run>]] = &[
    &[
        of(
            |plan| plan.cancels,
            |worker, of, units, name| Box::pin(give_up(worker, ACQUIRE, name, granted(of.acquire_many(units), units))),
        ),
        of(|plan| plan.revokes, |worker, of, _, _| Box::pin(revoke(worker, of))),
    ],
    &[
        of(
            |_| 55,
            |worker, of, units, name| {
                Box::pin(async move {
                    wait(worker, ACQUIRE, name, granted(of.acquire_many(units), units)).await;
                })
            },
        ),
        of(
            |_| 20,
            |worker, of, units, name| Box::pin(try_once(worker, TRY, name, tried(of.try_acquire_many(units), units))),
        ),
        of(
            |_| 20,
            |worker, of, units, name| {
                let wait = random_wait(worker);
                let asking = tried(of.try_acquire_many_for(units, wait), units);
                Box::pin(try_for(worker, (TRY, wait), name, asking))
            },
        ),
        of(|_| 5, |worker, of, _, _| Box::pin(inspect(worker, of))),
    ],
];

async fn act(worker: &mut Worker, name: &str) {
    let (lease, is_fixed) = (worker.lease(), worker.rng.percent(15));
    let semaphore = worker.leasehold.semaphore(name, LIMIT);
    let semaphore = if is_fixed { semaphore.fixed_lease(lease) } else { semaphore.lease(lease) };
    (worker.is_renewed, worker.is_kept) = (!is_fixed, false);
    let units = if worker.rng.percent(30) { 2 } else { 1 };
    let run = choose(worker, ACTS);
    run(worker, &semaphore, units, name).await;
}

async fn one(semaphore: &Semaphore) -> Result<Permits> {
    semaphore.acquire().await.map(|permit| Permits { permit, units: 1 })
}

async fn granted(asking: impl Future<Output = Result<Permit>>, units: u32) -> Result<Permits> {
    asking.await.map(|permit| Permits { permit, units })
}

async fn tried(asking: impl Future<Output = Result<Option<Permit>>>, units: u32) -> Result<Option<Permits>> {
    Ok(asking.await?.map(|permit| Permits { permit, units }))
}

async fn revoked(semaphore: &Semaphore, grace: Duration) -> bool {
    let holder = semaphore.inspect().await.ok().and_then(|inspection| inspection.holder().cloned());
    let Some(holder) = holder else { return false };
    semaphore.revoke(&holder, grace).await.is_ok()
}

async fn revoke(worker: &mut Worker, semaphore: &Semaphore) {
    let Ok(inspection) = semaphore.inspect().await else { return };
    let Some(holder) = inspection.holder() else { return };
    let (call, grace) = (worker.call(REVOKE.what), Duration::from_millis(worker.rng.between(0, 5_000)));
    let result = semaphore.revoke(holder, grace).await;
    worker.returned(&call, 2_000_000);
    worker.check_result(REVOKE, result.as_ref().err(), &call);
}

async fn inspect(worker: &mut Worker, semaphore: &Semaphore) {
    let call = worker.call(INSPECT.what);
    let result = semaphore.inspect().await;
    worker.returned(&call, 2_000_000);
    worker.check_result(INSPECT, result.as_ref().err(), &call);
}
