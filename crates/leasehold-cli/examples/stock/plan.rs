//! The plan that is made from the command line.

use std::env;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::said::{Lock, Said};

/// The plan of a run. A process gets it through a pipe: on its command line every user could read the URL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The name of this run: no two runs share a stock or a lock.
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) pieces: u64,
    pub(crate) teams: u32,
    pub(crate) workers: u32,
    pub(crate) guard: Guarding,
    pub(crate) window_us: u64,
}

/// Where the stock and the lock are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// In this process, whose threads sell.
    Embedded,
    /// On a Redis; processes sell.
    Redis { url: String },
}

/// The protection of a sale against concurrent sales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Guarding {
    Nothing,
    Lease { lease_ms: u64, fence: Fence, pause: Pause },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Fence {
    Without,
    With,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pause {
    Nobody,
    /// One additional worker, in its first sale.
    OneWorker,
}

/// The range of the lease. On a busy machine, any worker may stand still for a tenth of a second, without --pause.
const LEASE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
const LEASE_USUAL: Duration = Duration::from_secs(30);
/// The default with --pause: long enough to stop a worker within it, and short enough to wait for its end.
const LEASE_PAUSED: Duration = Duration::from_secs(1);
const WINDOW_MAX: Duration = Duration::from_secs(1);

impl Plan {
    pub(crate) fn of(said: &Said) -> Result<Self, String> {
        if said.window > WINDOW_MAX {
            return Err(format!("a window of {:?} is too long: use at most {WINDOW_MAX:?}", said.window));
        }
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|e| format!("no random numbers: {e}"))?;
        Ok(Self {
            name: format!("leasehold-stock-{:08x}", u32::from_ne_bytes(random)),
            place: place(said)?,
            pieces: said.pieces,
            teams: said.processes,
            workers: said.workers,
            guard: guarding(said)?,
            window_us: u64::try_from(said.window.as_micros()).expect("it was compared with a second"),
        })
    }

    pub(crate) fn pause(&self) -> Pause {
        match self.guard {
            Guarding::Lease { pause, .. } => pause,
            Guarding::Nothing => Pause::Nobody,
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        match self.guard {
            Guarding::Lease { fence, .. } => fence,
            Guarding::Nothing => Fence::Without,
        }
    }
}

fn guarding(said: &Said) -> Result<Guarding, String> {
    if said.lock == Lock::None {
        return match (said.fence, said.pause, said.lease) {
            (true, ..) => Err("--fence checks the tokens that come with a lock, and --lock none has none".into()),
            (_, true, _) => Err("--pause stops a worker until its lease has ended, and --lock none has no lease; \
                                 it oversells without that"
                .into()),
            (.., Some(_)) => Err("--lease says how long a lock is leased, and --lock none has no lock".into()),
            (false, false, None) => Ok(Guarding::Nothing),
        };
    }
    let lease = said.lease.unwrap_or(if said.pause { LEASE_PAUSED } else { LEASE_USUAL });
    if !LEASE.contains(&lease) {
        return Err(format!("a lease of {lease:?} is out of range: {:?} to {:?}", LEASE.start(), LEASE.end()));
    }
    Ok(Guarding::Lease {
        lease_ms: u64::try_from(lease.as_millis()).expect("it was compared with an hour"),
        fence: if said.fence { Fence::With } else { Fence::Without },
        pause: if said.pause { Pause::OneWorker } else { Pause::Nobody },
    })
}

/// Errors do not repeat the URL: it may have a password in it.
fn place(said: &Said) -> Result<Place, String> {
    let url = match &said.store {
        Some(url) if url.contains('@') => {
            return Err("a URL with a user or password is not taken from the command line, where everybody on this \
                        machine can read it: put it into the environment variable STOCK_STORE"
                .into());
        }
        Some(url) => url.clone(),
        None => match env::var("STOCK_STORE") {
            Ok(url) if !url.is_empty() => url,
            _ => return Ok(Place::Embedded),
        },
    };
    match url.starts_with("redis://") {
        true => Ok(Place::Redis { url }),
        false => Err("the store (--store, or STOCK_STORE) is not one that this example knows: \
                      redis://HOST[:PORT][/DB], or nothing for one inside of this program"
            .into()),
    }
}
