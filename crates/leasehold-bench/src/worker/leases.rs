//! Very many leases that are held without other work: only renewals remain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Guard, Leasehold};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Report, Spec, cpu_us, start};
use crate::error::{Context, Result};

/// How many of them are requested at a time, before anything is counted.
const ASKERS: u32 = 64;

pub(super) async fn run(spec: &Spec, lease_ms: u64) -> Result<Report> {
    let (_, window) = spec.span.window()?;
    let lease = Duration::from_millis(lease_ms);
    let client = Leasehold::builder(&spec.url).lease(lease).connect().await.context("leasehold")?;
    let guards = timeout(spec.span.limit(), take_all(&client, spec)).await.context("not all leases were granted")??;
    start().await?;
    let (began, cpu_before_us) = (Instant::now(), cpu_us());
    sleep(window).await;
    let (held, cpu_us) = (began.elapsed(), cpu_us() - cpu_before_us);
    // A lost lease stays lost: one check at the end finds them all.
    let kept: Vec<u64> = guards.iter().map(|guard| u64::from(guard.check().is_ok())).collect();
    let lost = kept.iter().filter(|kept| **kept == 0).count() as u64;
    // Releasing them is not part of holding them.
    std::mem::forget(guards);
    let pairs = kept.len() as u64;
    let counted_us = held.as_micros() as u64;
    Ok(Report { served: kept, pairs, counted_us, cpu_us, lost_leases: Some(lost), ..Report::default() })
}

async fn take_all(client: &Leasehold, spec: &Spec) -> Result<Vec<Guard>> {
    let next = Arc::new(AtomicU32::new(0));
    let mut askers = JoinSet::new();
    for _ in 0..ASKERS {
        let (client, names, tasks, next) = (client.clone(), spec.names.clone(), spec.tasks, Arc::clone(&next));
        askers.spawn(async move {
            let mut guards = Vec::new();
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                let Some(name) = (task < tasks).then(|| names.of_task(task)).flatten() else { return Ok(guards) };
                guards.push(client.mutex(name).lock().await?);
            }
        });
    }
    let mut guards = Vec::with_capacity(spec.tasks as usize);
    while let Some(taken) = askers.join_next().await {
        let taken: leasehold::Result<Vec<Guard>> = taken.context("a task")?;
        guards.extend(taken.context("leasehold")?);
    }
    Ok(guards)
}
