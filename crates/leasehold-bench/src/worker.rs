//! One process of a run. It reads what to do, connects, says that it is ready, starts when it is told, and reports.
//!
//! Every run has fresh processes, also where one would do: no system meets the allocator, the connection or the server's
//! client buffers that another one left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::{Context, Result};
use crate::stats::{PackedWaits, Waits};
use crate::system::{self, Client, Floor, Leasehold, Lock, S5, System, Unlocked};

/// What a worker is told, as one line of JSON on its standard input (not among its arguments, which everybody on the
/// machine can read: the URL may have a password in it).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) system: System,
    pub(crate) url: String,
    pub(crate) threads: u32,
    pub(crate) tasks: u32,
    pub(crate) names: Names,
    /// Counted up inside the lock by GET and SET, which loses updates where two are inside.
    pub(crate) counter: Option<String>,
    pub(crate) span: Span,
}

/// The names that the tasks of a worker lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Names {
    One(String),
    PerTask(String),
    New(String),
    /// As `New`, after a round over the same names that is not counted.
    Used(String),
}

impl Names {
    fn of_task(&self, task: u32) -> Option<String> {
        match self {
            Self::One(name) => Some(name.clone()),
            Self::PerTask(prefix) => Some(format!("{prefix}:{task}")),
            Self::New(_) | Self::Used(_) => None,
        }
    }

    fn of_pair(&self, task: u32, pair: u64) -> String {
        let (Self::One(prefix) | Self::PerTask(prefix) | Self::New(prefix) | Self::Used(prefix)) = self;
        format!("{prefix}:{task}:{pair}")
    }
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Span {
    /// By the clock; pairs that end in the warm-up are made and not counted.
    Window { warm_up_ms: u64, window_ms: u64 },
    /// After so many pairs of each task.
    Pairs { each: u64 },
}

impl Span {
    /// After this a run hangs: no lock of any system waits for as long.
    pub(crate) fn limit(&self) -> Duration {
        let planned_ms = match self {
            Self::Window { warm_up_ms, window_ms } => warm_up_ms + window_ms,
            Self::Pairs { each } => each.saturating_mul(20),
        };
        Duration::from_millis(planned_ms.saturating_add(60_000))
    }
}

/// What a worker says at the end, as one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Counted pairs, by task.
    pub(crate) served: Vec<u64>,
    /// All pairs, those of the warm-up too.
    pub(crate) pairs: u64,
    /// How long was counted.
    pub(crate) counted_us: u64,
    /// Processor time of this process from the start on, for all pairs.
    pub(crate) cpu_us: u64,
    pub(crate) waits: PackedWaits,
}

/// What a worker says when it is connected.
pub(crate) const READY: &str = "ready";
/// What it is told then.
pub(crate) const GO: &str = "go";

/// The life of a worker.
pub(crate) fn main() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("reading the task")?;
    let spec: Spec = serde_json::from_str(&line).context("reading the task")?;
    let runtime = match spec.threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build(),
        threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads as usize).enable_all().build(),
    };
    let report = runtime.context("starting a runtime")?.block_on(async {
        match spec.system {
            System::S5 => run::<S5>(spec).await,
            System::Floor => run::<Floor>(spec).await,
            System::Leasehold => run::<Leasehold>(spec).await,
            System::None => run::<Unlocked>(spec).await,
        }
    })?;
    println!("{}", serde_json::to_string(&report).context("writing the report")?);
    Ok(())
}

async fn run<C: Client>(spec: Spec) -> Result<Report> {
    let limit = spec.span.limit();
    let counter = match &spec.counter {
        // Apart from the lock's connection, for every system: it must not ride in the lock's packets, or a system that
        // uses a connection of its own would pay for a packet that the other one saves.
        Some(key) => Some(Counter { connection: system::connection(&spec.url).await?, key: key.clone() }),
        None => None,
    };
    let client = C::connect(&spec.url).await?;
    let spec = Arc::new(spec);
    if matches!(spec.names, Names::Used(_)) {
        timeout(limit, all_tasks(&client, &spec, counter.as_ref())).await.context("the round before did not end")??;
    }
    println!("{READY}");
    tokio::task::spawn_blocking(await_go).await.context("waiting for the start")??;
    let (begun, cpu_before_us) = (Instant::now(), cpu_us());
    let tallies =
        timeout(limit, all_tasks(&client, &spec, counter.as_ref())).await.context("the run did not end")??;
    let cpu_us = cpu_us() - cpu_before_us;
    let counted_us = match spec.span {
        Span::Window { window_ms, .. } => window_ms * 1_000,
        Span::Pairs { .. } => begun.elapsed().as_micros() as u64,
    };
    let mut waits = Waits::default();
    tallies.iter().for_each(|tally| waits.merge(&tally.waits));
    Ok(Report {
        served: tallies.iter().map(|tally| tally.served).collect(),
        pairs: tallies.iter().map(|tally| tally.pairs).sum(),
        counted_us,
        cpu_us,
        waits: PackedWaits::from(&waits),
    })
}

/// What all threads of this process have used of the processors so far.
fn cpu_us() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}

fn await_go() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("waiting for the start")?;
    if line.trim_end() == GO { Ok(()) } else { Err("the run was called off".into()) }
}

async fn all_tasks<C: Client>(client: &C, spec: &Arc<Spec>, counter: Option<&Counter>) -> Result<Vec<Tally>> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..spec.tasks {
        tasks.spawn(one_task(client.clone(), Arc::clone(spec), task, counter.cloned(), started));
    }
    let mut tallies = Vec::with_capacity(spec.tasks as usize);
    while let Some(tally) = tasks.join_next().await {
        tallies.push(tally.context("a task")??);
    }
    Ok(tallies)
}

/// What one task did.
#[derive(Default)]
struct Tally {
    served: u64,
    pairs: u64,
    waits: Waits,
}

async fn one_task<C: Client>(
    client: C,
    spec: Arc<Spec>,
    task: u32,
    mut counter: Option<Counter>,
    started: Instant,
) -> Result<Tally> {
    let kept = spec.names.of_task(task).map(|name| client.lock(name));
    let mut tally = Tally::default();
    while !is_over(spec.span, started, tally.pairs) {
        let fresh;
        let lock = match &kept {
            Some(lock) => lock,
            None => {
                fresh = client.lock(spec.names.of_pair(task, tally.pairs));
                &fresh
            }
        };
        let asked = Instant::now();
        let held = lock.acquire().await?;
        let wait_us = asked.elapsed().as_micros() as u64;
        if let Some(counter) = &mut counter {
            counter.count_up().await?;
        }
        lock.release(held).await?;
        tally.pairs += 1;
        if is_counted(spec.span, started) {
            tally.served += 1;
            tally.waits.note(wait_us);
        }
    }
    Ok(tally)
}

fn is_over(span: Span, started: Instant, pairs: u64) -> bool {
    match span {
        Span::Window { warm_up_ms, window_ms } => started.elapsed() >= Duration::from_millis(warm_up_ms + window_ms),
        Span::Pairs { each } => pairs >= each,
    }
}

fn is_counted(span: Span, started: Instant) -> bool {
    let Span::Window { warm_up_ms, window_ms } = span else { return true };
    let at = started.elapsed();
    at >= Duration::from_millis(warm_up_ms) && at < Duration::from_millis(warm_up_ms + window_ms)
}

/// A counter that only a lock keeps right: read here, written back there.
#[derive(Clone)]
struct Counter {
    connection: MultiplexedConnection,
    key: String,
}

impl Counter {
    async fn count_up(&mut self) -> Result<()> {
        let tried = "counting";
        let count: Option<u64> =
            redis::cmd("GET").arg(&self.key).query_async(&mut self.connection).await.context(tried)?;
        let next = count.unwrap_or(0) + 1;
        redis::cmd("SET").arg(&self.key).arg(next).query_async::<()>(&mut self.connection).await.context(tried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_survives_the_way_to_the_worker() {
        let spec = Spec {
            system: System::Floor,
            url: "redis://h:1".into(),
            threads: 2,
            tasks: 3,
            names: Names::PerTask("p".into()),
            counter: Some("c".into()),
            span: Span::Window { warm_up_ms: 1, window_ms: 2 },
        };
        let line = serde_json::to_string(&spec).unwrap();
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Spec>(&line).unwrap(), spec);
    }

    #[test]
    fn tasks_share_a_name_only_where_they_are_told_to() {
        let one = Names::One("n".into());
        assert_eq!(one.of_task(0), one.of_task(1));
        let own = Names::PerTask("n".into());
        assert_ne!(own.of_task(0), own.of_task(1));
        let new = Names::New("n".into());
        assert_eq!(new.of_task(0), None);
        let mut all: Vec<_> = (0..12).flat_map(|task| (0..12).map(move |pair| (task, pair))).collect();
        all.sort_by_cached_key(|&(task, pair)| new.of_pair(task, pair));
        assert!(all.windows(2).all(|two| new.of_pair(two[0].0, two[0].1) != new.of_pair(two[1].0, two[1].1)));
    }

    #[test]
    fn the_warm_up_is_not_counted() {
        let span = Span::Window { warm_up_ms: 60_000, window_ms: 60_000 };
        let ago = |ms| Instant::now().checked_sub(Duration::from_millis(ms)).unwrap();
        assert!(!is_counted(span, Instant::now()) && !is_over(span, Instant::now(), 9));
        assert!(is_counted(span, ago(70_000)) && !is_over(span, ago(70_000), 9));
        assert!(!is_counted(span, ago(120_000)) && is_over(span, ago(120_000), 9));
        assert!(
            is_counted(Span::Pairs { each: 9 }, ago(120_000)) && is_over(Span::Pairs { each: 9 }, Instant::now(), 9)
        );
    }
}
