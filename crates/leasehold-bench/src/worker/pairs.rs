//! Tasks that lock and unlock, and their work in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

use super::{Duty, Names, Report, Span, Spec, Tally, cpu_us, now_us, start};
use crate::error::{Context, Result};
use crate::stats::PackedWaits;
use crate::system::{self, Client, Lock};

/// Of this many sections with nothing inside, one yields to the other tasks. If none yielded, no other task of the thread
/// could run inside a section, and two holders at a time would not show. If all yielded, the benchmark would measure the
/// runtime.
const YIELD_EVERY: u64 = 64;

pub(super) async fn run<C: Client>(spec: Spec) -> Result<Report> {
    let limit = spec.span.limit();
    let section = match (spec.duty, &spec.counter) {
        (Duty::Busy { busy_us }, _) => Section::Busy { inside: Duration::from_micros(busy_us), count: Arc::default() },
        // A connection apart from the lock's, for every system: the counter's commands must not travel in the lock's
        // packets. A system that uses a connection of its own would otherwise pay for a packet that the other one saves.
        (_, Some(key)) => {
            let connection = system::connection(&spec.url).await?;
            Section::Count { connection, key: key.clone(), grants: Arc::default() }
        }
        // With a counter of this process: it costs no round trip.
        (_, None) if matches!(spec.names, Names::One(_)) => {
            Section::Local { count: Arc::default(), grants: Arc::default() }
        }
        (_, None) => Section::Empty,
    };
    let client = C::connect(&spec.lock_url()).await?;
    let spec = Arc::new(spec);
    if matches!(spec.names, Names::Used(_)) {
        timeout(limit, all_tasks(&client, &spec, &section)).await.context("the round before did not end")??;
    }
    start().await?;
    let (begun, cpu_before_us) = (Instant::now(), cpu_us());
    let tallies = timeout(limit, all_tasks(&client, &spec, &section)).await.context("the run did not end")??;
    let cpu_us = cpu_us() - cpu_before_us;
    let counted_us = match spec.span {
        Span::Window { window_ms, .. } => window_ms * 1_000,
        Span::Pairs { .. } => begun.elapsed().as_micros() as u64,
    };
    let (local_count, grants) = section.found();
    let attempts = (!spec.nodes.is_empty()).then(leasehold::seam::attempts).filter(|attempts| !attempts.is_empty());
    let attempts = attempts.map(PackedWaits::from);
    Ok(Report { local_count, grants, attempts, ..Report::of(&tallies, counted_us, cpu_us) })
}

async fn all_tasks<C: Client>(client: &C, spec: &Arc<Spec>, section: &Section) -> Result<Vec<Tally>> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..spec.tasks {
        tasks.spawn(one_task(client.clone(), Arc::clone(spec), task, section.clone(), started));
    }
    let mut tallies = Vec::with_capacity(spec.tasks as usize);
    while let Some(tally) = tasks.join_next().await {
        tallies.push(tally.context("a task")??);
    }
    Ok(tallies)
}

async fn one_task<C: Client>(
    client: C,
    spec: Arc<Spec>,
    task: u32,
    mut section: Section,
    started: Instant,
) -> Result<Tally> {
    let kept = spec.names.of_task(task).map(|name| client.lock(name));
    let mut tally = Tally::default();
    let mut pauses = Pauses(now_us() ^ u64::from(std::process::id()) << 32 ^ u64::from(task));
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
        section.pass(C::Lock::token(&held)).await?;
        lock.release(held).await?;
        tally.note(wait_us, || is_counted(spec.span, started));
        if let Some(pause_us) = spec.pause_us {
            sleep(pauses.next(pause_us)).await;
        }
    }
    Ok(tally)
}

/// Random pauses: xorshift, which is good enough for this.
pub(super) struct Pauses(pub(super) u64);

impl Pauses {
    /// Returns the next pause; `mean_us` is their average length.
    pub(super) fn next(&mut self, mean_us: u64) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % (2 * mean_us).max(1))
    }
}

pub(super) fn is_over(span: Span, started: Instant, pairs: u64) -> bool {
    match span {
        Span::Window { warm_up_ms, window_ms } => started.elapsed() >= Duration::from_millis(warm_up_ms + window_ms),
        Span::Pairs { each } => pairs >= each,
    }
}

pub(super) fn is_counted(span: Span, started: Instant) -> bool {
    let Span::Window { warm_up_ms, window_ms } = span else { return true };
    let at = started.elapsed();
    at >= Duration::from_millis(warm_up_ms) && at < Duration::from_millis(warm_up_ms + window_ms)
}

/// The work while the lock is held.
#[derive(Clone)]
enum Section {
    Empty,
    /// A counter in the store that only a lock keeps correct: read here, written back there.
    Count {
        connection: MultiplexedConnection,
        key: String,
        grants: Arc<Mutex<Grants>>,
    },
    /// Nothing that costs time. It reads a counter of this process and writes it back, so two holders in this process lose
    /// updates.
    Local {
        count: Arc<AtomicU64>,
        grants: Arc<Mutex<Grants>>,
    },
    /// A counter of this process, used in the same way, and a computation of this length.
    Busy {
        inside: Duration,
        count: Arc<AtomicU64>,
    },
}

impl Section {
    async fn pass(&mut self, token: Option<u64>) -> Result<()> {
        match self {
            Self::Empty => Ok(()),
            Self::Count { connection, key, grants } => {
                note(grants, token);
                count_up(connection, key).await.context("counting")
            }
            Self::Local { count, grants } => {
                note(grants, token);
                let before = count.load(Ordering::Relaxed);
                if before.is_multiple_of(YIELD_EVERY) {
                    yield_now().await;
                }
                count.store(before + 1, Ordering::Relaxed);
                Ok(())
            }
            Self::Busy { inside, count } => {
                let before = count.load(Ordering::Relaxed);
                let entered = Instant::now();
                while !inside.is_zero() && entered.elapsed() < *inside {
                    std::hint::spin_loop();
                }
                count.store(before + 1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Returns the final value of the counter of this process, and the origin of the grants, if they are known.
    fn found(&self) -> (Option<u64>, Option<Grants>) {
        match self {
            Self::Empty => (None, None),
            Self::Count { grants, .. } => (None, noted(grants)),
            Self::Local { count, grants } => (Some(count.load(Ordering::Relaxed)), noted(grants)),
            Self::Busy { count, .. } => (Some(count.load(Ordering::Relaxed)), None),
        }
    }
}

fn note(grants: &Mutex<Grants>, token: Option<u64>) {
    if let Some(token) = token {
        grants.lock().unwrap_or_else(PoisonError::into_inner).note(token);
    }
}

fn noted(grants: &Mutex<Grants>) -> Option<Grants> {
    let grants = grants.lock().unwrap_or_else(PoisonError::into_inner).clone();
    grants.last.is_some().then_some(grants)
}

pub(super) async fn count_up(connection: &mut MultiplexedConnection, key: &str) -> redis::RedisResult<()> {
    let count: Option<u64> = redis::cmd("GET").arg(key).query_async(connection).await?;
    redis::cmd("SET").arg(key).arg(count.unwrap_or(0) + 1).query_async(connection).await
}

/// How this process got the grants of one name. The store's tokens are the server's time in µs, which advances by far
/// more than one between two grants: a token that is one more than the last was handed over within the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grants {
    last: Option<u64>,
    /// Grants that the store made.
    pub(crate) by_store: u64,
    /// How many of them were handed over at least once before they were released.
    pub(crate) local_runs: u64,
    is_passed_on: bool,
}

impl Grants {
    fn note(&mut self, token: u64) {
        let is_local = self.last.is_some_and(|last| token == last + 1);
        if !is_local {
            self.by_store += 1;
        } else if !self.is_passed_on {
            self.local_runs += 1;
        }
        (self.last, self.is_passed_on) = (Some(token), is_local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// With one thread, as in the benchmark.
    #[tokio::test]
    async fn two_holders_of_one_process_show_with_nothing_inside() {
        let pass = |section: Section| async move {
            let mut section = section;
            for _ in 0..1_000 {
                section.pass(None).await.unwrap();
            }
        };
        for holders in [1, 2] {
            let section = Section::Local { count: Arc::default(), grants: Arc::default() };
            let mut tasks = JoinSet::new();
            (0..holders).for_each(|_| drop(tasks.spawn(pass(section.clone()))));
            tasks.join_all().await;
            let (count, _) = section.found();
            assert_eq!(count < Some(holders * 1_000), holders > 1, "{holders} holders count to {count:?}");
        }
    }

    #[test]
    fn pauses_are_as_long_as_they_should_be_on_average() {
        let mut pauses = Pauses(7);
        let all: Vec<Duration> = (0..10_000).map(|_| pauses.next(1_000)).collect();
        let mean = all.iter().sum::<Duration>() / 10_000;
        assert!(
            (950..1_050).contains(&mean.as_micros()) && all.iter().max() < Some(&Duration::from_millis(2)),
            "{mean:?}"
        );
    }

    #[test]
    fn tokens_show_the_origin_of_grants() {
        let mut grants = Grants::default();
        for token in [1_000, 1_001, 1_002, 5_000, 9_000, 9_001] {
            grants.note(token);
        }
        assert_eq!((grants.by_store, grants.local_runs), (3, 2));
    }
}
