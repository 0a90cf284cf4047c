//! The parts of a worker that do not depend on its lock: its command line, its connections, its figures. The other workers
//! in Rust use this file, too.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::task::{Duty, Pauses, Report, Span, Spec, Tally};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Prints the description if `--about` asks for it. Otherwise reads a task, runs it and prints its report.
pub(crate) fn answer<F>(
    peer: &str,
    about: impl FnOnce() -> Result<String, Failure>,
    run: impl FnOnce(Spec) -> F,
) -> ExitCode
where
    F: Future<Output = Result<Report, Failure>>,
{
    let done = match std::env::args().nth(1).as_deref() {
        Some("--about") => about(),
        _ => work(run),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("{peer} peer: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn work<F>(run: impl FnOnce(Spec) -> F) -> Result<String, Failure>
where
    F: Future<Output = Result<Report, Failure>>,
{
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let spec: Spec = serde_json::from_str(&line)?;
    let runtime = match spec.threads {
        1 => Builder::new_current_thread().enable_all().build()?,
        threads => Builder::new_multi_thread().worker_threads(threads).enable_all().build()?,
    };
    Ok(serde_json::to_string(&runtime.block_on(run(spec))?)?)
}

/// Returns the delay of the system that polls fast, or another one to be tried.
pub(crate) fn fast_ms(default_ms: u64) -> Result<u64, Failure> {
    std::env::var("PEER_RETRY_MS").map_or(Ok(default_ms), |ms| Ok(ms.parse()?))
}

/// Returns the version of a crate in this `Cargo.lock`.
pub(crate) fn locked<'file>(lock_file: &'file str, name: &str) -> &'file str {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let version = lock_file.split_once(&entry).and_then(|(_, rest)| rest.split('"').next());
    version.unwrap_or("unknown")
}

/// Sets `TCP_NODELAY`, as in the other systems of the comparison: by default the crate collects small packets.
pub(crate) fn client(url: &str) -> Result<Client, Failure> {
    let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    Ok(Client::open(info)?)
}

/// The number inside the lock, on a connection apart from the lock's, as in every worker.
#[derive(Clone)]
pub(crate) struct Counter {
    connection: MultiplexedConnection,
    key: String,
}

impl Counter {
    /// Returns `None` if the task has no counter.
    pub(crate) async fn connect(spec: &Spec) -> Result<Option<Self>, Failure> {
        let Some(key) = spec.counter.clone() else { return Ok(None) };
        let connection = client(&spec.url)?.get_multiplexed_async_connection().await?;
        Ok(Some(Self { connection, key }))
    }

    pub(crate) async fn get(&mut self) -> Result<Option<u64>, Failure> {
        Ok(redis::cmd("GET").arg(&self.key).query_async(&mut self.connection).await?)
    }

    pub(crate) async fn count_up(&mut self) -> Result<(), Failure> {
        let next = self.get().await?.unwrap_or(0) + 1;
        Ok(redis::cmd("SET").arg(&self.key).arg(next).exec_async(&mut self.connection).await?)
    }
}

/// Returns the source of random numbers of a task.
pub(crate) fn random(task: u32) -> Result<Pauses, Failure> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    Ok(Pauses(wall ^ u64::from(std::process::id()) << 32 ^ u64::from(task)))
}

/// Runs all tasks to their ends. `one_task` gets the number of a task and the time at which the run began.
pub(crate) async fn all_tasks<F>(spec: &Spec, one_task: impl Fn(u32, Instant) -> F) -> Result<Vec<Tally>, Failure>
where
    F: Future<Output = Result<Tally, Failure>> + Send + 'static,
{
    timeout(spec.span.limit(), async {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..spec.tasks {
            tasks.spawn(one_task(task, started));
        }
        let mut tallies = Vec::with_capacity(spec.tasks as usize);
        while let Some(tally) = tasks.join_next().await {
            tallies.push(tally??);
        }
        Ok(tallies)
    })
    .await
    .map_err(|_| "the run did not end")?
}

/// Reports that the worker is ready, waits for `go`, runs the tasks and adds up their figures.
pub(crate) async fn measure(
    spec: &Spec,
    tasks: impl Future<Output = Result<Vec<Tally>, Failure>>,
) -> Result<Report, Failure> {
    println!("ready");
    tokio::task::spawn_blocking(await_go).await??;
    let (begun, cpu_before) = (Instant::now(), cpu());
    let tallies = tasks.await?;
    let cpu_us = (cpu() - cpu_before).as_micros() as u64;
    let counted_us = match spec.span {
        Span::Window { window_ms, .. } => window_ms * 1_000,
        Span::Pairs { .. } => begun.elapsed().as_micros() as u64,
    };
    let mut waits = BTreeMap::new();
    for (us, count) in tallies.iter().flat_map(|tally| &tally.waits) {
        *waits.entry(*us).or_default() += count;
    }
    let is_shared = !matches!(spec.duty, Duty::Pairs);
    Ok(Report {
        served: tallies.iter().map(|tally| tally.served).collect(),
        pairs: tallies.iter().map(|tally| tally.pairs).sum(),
        counted_us,
        cpu_us,
        waits: waits.into_iter().collect(),
        writes: is_shared.then(|| tallies.iter().map(|tally| tally.writes).sum()),
        overlaps: is_shared.then(|| tallies.iter().map(|tally| tally.overlaps).sum()),
    })
}

fn await_go() -> Result<(), Failure> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim_end() == "go" { Ok(()) } else { Err("the run was aborted".into()) }
}

/// Returns the processor time of all threads of this process so far.
fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
