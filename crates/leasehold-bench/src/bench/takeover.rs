//! How long the next client waits when a holder dies or releases. There are two processes: one holds, and one waits.

use std::time::Duration;

use tokio::time::sleep;

use super::{Entrant, about, command};
use crate::crew::Hand;
use crate::error::{Context, Result};
use crate::peers::Peers;
use crate::record::Row;
use crate::scenario::{Case, Ending, Extent};
use crate::stats::Waits;
use crate::store::Store;
use crate::worker::{Duty, Spec, now_us};

pub(super) async fn measure(store: &mut Store, entrant: &Entrant, run: u32) -> Result<Row> {
    let Entrant { system, case } = entrant;
    let (mut waits, mut sum_us) = (Waits::default(), 0);
    let times = match case.extent {
        Extent::Pairs(times) => times,
        Extent::WindowMs(_) => return Err("takeovers are counted by number".into()),
    };
    let before = store.cost().await?;
    let began_us = now_us();
    for time in 0..times {
        store.clear().await?;
        let spec = case.spec(system, store.url(), vec![], &about(system, run)?);
        // At a different moment between two renewals each time: the waiter waits for the rest of the lease at that
        // moment.
        let moment = u64::from(run) * times + time;
        let delay = Duration::from_micros(renewal_us(case) * (moment * 618 % 1000) / 1000);
        let wait_us = one(case, spec, delay).await.context(format!("takeover {time}"))?;
        waits.note(wait_us);
        sum_us += wait_us;
    }
    let cost = store.cost().await?.since(&before);
    let mut row = Row { ops: times, ..Row::of_waits(system.clone(), case.clone(), run, &waits) };
    row.ops_per_s = times as f64 * 1e6 / sum_us.max(1) as f64;
    row.server_us_per_op = cost.scripts().us as f64 / times as f64;
    row.charge(&cost, times, (now_us() - began_us) as f64);
    Ok(row)
}

/// Returns the time between two renewals of a lease.
fn renewal_us(case: &Case) -> u64 {
    case.lease_ms() * 1_000 / 3
}

/// Returns the time from the end of one holder until the next one holds.
async fn one(case: &Case, wait: Spec, delay: Duration) -> Result<u64> {
    let hold = Spec { duty: Duty::Hold { lease_ms: case.lease_ms() }, ..wait.clone() };
    let (peers, system) = (Peers::default(), &wait.system);
    let mut holder = Hand::start(command(&peers, system)?, &hold).await?;
    holder.ready().await?;
    let mut waiter = Hand::start(command(&peers, system)?, &wait).await?;
    waiter.ready().await?;
    waiter.go().await?;
    sleep(delay).await;
    let ended_us = match case.ending {
        Some(Ending::Killed) => {
            let at_us = now_us();
            holder.kill()?;
            at_us
        }
        Some(Ending::Released) | None => {
            holder.go().await?;
            let at_us = holder.report().await?.at_us;
            holder.end().await?;
            at_us.ok_or("the holder did not report when it released")?
        }
    };
    let held_us = waiter.report().await?.at_us.ok_or("the waiter did not report when it held")?;
    waiter.end().await?;
    held_us.checked_sub(ended_us).ok_or_else(|| "the waiter held before the holder ended".into())
}
