//! A holder, and the client that waits for its lease: two processes, of which the first may be killed.

use std::time::{Duration, Instant};

use leasehold::{Leasehold, Mutex};
use tokio::time::{sleep, timeout};

use super::{Report, Spec, Tally, cpu_us, now_us, start};
use crate::error::{Context, Result};
use crate::system::Lock;

const POLL: Duration = Duration::from_millis(1);

/// Holds until the signal to release.
pub(super) async fn hold(spec: &Spec, lease_ms: u64) -> Result<Report> {
    let mutex = mutex(spec, lease_ms).await?;
    let guard = mutex.acquire().await?;
    start().await?;
    let at_us = now_us();
    mutex.release(guard).await?;
    Ok(Report { at_us: Some(at_us), ..Report::of(&[], 0, cpu_us()) })
}

/// Waits, and reports when it held.
pub(super) async fn wait(spec: &Spec, lease_ms: u64) -> Result<Report> {
    let mutex = mutex(spec, lease_ms).await?;
    let waiter = mutex.clone();
    let held = tokio::spawn(async move {
        let asked = Instant::now();
        let guard = waiter.acquire().await?;
        Ok((now_us(), asked.elapsed(), guard))
    });
    timeout(spec.span.limit(), queued(&mutex)).await.context("the waiter is not in the queue")??;
    start().await?;
    let held: Result<_> = timeout(spec.span.limit(), held).await.context("nobody took over")?.context("a task")?;
    let (at_us, waited, guard) = held?;
    mutex.release(guard).await?;
    let mut tally = Tally::default();
    tally.note(waited.as_micros() as u64, || true);
    Ok(Report { at_us: Some(at_us), ..Report::of(&[tally], waited.as_micros() as u64, cpu_us()) })
}

async fn mutex(spec: &Spec, lease_ms: u64) -> Result<Mutex> {
    let client = Leasehold::connect(&spec.url).await.context("leasehold")?;
    let name = spec.names.of_task(0).ok_or("one name is held and waited for")?;
    Ok(client.mutex(name).lease(Duration::from_millis(lease_ms)))
}

async fn queued(mutex: &Mutex) -> Result<()> {
    while mutex.inspect().await.context("inspecting the queue")?.waiters == 0 {
        sleep(POLL).await;
    }
    Ok(())
}
