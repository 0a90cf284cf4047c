//! Inspect: the only request that changes nothing. Leases that have ended are shown as ended, and removed by a later step.

use crate::grant::Grant;
use crate::inspection::{Holder, Inspection, ShownMode, Waiter};
use crate::limits::SHOWN_MAX;
use crate::mutant::{Mutant, is_on};
use crate::policy;
use crate::resource::{Entry, Resource};

/// Returns the holders, the first waiters, and what the name is.
pub(super) fn inspect(resource: &Resource, now_us: u64) -> Inspection {
    let is_live = |grant: &&Grant| grant.end_us() > now_us || is_on(Mutant::P50ShowsEnded);
    let mut live: Vec<&Grant> = resource.grants.iter().filter(is_live).collect();
    let unread = resource.grants.unread();
    let grants = (live.len() + unread.count) as u64;
    let units = match policy::waits_together(resource.kind) {
        // The units of such a grant are the place of an arrival.
        true => u32::try_from(grants).unwrap_or(u32::MAX),
        false => live.iter().map(|grant| grant.units).sum::<u32>() + unread.units,
    };
    if live.len() > SHOWN_MAX && !is_on(Mutant::P50ShowsAny) {
        live.select_nth_unstable_by_key(SHOWN_MAX, |grant| grant.token);
    }
    live.truncate(SHOWN_MAX);
    live.sort_unstable_by_key(|grant| grant.token);
    let upgrade = resource.upgrade.iter().filter(|_| !is_on(Mutant::P50HidesUpgrade));
    let waiting = upgrade.chain(&resource.queue);
    Inspection {
        kind: resource.kind,
        limit: resource.limit,
        units,
        holders: live.into_iter().map(|grant| holder(grant, now_us)).collect(),
        grants,
        queue: waiting.take(SHOWN_MAX).map(|entry| waiter(entry, now_us)).collect(),
        waiters: resource.queue.len() as u64 + u64::from(resource.upgrade.is_some()),
    }
}

fn holder(grant: &Grant, now_us: u64) -> Holder {
    Holder {
        id: grant.id.public(),
        token: grant.token,
        left_us: grant.left_us(now_us),
        label: grant.label.clone(),
        state: grant.state,
        units: grant.units,
        mode: match grant.mode.into() {
            // The upgrade is over: the grant is that of a writer.
            ShownMode::Upgrade => ShownMode::Plain,
            mode => mode,
        },
    }
}

fn waiter(entry: &Entry, now_us: u64) -> Waiter {
    Waiter {
        id: entry.id.public(),
        units: entry.units,
        mode: entry.mode.into(),
        left_us: entry.limit_us.map(|limit_us| limit_us.saturating_sub(now_us)),
        label: entry.label.clone(),
    }
}
