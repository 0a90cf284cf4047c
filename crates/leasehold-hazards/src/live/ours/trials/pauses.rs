//! Workers, requests and writes that come late.

use std::io;

use tokio::time::sleep;

use super::{STAYS_OUT, waits_for};
use crate::live::ours::proxy::Fault;
use crate::live::ours::trial::{LEASE, Trial};
use crate::live::ours::words::Order;

/// A pauses until B holds, and releases then. C must wait for B.
pub(super) async fn late_release(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b, c) = (trial.worker().await?, trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.pause(a)?;
    trial.ask(b).await?;
    trial.enters(b).await?;
    trial.resume(a)?;
    trial.check(a, false).await?;
    trial.release(a).await?;
    waits_for(trial, c, b).await
}

/// The release of A is on its way until B holds.
pub(super) async fn delayed_release(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b, c) = (trial.worker().await?, trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.fault(a, Fault::HoldRequests);
    trial.leave(a, Order::Release).await?;
    trial.strikes(a).await?;
    trial.ask(b).await?;
    trial.enters(b).await?;
    trial.fault(a, Fault::None);
    waits_for(trial, c, b).await
}

/// A checks its guard and pauses. B enters and writes. Then the write of A arrives.
pub(super) async fn late_write(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.check(a, true).await?;
    trial.pause(a)?;
    trial.ask(b).await?;
    trial.enters(b).await?;
    trial.write(b).await?;
    trial.resume(a)?;
    trial.write_as_checked(a).await?;
    trial.check(a, false).await?;
    trial.release(a).await?;
    trial.release(b).await
}

/// The renewals of A are on their way until B holds. A goes on.
pub(super) async fn late_renewal(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.check(a, true).await?;
    trial.fault(a, Fault::HoldRequests);
    trial.ask(b).await?;
    trial.strikes(a).await?;
    trial.enters(b).await?;
    trial.write(b).await?;
    trial.fault(a, Fault::None);
    trial.write_as_checked(a).await?;
    trial.check(a, false).await?;
    trial.release(a).await?;
    sleep(STAYS_OUT).await;
    trial.check(b, true).await?;
    trial.release(b).await
}

/// The process of thread 1 pauses until its lease is over. Thread 2 of it locks, and thread 1 goes on. B must wait.
pub(super) async fn late_thread(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (first, b) = (trial.worker().await?, trial.worker().await?);
    let second = first.sibling();
    trial.lock(first).await?;
    trial.check(first, true).await?;
    trial.pause(first)?;
    sleep(LEASE + STAYS_OUT).await;
    trial.resume(first)?;
    trial.lock(second).await?;
    trial.write(second).await?;
    trial.write_as_checked(first).await?;
    trial.release(first).await?;
    waits_for(trial, b, second).await
}
