//! The trials: for each scene, the same fault at the same point, with Leasehold.
//!
//! | File | Contents |
//! |---|---|
//! | `turns.rs` | locks that two threads or more want at the same time |
//! | `deaths.rs` | workers that die |
//! | `pauses.rs` | workers, requests and writes that come late |
//! | `losses.rs` | requests, replies and messages that are lost |
//! | `servers.rs` | servers that fail over, restart, stop, or jump in time |
//! | `further.rs` | faults that no scene has |

mod deaths;
mod further;
mod losses;
mod pauses;
mod servers;
mod turns;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::sleep;

use super::notes::Who;
use super::trial::Trial;

/// The time for which a trial waits to see that something does not happen.
const STAYS_OUT: Duration = Duration::from_millis(500);

/// A trial that is being played.
type Play<'a> = Pin<Box<dyn Future<Output = io::Result<()>> + 'a>>;

pub(super) use further::FURTHER;

/// Plays the trial of a scene, or a further one. `None` if there is none.
pub(super) fn play<'a>(id: &str, trial: &'a mut Trial<'_>) -> Option<Play<'a>> {
    Some(match id {
        "S0a" => Box::pin(turns::two_processes(trial)),
        "S0b" => Box::pin(turns::threads_of_two_processes(trial)),
        "H1" => Box::pin(deaths::asker_dies(trial)),
        "H2" => Box::pin(deaths::holder_dies(trial)),
        "H3" => Box::pin(pauses::late_release(trial)),
        "H4" => Box::pin(pauses::delayed_release(trial)),
        "H5" => Box::pin(pauses::late_write(trial)),
        "H6" => Box::pin(turns::clock_ahead(trial)),
        "H7" | "H8" => Box::pin(turns::two_find_it_expired(trial)),
        "H9" => Box::pin(servers::failover(trial)),
        "H10" => Box::pin(servers::amnesia(trial)),
        "H11" => Box::pin(servers::jump(trial)),
        "H12" => Box::pin(losses::lost_reply(trial)),
        "H13" => Box::pin(losses::lost_message(trial)),
        "H14" => Box::pin(turns::greedy(trial)),
        "H15" => Box::pin(turns::crowd(trial)),
        "H16" => Box::pin(turns::two_processes(trial)),
        "H17" => Box::pin(turns::limited_wait(trial)),
        "H18" => Box::pin(deaths::next_holder_dies(trial)),
        "S6" => Box::pin(turns::cancelled_wait(trial)),
        "S8" => Box::pin(pauses::late_renewal(trial)),
        "S10" => Box::pin(servers::two_masters_stop(trial)),
        "N7" => Box::pin(pauses::late_thread(trial)),
        "N8" => Box::pin(losses::lost_release(trial)),
        "N9" => Box::pin(turns::dropped_guard(trial)),
        _ => return further::play(id, trial),
    })
}

/// B waits for A, and then has its turn.
async fn in_turn(trial: &mut Trial<'_>, a: Who, b: Who) -> io::Result<()> {
    trial.lock(a).await?;
    trial.ask(b).await?;
    sleep(STAYS_OUT).await;
    trial.write(a).await?;
    trial.release(a).await?;
    its_turn(trial, b).await
}

/// A thread that waits is granted, writes and releases.
async fn its_turn(trial: &mut Trial<'_>, who: Who) -> io::Result<()> {
    trial.enters(who).await?;
    trial.write(who).await?;
    trial.release(who).await
}

/// B holds, and C asks. C must not enter before B releases.
async fn waits_for(trial: &mut Trial<'_>, c: Who, b: Who) -> io::Result<()> {
    trial.ask(c).await?;
    sleep(STAYS_OUT).await;
    trial.write(b).await?;
    trial.release(b).await?;
    its_turn(trial, c).await
}
