//! The work of a mutex: pairs of an acquire and a release, with the counter between them. The other workers in Rust use
//! this file, too.

use std::sync::Arc;
use std::time::Instant;

use tokio::time::sleep;

use crate::task::{Duty, Names, Report, Spec, Tally, is_counted, is_over};
use crate::worker::{Counter, Failure, all_tasks, measure, random};

/// The client of a library in one process. Its connections are open.
pub(crate) trait Locks: Clone + Send + Sync + 'static {
    type Lock: Lock;

    fn lock(&self, name: String) -> Result<Self::Lock, Failure>;
}

/// The lock of one name, as one task has it.
pub(crate) trait Lock: Send + Sync + 'static {
    /// The value that the holder keeps until it releases the lock.
    type Held: Send;

    /// Waits until the lock is held. If the library gives up, this method asks again.
    fn acquire(&self) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    /// Releases the lock. Fails if the library reports that the lock was not held any more.
    fn release(held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

pub(crate) async fn run(spec: Spec, locks: impl Locks) -> Result<Report, Failure> {
    if !matches!(spec.duty, Duty::Pairs) {
        return Err("a mutex is not shared".into());
    }
    let counter = Counter::connect(&spec).await?;
    let spec = Arc::new(spec);
    let round =
        || all_tasks(&spec, |task, started| one_task(locks.clone(), spec.clone(), task, counter.clone(), started));
    if matches!(spec.names, Names::Used(_)) {
        round().await?;
    }
    measure(&spec, round()).await
}

async fn one_task<L: Locks>(
    locks: L,
    spec: Arc<Spec>,
    task: u32,
    mut counter: Option<Counter>,
    started: Instant,
) -> Result<Tally, Failure> {
    let kept = spec.names.of_task(task).map(|name| locks.lock(name)).transpose()?;
    let mut tally = Tally::default();
    let mut pauses = random(task)?;
    while !is_over(spec.span, started, tally.pairs) {
        let fresh;
        let lock = match &kept {
            Some(lock) => lock,
            None => {
                fresh = locks.lock(spec.names.of_pair(task, tally.pairs))?;
                &fresh
            }
        };
        let asked = Instant::now();
        let held = lock.acquire().await?;
        let wait_us = asked.elapsed().as_micros() as u64;
        if let Some(counter) = &mut counter {
            counter.count_up().await?;
        }
        L::Lock::release(held).await?;
        tally.note(wait_us, is_counted(spec.span, started));
        if let Some(pause_us) = spec.pause_us {
            sleep(pauses.next(pause_us)).await;
        }
    }
    Ok(tally)
}
