//! Workers that die.

use std::io;

use super::its_turn;
use crate::live::ours::proxy::Fault;
use crate::live::ours::trial::Trial;
use crate::live::ours::words::Order;

/// The server has granted to A, and A dies before it knows.
pub(super) async fn asker_dies(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.fault(a, Fault::LoseReplies);
    trial.order(a, Order::Lock(None)).await?;
    trial.strikes(a).await?;
    trial.kill(a).await?;
    trial.ask(b).await?;
    its_turn(trial, b).await
}

pub(super) async fn holder_dies(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.kill(a).await?;
    its_turn(trial, b).await
}

/// A has locked and released, and lives on. B holds and dies, and C waits.
pub(super) async fn next_holder_dies(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b, c) = (trial.worker().await?, trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.write(a).await?;
    trial.release(a).await?;
    trial.lock(b).await?;
    trial.ask(c).await?;
    trial.kill(b).await?;
    its_turn(trial, c).await
}
