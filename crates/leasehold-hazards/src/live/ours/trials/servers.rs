//! Servers that fail over, restart, stop, or jump in time.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

use super::{STAYS_OUT, its_turn};
use crate::live::ours::proxy::Fault;
use crate::live::ours::trial::{LEASE, Trial};
use crate::live::ours::words::Order;

/// The server dies before its replica has received the grant of A.
pub(super) async fn failover(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis_with_late_replica()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.check(a, true).await?;
    // Otherwise A can learn of its loss before B holds: then the trial shows less than it should.
    trial.fault(a, Fault::Refuse);
    trial.fail_over();
    trial.lock(b).await?;
    trial.write(b).await?;
    trial.write_as_checked(a).await?;
    trial.fault(a, Fault::None);
    trial.until_lost(a).await?;
    trial.release(b).await
}

/// A has the votes of two nodes, and one of them restarts without its data.
pub(super) async fn amnesia(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.quorum(false).await?;
    let (a, b) = (trial.worker_without(Some(2)).await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.servers[1].restart()?;
    trial.ask(b).await?;
    sleep(STAYS_OUT).await;
    trial.write_if_held(a).await?;
    trial.release(a).await?;
    its_turn(trial, b).await
}

/// A has the votes of two nodes, and the clock of one of them jumps ahead by the lease.
pub(super) async fn jump(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.quorum(true).await?;
    let (a, b) = (trial.worker_without(Some(2)).await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.check(a, true).await?;
    trial.servers[1].jump(LEASE + Duration::from_millis(200))?;
    trial.lock(b).await?;
    trial.write(b).await?;
    trial.write_as_checked(a).await?;
    trial.until_lost(a).await?;
    trial.release(b).await
}

/// A has the votes of all nodes. One restarts without its data, and the others stop.
pub(super) async fn two_masters_stop(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.quorum(false).await?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.servers[2].restart()?;
    trial.servers[0].stop();
    trial.servers[1].stop();
    trial.order(b, Order::Lock(None)).await?;
    trial.until_lost(a).await?;
    trial.stays_out(b, STAYS_OUT).await?;
    trial.servers[0].restart()?;
    trial.servers[1].restart()?;
    its_turn(trial, b).await
}
