//! Measures async-redis-lock like the benchmark's own systems: it gets the same tasks in the same protocol. See README.md,
//! "The protocol of a worker".

#[path = "../../rslock/src/pairs.rs"]
mod pairs;
#[expect(dead_code, reason = "the other workers in Rust use this file, too")]
#[path = "../../rslock/src/task.rs"]
mod task;
#[path = "../../rslock/src/worker.rs"]
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use async_redis_lock::{Error, Locker, Options};
use serde_json::json;

use pairs::{Lock, Locks};
use task::{Report, Spec};
use worker::{Failure, answer, client, fast_ms, locked};

/// The delay of `async-redis-lock-fast`; the README explains the choice.
const FAST_MS: u64 = 2;

fn main() -> ExitCode {
    answer("async-redis-lock", about, run)
}

fn about() -> Result<String, Failure> {
    let version = |name| locked(include_str!("../Cargo.lock"), name);
    let versions = format!("{}, redis-rs {}", version("async-redis-lock"), version("redis"));
    let one = |defaults: &str, options: &Options| {
        let settings = format!(
            "{defaults}retry after {} ms, for {} s and then again; lease {} s, renewed every {} s; one connection, \
             TCP_NODELAY",
            options.retry.as_millis(),
            options.timeout.unwrap_or(Duration::MAX).as_secs(),
            options.ttl.as_secs(),
            options.extend.as_secs(),
        );
        json!({ "version": versions, "settings": settings })
    };
    let systems = json!({
        "async-redis-lock": one("defaults: ", &Options::new()),
        "async-redis-lock-fast": one("", &fast()?),
    });
    Ok(json!({ "systems": systems }).to_string())
}

fn fast() -> Result<Options, Failure> {
    Ok(Options::new().retry(Duration::from_millis(fast_ms(FAST_MS)?)))
}

async fn run(spec: Spec) -> Result<Report, Failure> {
    let options = match spec.system.as_str() {
        "async-redis-lock" => Options::new(),
        "async-redis-lock-fast" => fast()?,
        other => return Err(format!("no such system here: {other:?}").into()),
    };
    let locker = Locker::from_client(client(&spec.url)?).await?;
    pairs::run(spec, Settings { locker, options }).await
}

#[derive(Clone)]
struct Settings {
    locker: Locker,
    options: Options,
}

impl Locks for Settings {
    type Lock = Named;

    fn lock(&self, name: String) -> Result<Named, Failure> {
        Ok(Named { settings: self.clone(), name })
    }
}

struct Named {
    settings: Settings,
    name: String,
}

impl Lock for Named {
    type Held = async_redis_lock::Lock;

    async fn acquire(&self) -> Result<async_redis_lock::Lock, Failure> {
        let Settings { locker, options } = &self.settings;
        loop {
            match locker.acquire_with_options(options, self.name.as_str()).await {
                // The library gave up. The task of a benchmark tries again, and its wait goes on.
                Err(Error::Timeout) => {}
                done => return Ok(done?),
            }
        }
    }

    async fn release(held: async_redis_lock::Lock) -> Result<(), Failure> {
        Ok(held.release().await?)
    }
}
