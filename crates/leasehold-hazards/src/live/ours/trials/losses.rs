//! Requests, replies and messages that are lost.

use std::io;

use super::its_turn;
use crate::live::ours::proxy::Fault;
use crate::live::ours::trial::{LEASE, Trial};
use crate::live::ours::words::Order;

pub(super) async fn lost_reply(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let a = trial.worker().await?;
    trial.fault(a, Fault::LoseReplies);
    trial.order(a, Order::Lock(None)).await?;
    trial.strikes(a).await?;
    trial.fault(a, Fault::None);
    its_turn(trial, a).await
}

pub(super) async fn lost_message(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.fault(b, Fault::LoseQuietly);
    trial.release(a).await?;
    trial.strikes(b).await?;
    trial.fault(b, Fault::None);
    its_turn(trial, b).await
}

pub(super) async fn lost_release(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.fault(a, Fault::LoseRequests);
    trial.leave(a, Order::Release).await?;
    trial.strikes(a).await?;
    trial.fault(a, Fault::None);
    // The lease of A ends later: only a release that is repeated lets B in now.
    trial.enters_within(b, LEASE / 2).await?;
    trial.is_confirmed(a).await?;
    trial.write(b).await?;
    trial.release(b).await
}
