//! Faults that no scene has.

use std::io;
use std::time::Duration;

use tokio::time::sleep;

use super::{Play, STAYS_OUT, its_turn, waits_for};
use crate::judge::Observable;
use crate::live::ours::Further;
use crate::live::ours::proxy::Fault;
use crate::live::ours::trial::{LEASE, Trial};
use crate::live::ours::words::Order;
use crate::live::server::Server;

/// The next waiter is served within the lease and a second. Another second is for a busy machine.
const FOLLOWED: Observable = Observable::Stall(5000);
/// A frozen waiter costs the others a second. Another second is for a busy machine.
const CLAIM: Observable = Observable::Stall(2000);
/// A message that wakes the next waiter costs nothing. The time is for a busy machine, and less than that of a claim.
const AT_ONCE: Observable = Observable::Stall(900);
/// After a step back of the clock a dead holder is followed within two leases and a second.
const FOLLOWED_LATE: Observable = Observable::Stall(8000);
/// The quarantine of a node lasts for at least 22 s. Some seconds are for a re-check, and for a busy machine.
const QUARANTINE: Observable = Observable::Stall(26_000);
/// The time for which a clock is set back: less than the minute for which tokens rise nevertheless.
const BACK: Duration = Duration::from_secs(30);

pub(in crate::live::ours) const FURTHER: &[Further] = &[
    Further { name: "a server that is stopped for longer than the lease", seeks: FOLLOWED },
    Further { name: "a wait that is cancelled while its grant is on its way", seeks: AT_ONCE },
    Further { name: "a waiter that is granted the lock while it is stopped", seeks: CLAIM },
    Further { name: "a holder that is stopped while its release is on its way", seeks: AT_ONCE },
    Further { name: "a holder that is killed while its release is on its way", seeks: FOLLOWED },
    Further { name: "two nodes that restart one after the other", seeks: QUARANTINE },
    Further { name: "a node whose clock is set back", seeks: AT_ONCE },
    Further { name: "a server whose clock is set back", seeks: AT_ONCE },
    Further { name: "a server whose clock is set back, and a holder that dies", seeks: FOLLOWED_LATE },
];

pub(super) fn play<'a>(name: &str, trial: &'a mut Trial<'_>) -> Option<Play<'a>> {
    let number = FURTHER.iter().position(|further| further.name == name)?;
    Some(match number {
        0 => Box::pin(stopped_server(trial)),
        1 => Box::pin(cancelled_grant(trial)),
        2 => Box::pin(stopped_waiter(trial)),
        3 => Box::pin(stopped_releaser(trial)),
        4 => Box::pin(killed_releaser(trial)),
        5 => Box::pin(restarts_in_turn(trial)),
        6 => Box::pin(node_set_back(trial)),
        7 => Box::pin(server_set_back(trial)),
        _ => Box::pin(server_set_back_and_death(trial)),
    })
}

/// The server is stopped while A holds and B waits. It goes on when the lease of A is over, and finds the renewals of A.
async fn stopped_server(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.check(a, true).await?;
    trial.ask(b).await?;
    let server = trial.servers[0].pause()?;
    trial.until_lost(a).await?;
    trial.stays_out(b, STAYS_OUT).await?;
    Server::resume(server)?;
    trial.enters(b).await?;
    trial.write(b).await?;
    trial.check(a, false).await?;
    trial.release(a).await?;
    trial.check(b, true).await?;
    trial.release(b).await
}

/// The message that grants the lock to B is on its way when B stops waiting. C is next.
async fn cancelled_grant(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b, c) = (trial.worker().await?, trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.ask(c).await?;
    trial.fault(b, Fault::HoldReplies);
    trial.release(a).await?;
    trial.strikes(b).await?;
    trial.order(b, Order::Cancel).await?;
    trial.gives_up(b).await?;
    trial.enters(c).await?;
    trial.fault(b, Fault::None);
    waits_for(trial, b, c).await
}

/// B is stopped while it waits, is granted the lock, and goes on when C holds.
async fn stopped_waiter(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b, c) = (trial.worker().await?, trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.ask(c).await?;
    trial.pause(b)?;
    trial.release(a).await?;
    trial.enters(c).await?;
    trial.resume(b)?;
    trial.stays_out(b, STAYS_OUT).await?;
    trial.write(c).await?;
    trial.release(c).await?;
    its_turn(trial, b).await
}

/// A is stopped when it has sent its release, until B has had its turn.
async fn stopped_releaser(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.fault(a, Fault::HoldRequests);
    trial.leave(a, Order::Release).await?;
    trial.strikes(a).await?;
    trial.pause(a)?;
    trial.fault(a, Fault::None);
    trial.enters(b).await?;
    trial.write(b).await?;
    trial.resume(a)?;
    trial.is_confirmed(a).await?;
    trial.check(b, true).await?;
    trial.release(b).await
}

/// A dies, and its release arrives when B holds.
async fn killed_releaser(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis()?;
    let (a, b, c) = (trial.worker().await?, trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.fault(a, Fault::HoldRequests);
    trial.leave(a, Order::Release).await?;
    trial.strikes(a).await?;
    trial.kill(a).await?;
    trial.ask(b).await?;
    trial.enters(b).await?;
    trial.fault(a, Fault::None);
    waits_for(trial, c, b).await
}

/// Two of the three nodes that have voted for A restart without their data, the second one while the first one is in
/// quarantine. A holds on until the second restart, and B waits until a node votes again.
async fn restarts_in_turn(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.quorum(false).await?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.servers[1].restart()?;
    trial.stays_out(b, 2 * LEASE).await?;
    trial.write(a).await?;
    trial.servers[2].restart()?;
    trial.until_lost(a).await?;
    its_turn(trial, b).await?;
    trial.release(a).await
}

async fn node_set_back(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.quorum(true).await?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.servers[1].set_back(BACK)?;
    trial.ask(b).await?;
    sleep(LEASE).await;
    trial.write(a).await?;
    trial.release(a).await?;
    its_turn(trial, b).await
}

async fn server_set_back(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis_with_clock()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.servers[0].set_back(BACK)?;
    trial.ask(b).await?;
    sleep(LEASE).await;
    trial.write(a).await?;
    trial.release(a).await?;
    its_turn(trial, b).await?;
    // The next grant is made by the clock that was set back, and nothing is waiting.
    trial.lock(a).await?;
    trial.write(a).await?;
    trial.release(a).await
}

async fn server_set_back_and_death(trial: &mut Trial<'_>) -> io::Result<()> {
    trial.redis_with_clock()?;
    let (a, b) = (trial.worker().await?, trial.worker().await?);
    trial.lock(a).await?;
    trial.ask(b).await?;
    trial.servers[0].set_back(BACK)?;
    trial.kill(a).await?;
    its_turn(trial, b).await
}
