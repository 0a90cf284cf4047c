//! Tasks that share a lock: readers and writers of one record, or holders of permits.
//!
//! Each section is two round trips to the counter, whatever it does, and each can see somebody who had to be kept out: a
//! reader reads the counter twice, a writer reads it and writes it back, and a holder of a permit counts the holders.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Leasehold, Released, RwLock, Semaphore};
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::pairs::{Pauses, count_up, is_counted, is_over};
use super::{Duty, Report, Span, Spec, Tally, cpu_us, now_us, start};
use crate::error::{Context, Failure, Result};
use crate::system::{self, Own, System};

/// The lock of a task. Without one the counter must show overlaps.
enum Lock {
    None { writes_percent: u32, permits: u32 },
    ReadWrite { lock: Box<RwLock>, writes_percent: u32 },
    Permits { semaphore: Box<Semaphore>, permits: u32 },
}

/// The figures of one task.
#[derive(Default)]
struct Shared {
    tally: Tally,
    writes: u64,
    overlaps: u64,
}

pub(super) async fn run(spec: Spec) -> Result<Report> {
    let client = match &spec.system {
        System::Own(Own::Leasehold) => Some(Leasehold::connect(&spec.url).await.context("leasehold")?),
        System::Own(Own::None) => None,
        other => return Err(format!("{} shares no lock", other.name()).into()),
    };
    let counter = system::connection(&spec.url).await?;
    let (limit, spec) = (spec.span.limit(), Arc::new(spec));
    start().await?;
    let (begun, cpu_before_us) = (Instant::now(), cpu_us());
    let mut tasks = JoinSet::new();
    for task in 0..spec.tasks {
        let lock = Lock::of(client.as_ref(), &spec)?;
        tasks.spawn(one_task(lock, Arc::clone(&spec), task, counter.clone(), begun));
    }
    let all = timeout(limit, tasks.join_all()).await.context("the run did not end")?;
    let cpu_us = cpu_us() - cpu_before_us;
    let all = all.into_iter().collect::<Result<Vec<Shared>>>()?;
    let counted_us = match spec.span {
        Span::Window { window_ms, .. } => window_ms * 1_000,
        Span::Pairs { .. } => begun.elapsed().as_micros() as u64,
    };
    let (writes, overlaps) = (all.iter().map(|one| one.writes).sum(), all.iter().map(|one| one.overlaps).sum());
    let tallies: Vec<Tally> = all.into_iter().map(|one| one.tally).collect();
    Ok(Report { writes: Some(writes), overlaps: Some(overlaps), ..Report::of(&tallies, counted_us, cpu_us) })
}

async fn one_task(
    lock: Lock,
    spec: Arc<Spec>,
    task: u32,
    mut counter: MultiplexedConnection,
    started: Instant,
) -> Result<Shared> {
    let key = spec.counter.as_deref().ok_or("a shared lock needs a counter")?;
    let mut found = Shared::default();
    let mut random = Pauses(now_us() ^ u64::from(std::process::id()) << 32 ^ u64::from(task));
    while !is_over(spec.span, started, found.tally.pairs) {
        let wait = lock.pair(random.percent(), (&mut counter, key), &mut found).await?;
        found.tally.note(wait.as_micros() as u64, || is_counted(spec.span, started));
    }
    Ok(found)
}

impl Lock {
    fn of(client: Option<&Leasehold>, spec: &Spec) -> Result<Self> {
        let name = spec.names.of_task(0).ok_or("a shared lock has one name")?;
        Ok(match (client, spec.duty) {
            (Some(client), Duty::ReadWrite { writes_percent }) => {
                Self::ReadWrite { lock: Box::new(client.rw_lock(name)), writes_percent }
            }
            (Some(client), Duty::Permits { permits }) => {
                Self::Permits { semaphore: Box::new(client.semaphore(name, permits)), permits }
            }
            (None, Duty::ReadWrite { writes_percent }) => Self::None { writes_percent, permits: 0 },
            (None, Duty::Permits { permits }) => Self::None { writes_percent: 0, permits },
            _ => return Err("this duty shares no lock".into()),
        })
    }

    /// Acquires, passes through the section, and releases. Returns how long it waited.
    async fn pair(
        &self,
        percent: u32,
        counter: (&mut MultiplexedConnection, &str),
        found: &mut Shared,
    ) -> Result<Duration> {
        let asked = Instant::now();
        match self {
            Self::ReadWrite { lock, writes_percent } if percent < *writes_percent => {
                let guard = lock.write().await.context("leasehold")?;
                let wait = asked.elapsed();
                found.write(counter).await?;
                released(guard.release().await)?;
                Ok(wait)
            }
            Self::ReadWrite { lock, .. } => {
                let guard = lock.read().await.context("leasehold")?;
                let wait = asked.elapsed();
                found.read(counter).await?;
                released(guard.release().await)?;
                Ok(wait)
            }
            Self::Permits { semaphore, permits } => {
                let permit = semaphore.acquire().await.context("leasehold")?;
                let wait = asked.elapsed();
                found.hold(counter, *permits).await?;
                released(permit.release().await)?;
                Ok(wait)
            }
            Self::None { permits, .. } if *permits > 0 => found.hold(counter, *permits).await.map(|()| Duration::ZERO),
            Self::None { writes_percent, .. } if percent < *writes_percent => {
                found.write(counter).await.map(|()| Duration::ZERO)
            }
            Self::None { .. } => found.read(counter).await.map(|()| Duration::ZERO),
        }
    }
}

impl Shared {
    async fn write(&mut self, (connection, key): (&mut MultiplexedConnection, &str)) -> Result<()> {
        self.writes += 1;
        count_up(connection, key).await.context("counting")
    }

    async fn read(&mut self, (connection, key): (&mut MultiplexedConnection, &str)) -> Result<()> {
        let mut seen = [None::<u64>; 2];
        for one in &mut seen {
            *one = redis::cmd("GET").arg(key).query_async(connection).await.context("reading the counter")?;
        }
        self.overlaps += u64::from(seen[0] != seen[1]);
        Ok(())
    }

    async fn hold(&mut self, (connection, key): (&mut MultiplexedConnection, &str), permits: u32) -> Result<()> {
        let holders: u64 = redis::cmd("INCR").arg(key).query_async(connection).await.context("counting")?;
        self.overlaps += u64::from(holders > u64::from(permits));
        redis::cmd("DECR").arg(key).exec_async(connection).await.context("counting")
    }
}

impl Pauses {
    /// Returns a number below 100.
    fn percent(&mut self) -> u32 {
        (self.next(500_000).as_micros() % 100) as u32
    }
}

fn released(result: leasehold::Result<Released>) -> Result<()> {
    match result.context("leasehold")? {
        Released::Released => Ok(()),
        Released::NotHeld => Err(Failure::from("leasehold: the lease was lost before it was given back")),
    }
}
