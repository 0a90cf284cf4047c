//! Locks that two threads or more want at the same time.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

use super::{STAYS_OUT, in_turn, its_turn};
use crate::live::ours::trial::{LEASE, Trial};
use crate::live::ours::words::Order;

/// How long a caller of H17 wants to wait.
const WAIT: Duration = Duration::from_secs(1);

pub(super) async fn two_processes(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    in_turn(trial, a, b).await
}

pub(super) async fn threads_of_two_processes(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    let mut waiting = vec![b, a.sibling(), b.sibling()];
    for other in &waiting {
        trial.ask(*other).await?;
    }
    trial.write(a).await?;
    trial.release(a).await?;
    // A process may hand over inside, a bounded number of times. So any order is right.
    while !waiting.is_empty() {
        let next = trial.first_of(&mut waiting).await?;
        trial.write(next).await?;
        trial.release(next).await?;
    }
    Ok(())
}

pub(super) async fn clock_ahead(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let a = trial.worker().await?;
    let b = trial.worker_ahead(LEASE + Duration::from_secs(1)).await?;
    in_turn(trial, a, b).await
}

/// The holder has died, and its lease is over. A and B ask at the same time.
pub(super) async fn two_find_it_expired(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b, dead) = (trial.worker().await?, trial.worker().await?, trial.worker().await?);
    trial.lock(dead).await?;
    trial.kill(dead).await?;
    sleep(LEASE).await;
    trial.order(a, Order::Lock(None)).await?;
    trial.order(b, Order::Lock(None)).await?;
    let mut waiting = vec![a, b];
    let first = trial.first_of(&mut waiting).await?;
    sleep(STAYS_OUT).await;
    trial.write(first).await?;
    trial.release(first).await?;
    its_turn(trial, waiting[0]).await
}

/// A locks again and again.
pub(super) async fn greedy(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    for _ in 0..3 {
        trial.order(a, Order::Release).await?;
        trial.order(a, Order::Lock(None)).await?;
    }
    trial.enters(b).await?;
    trial.write(b).await?;
    trial.release(b).await?;
    // B had its turn among those of A, which are over now.
    for _ in 0..3 {
        trial.enters(a).await?;
    }
    trial.release(a).await
}

/// B, C and D wait for A.
pub(super) async fn crowd(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let a = trial.worker().await?;
    let others = [trial.worker().await?, trial.worker().await?, trial.worker().await?];
    trial.lock(a).await?;
    for other in others {
        trial.ask(other).await?;
    }
    trial.release_and_count(a).await?;
    for other in others {
        its_turn(trial, other).await?;
    }
    Ok(())
}

/// A holds for longer than B wants to wait.
pub(super) async fn limited_wait(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask_within(b, Some(WAIT)).await?;
    trial.gives_up(b).await?;
    trial.write(a).await?;
    trial.release(a).await
}

/// B interrupts its wait for A, and waits again.
pub(super) async fn cancelled_wait(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.order(b, Order::Cancel).await?;
    trial.gives_up(b).await?;
    sleep(STAYS_OUT).await;
    trial.ask(b).await?;
    trial.write(a).await?;
    trial.release(a).await?;
    its_turn(trial, b).await
}

/// The guard of A is dropped without a release.
pub(super) async fn dropped_guard(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.write(a).await?;
    trial.ask(b).await?;
    trial.leave(a, Order::Drop).await?;
    its_turn(trial, b).await
}
