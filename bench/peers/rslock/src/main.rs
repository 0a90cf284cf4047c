//! Measures rslock like the benchmark's own systems: it gets the same tasks in the same protocol. See README.md, "The
//! protocol of a worker". The workers of `leasehold-bench` itself are built in the same way, on the same client crate.

#[expect(dead_code, reason = "the worker of distkit uses this file, too")]
mod task;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Client, IntoConnectionInfo};
use rslock::LockManager;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use task::{Names, Pauses, Report, Span, Spec, Tally, is_counted, is_over};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The lease, which users of rslock must choose. It is that of the simplest lock in the comparison.
const LEASE: Duration = Duration::from_secs(30);

/// How often rslock tries by default before it gives up; the worker then calls it again.
const TRIES: u32 = 3;

/// The longest delay of `rslock-fast`; the README explains the choice.
const FAST_MS: u64 = 10;

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
            eprintln!("rslock peer: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn about() -> Result<String, Failure> {
    let versions = format!("{}, redis-rs {}", locked("rslock"), locked("redis"));
    let one = |delays: String| {
        let lease_s = LEASE.as_secs();
        let settings = format!(
            "{delays}, {TRIES} tries and then again; lease {lease_s} s, not renewed; one connection to each server, \
             TCP_NODELAY"
        );
        json!({ "version": versions, "settings": settings })
    };
    let systems = json!({
        "rslock": one("defaults: retry after 0 to 199 ms at random".into()),
        "rslock-fast": one(format!("retry after 0 to {} ms at random", fast_ms()?.saturating_sub(1))),
    });
    Ok(json!({ "systems": systems }).to_string())
}

/// Returns the longest delay of `rslock-fast`, or another one to be tried.
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
    let clients = spec.servers().into_iter().map(client).collect::<Result<_, _>>()?;
    let mut manager = LockManager::from_clients(clients);
    match spec.system.as_str() {
        "rslock" => {}
        "rslock-fast" => manager.set_retry(TRIES, Duration::from_millis(fast_ms()?)),
        other => return Err(format!("no such system here: {other:?}").into()),
    }
    // rslock connects at its first lock, and tries for ever if no server answers: so this checks for a server first.
    for server in spec.servers() {
        client(server)?.get_multiplexed_async_connection().await?;
    }
    let own = format!("{}:connect:{}", spec.names.prefix(), std::process::id());
    manager.acquire(own.as_str(), LEASE).await?.release().await;
    let counter = match &spec.counter {
        // A connection apart from the lock's, as in every worker.
        Some(key) => {
            Some(Counter { connection: client(&spec.url)?.get_multiplexed_async_connection().await?, key: key.clone() })
        }
        None => None,
    };
    let spec = Arc::new(spec);
    if matches!(spec.names, Names::Used(_)) {
        all_tasks(&manager, &spec, counter.as_ref()).await?;
    }
    println!("ready");
    tokio::task::spawn_blocking(await_go).await??;
    let (begun, cpu_before_us) = (Instant::now(), cpu_us());
    let tallies = all_tasks(&manager, &spec, counter.as_ref()).await?;
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
        writes: None,
        overlaps: None,
    })
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

async fn all_tasks(manager: &LockManager, spec: &Arc<Spec>, counter: Option<&Counter>) -> Result<Vec<Tally>, Failure> {
    let limit = spec.span.limit();
    timeout(limit, async {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..spec.tasks {
            tasks.spawn(one_task(manager.clone(), Arc::clone(spec), task, counter.cloned(), started));
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

async fn one_task(
    manager: LockManager,
    spec: Arc<Spec>,
    task: u32,
    mut counter: Option<Counter>,
    started: Instant,
) -> Result<Tally, Failure> {
    let kept = spec.names.of_task(task);
    let mut tally = Tally::default();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let mut pauses = Pauses(wall ^ u64::from(std::process::id()) << 32 ^ u64::from(task));
    while !is_over(spec.span, started, tally.pairs) {
        let name = kept.clone().unwrap_or_else(|| spec.names.of_pair(task, tally.pairs));
        let asked = Instant::now();
        let guard = manager.acquire(name.as_str(), LEASE).await?;
        let wait_us = asked.elapsed().as_micros() as u64;
        if let Some(counter) = &mut counter {
            counter.count_up().await?;
        }
        guard.release().await;
        tally.note(wait_us, is_counted(spec.span, started));
        if let Some(pause_us) = spec.pause_us {
            sleep(pauses.next(pause_us)).await;
        }
    }
    Ok(tally)
}

#[derive(Clone)]
struct Counter {
    connection: MultiplexedConnection,
    key: String,
}

impl Counter {
    async fn count_up(&mut self) -> Result<(), Failure> {
        let count: Option<u64> = redis::cmd("GET").arg(&self.key).query_async(&mut self.connection).await?;
        let next = count.unwrap_or(0) + 1;
        Ok(redis::cmd("SET").arg(&self.key).arg(next).query_async::<()>(&mut self.connection).await?)
    }
}
