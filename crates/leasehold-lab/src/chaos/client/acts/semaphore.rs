//! The semaphore: tasks take one, two or all of three permits.

use leasehold::{Permit, Result};

use super::super::super::names::Class;
use super::super::turn::Turn;
use super::pool::{Way, lease, run};
use super::table::{Primitive, Taken};
use crate::lease::Permits;

const LIMIT: u32 = 3;

pub(super) const PRIMITIVE: Primitive = Primitive {
    classes: &[Class::Pool],
    limit: LIMIT,
    act: |turn| Box::pin(act(turn)),
    take_all: |client, name, (lease, wait)| {
        let semaphore = client.semaphore(name, LIMIT).lease(lease);
        Box::pin(async move {
            let permit = semaphore.try_acquire_many_for(LIMIT, wait).await?;
            Ok(permit.map(|permit| Taken::by(Permits { permit, units: LIMIT })))
        })
    },
};

async fn act(mut turn: Turn<'_>) {
    let (lease, way) = (lease(&mut turn), Way::pick(&mut turn));
    let units = *turn.random.pick(&[1, 1, 1, 2, 2, LIMIT]);
    let semaphore = turn.client.semaphore(turn.name, LIMIT);
    let semaphore = if turn.random.chance(10) { semaphore.fixed_lease(lease) } else { semaphore.lease(lease) };
    turn.doing("acquire permits");
    let leased = move |permit: Permit| Permits { permit, units };
    let tried = move |tried: Result<Option<Permit>>| tried.map(|permit| permit.map(leased));
    run(
        turn,
        (way, lease),
        async { semaphore.acquire_many(units).await.map(leased) },
        async |wait| tried(semaphore.try_acquire_many_for(units, wait).await),
        async { tried(semaphore.try_acquire_many(units).await) },
    )
    .await;
}
