//! Three machines that are used by one process each, or two of them by one: a semaphore.

use std::time::Duration;

use super::{Worker, ending, released};
use crate::processes::notes::{Share, Use};

/// How many there are.
pub(crate) const MACHINES: u32 = 3;

pub(super) async fn use_them(worker: &mut Worker) -> leasehold::Result<()> {
    let machines = worker.client.semaphore("machines", MACHINES);
    loop {
        let wanted = if worker.random.chance(30) { 2 } else { 1 };
        let Some(permit) = worker.get(machines.acquire_many(wanted)).await? else { return Ok(()) };
        worker.enter(vec![Use { resource: 0, share: Share::Units(wanted), token: permit.token().get() }]);
        worker.pause(Duration::from_millis(3)).await;
        worker.leave(ending(&permit.check()));
        released(permit.release().await)?;
        worker.pause(Duration::from_millis(3)).await;
    }
}
