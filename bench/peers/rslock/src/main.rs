//! Measures rslock like the benchmark's own systems: it gets the same tasks in the same protocol. See README.md, "The
//! protocol of a worker". The workers of `leasehold-bench` itself are built in the same way, on the same client crate.

mod pairs;
#[expect(dead_code, reason = "the other workers in Rust use this file, too")]
mod task;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use rslock::{LockGuard, LockManager};
use serde_json::json;

use pairs::{Lock, Locks};
use task::{Report, Spec};
use worker::{Failure, answer, client, fast_ms, locked};

/// The lease, which users of rslock must choose. It is that of the simplest lock in the comparison.
const LEASE: Duration = Duration::from_secs(30);

/// How often rslock tries by default before it gives up; the worker then calls it again.
const TRIES: u32 = 3;

/// The longest delay of `rslock-fast`; the README explains the choice.
const FAST_MS: u64 = 10;

fn main() -> ExitCode {
    answer("rslock", about, run)
}

fn about() -> Result<String, Failure> {
    let version = |name| locked(include_str!("../Cargo.lock"), name);
    let versions = format!("{}, redis-rs {}", version("rslock"), version("redis"));
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
        "rslock-fast": one(format!("retry after 0 to {} ms at random", fast_ms(FAST_MS)?.saturating_sub(1))),
    });
    Ok(json!({ "systems": systems }).to_string())
}

async fn run(spec: Spec) -> Result<Report, Failure> {
    let clients = spec.servers().into_iter().map(client).collect::<Result<_, _>>()?;
    let mut manager = LockManager::from_clients(clients);
    match spec.system.as_str() {
        "rslock" => {}
        "rslock-fast" => manager.set_retry(TRIES, Duration::from_millis(fast_ms(FAST_MS)?)),
        other => return Err(format!("no such system here: {other:?}").into()),
    }
    // rslock connects at its first lock, and tries for ever if no server answers: so this checks for a server first.
    for server in spec.servers() {
        client(server)?.get_multiplexed_async_connection().await?;
    }
    let own = format!("{}:connect:{}", spec.names.prefix(), std::process::id());
    manager.acquire(own.as_str(), LEASE).await?.release().await;
    pairs::run(spec, manager).await
}

impl Locks for LockManager {
    type Lock = Named;

    fn lock(&self, name: String) -> Result<Named, Failure> {
        Ok(Named { manager: self.clone(), name })
    }
}

struct Named {
    manager: LockManager,
    name: String,
}

impl Lock for Named {
    type Held = LockGuard;

    async fn acquire(&self) -> Result<LockGuard, Failure> {
        Ok(self.manager.acquire(self.name.as_str(), LEASE).await?)
    }

    /// Always succeeds, because rslock does not report whether the lock was still held.
    async fn release(held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}
