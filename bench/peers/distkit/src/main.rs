//! Measures distkit's read-write lock like the benchmark's own systems: it gets the same tasks in the same protocol. See
//! README.md, "The protocol of a worker".

#[expect(dead_code, reason = "the worker of rslock uses this file, too")]
#[path = "../../rslock/src/task.rs"]
mod task;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use distkit::DistkitRedisKey;
use distkit::lock::{LockOptions, RwLock};
use redis::aio::{ConnectionManager, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::timeout;

use task::{Duty, Pauses, Report, Span, Spec, Tally, is_counted, is_over};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The delay of `distkit-rwlock-fast`.
const FAST_MS: u64 = 5;

fn main() -> ExitCode {
    let done = match std::env::args().nth(1).as_deref() {
        Some("--about") => about(),
        _ => work(),
    };
    match done {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            eprintln!("distkit peer: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn about() -> Result<String, Failure> {
    let version = format!("{}, redis-rs {}", locked("distkit"), locked("redis"));
    let one = |delays: String| {
        let settings = format!("RwLock; {delays}; lease 30 s, renewed every 10 s; one connection, TCP_NODELAY");
        json!({ "version": version, "settings": settings })
    };
    let systems = json!({
        "distkit-rwlock": one("defaults: retry after 50 ms".into()),
        "distkit-rwlock-fast": one(format!("retry after {} ms", fast_ms()?)),
    });
    Ok(json!({ "systems": systems }).to_string())
}

/// Returns the delay of `distkit-rwlock-fast`, or another one to be tried.
fn fast_ms() -> Result<u64, Failure> {
    std::env::var("PEER_RETRY_MS").map_or(Ok(FAST_MS), |ms| Ok(ms.parse()?))
}

/// Returns the version of a crate that this was built with.
fn locked(name: &str) -> &'static str {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let version = include_str!("../Cargo.lock").split_once(&entry).and_then(|(_, rest)| rest.split('"').next());
    version.unwrap_or("unknown")
}

fn work() -> Result<String, Failure> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let spec: Spec = serde_json::from_str(&line)?;
    let runtime = match spec.threads {
        1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        threads => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?,
    };
    Ok(serde_json::to_string(&runtime.block_on(run(spec))?)?)
}

async fn run(spec: Spec) -> Result<Report, Failure> {
    let retry = match spec.system.as_str() {
        "distkit-rwlock" => None,
        "distkit-rwlock-fast" => Some(Duration::from_millis(fast_ms()?)),
        other => return Err(format!("no such system here: {other:?}").into()),
    };
    let Duty::ReadWrite { writes_percent } = spec.duty else { return Err("it only reads and writes".into()) };
    let manager = ConnectionManager::new(client(&spec.url)?).await?;
    // A connection apart from the lock's, as in every worker.
    let counter = client(&spec.url)?.get_multiplexed_async_connection().await?;
    let spec = Arc::new(spec);
    println!("ready");
    tokio::task::spawn_blocking(await_go).await??;
    let (begun, cpu_before_us) = (Instant::now(), cpu_us());
    let mut tasks = JoinSet::new();
    for task in 0..spec.tasks {
        let lock = lock(&spec, task, manager.clone(), retry)?;
        tasks.spawn(one_task(lock, Arc::clone(&spec), (task, writes_percent), counter.clone(), begun));
    }
    let tallies = timeout(spec.span.limit(), tasks.join_all()).await.map_err(|_| "the run did not end")?;
    let tallies = tallies.into_iter().collect::<Result<Vec<Tally>, Failure>>()?;
    let cpu_us = cpu_us() - cpu_before_us;
    let counted_us = match spec.span {
        Span::Window { window_ms, .. } => window_ms * 1_000,
        Span::Pairs { .. } => begun.elapsed().as_micros() as u64,
    };
    let mut waits = BTreeMap::new();
    for (us, count) in tallies.iter().flat_map(|tally| &tally.waits) {
        *waits.entry(*us).or_default() += count;
    }
    Ok(Report {
        served: tallies.iter().map(|tally| tally.served).collect(),
        pairs: tallies.iter().map(|tally| tally.pairs).sum(),
        counted_us,
        cpu_us,
        waits: waits.into_iter().collect(),
        writes: Some(tallies.iter().map(|tally| tally.writes).sum()),
        overlaps: Some(tallies.iter().map(|tally| tally.overlaps).sum()),
    })
}

/// Returns the lock of a task. Each task has its own, because a lock has one owner.
fn lock(spec: &Spec, task: u32, manager: ConnectionManager, retry: Option<Duration>) -> Result<Arc<RwLock>, Failure> {
    let name = spec.names.of_task(task).ok_or("a shared lock has one name")?;
    // Its keys have no colon.
    let key = DistkitRedisKey::try_from(name.replace(':', "-"))?;
    let options = LockOptions::new(key, manager);
    Ok(RwLock::new(match retry {
        Some(retry_interval) => LockOptions { retry_interval, ..options },
        None => options,
    }))
}

/// Sets `TCP_NODELAY`, as in the other systems of the comparison: by default the crate collects small packets.
fn client(url: &str) -> Result<Client, Failure> {
    let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    Ok(Client::open(info)?)
}

/// Returns the processor time of all threads of this process so far.
fn cpu_us() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000
}

fn await_go() -> Result<(), Failure> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    if line.trim_end() == "go" { Ok(()) } else { Err("the run was aborted".into()) }
}

async fn one_task(
    lock: Arc<RwLock>,
    spec: Arc<Spec>,
    (task, writes_percent): (u32, u32),
    mut counter: MultiplexedConnection,
    started: Instant,
) -> Result<Tally, Failure> {
    let key = spec.counter.as_deref().ok_or("a shared lock needs a counter")?;
    let mut tally = Tally::default();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let mut random = Pauses(wall ^ u64::from(std::process::id()) << 32 ^ u64::from(task));
    while !is_over(spec.span, started, tally.pairs) {
        let asked = Instant::now();
        let wait = if random.percent() < writes_percent {
            let guard = lock.write().await?;
            let wait = asked.elapsed();
            let count = get(&mut counter, key).await?;
            redis::cmd("SET").arg(key).arg(count.unwrap_or(0) + 1).exec_async(&mut counter).await?;
            tally.writes += 1;
            guard.release().await?;
            wait
        } else {
            let guard = lock.read().await?;
            let wait = asked.elapsed();
            let first = get(&mut counter, key).await?;
            tally.overlaps += u64::from(first != get(&mut counter, key).await?);
            guard.release().await?;
            wait
        };
        tally.note(wait.as_micros() as u64, is_counted(spec.span, started));
    }
    Ok(tally)
}

async fn get(connection: &mut MultiplexedConnection, key: &str) -> redis::RedisResult<Option<u64>> {
    redis::cmd("GET").arg(key).query_async(connection).await
}
