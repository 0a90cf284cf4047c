//! Measures distkit's mutex and read-write lock like the benchmark's own systems: they get the same tasks in the same
//! protocol. See README.md, "The protocol of a worker".

mod mutex;
mod rwlock;

#[path = "../../rslock/src/pairs.rs"]
mod pairs;
#[expect(dead_code, reason = "the other workers in Rust use this file, too")]
#[path = "../../rslock/src/task.rs"]
mod task;
#[path = "../../rslock/src/worker.rs"]
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use distkit::DistkitRedisKey;
use distkit::lock::LockOptions;
use redis::aio::ConnectionManager;
use serde_json::json;

use task::{Report, Spec};
use worker::{Failure, answer, client, fast_ms, locked};

/// The delay of `distkit-fast`; the README explains the choice.
const FAST_MS: u64 = 2;

/// The delay of `distkit-rwlock-fast`.
const FAST_RWLOCK_MS: u64 = 5;

fn main() -> ExitCode {
    answer("distkit", about, run)
}

fn about() -> Result<String, Failure> {
    let version = |name| locked(include_str!("../Cargo.lock"), name);
    let versions = format!("{}, redis-rs {}", version("distkit"), version("redis"));
    let one = |kind_and_delay: String| {
        let settings = format!("{kind_and_delay}; lease 30 s, renewed every 10 s; one connection, TCP_NODELAY");
        json!({ "version": versions, "settings": settings })
    };
    let systems = json!({
        "distkit": one("Mutex; defaults: retry after 50 ms".into()),
        "distkit-fast": one(format!("Mutex; retry after {} ms", fast_ms(FAST_MS)?)),
        "distkit-rwlock": one("RwLock; defaults: retry after 50 ms".into()),
        "distkit-rwlock-fast": one(format!("RwLock; retry after {} ms", fast_ms(FAST_RWLOCK_MS)?)),
    });
    Ok(json!({ "systems": systems }).to_string())
}

async fn run(spec: Spec) -> Result<Report, Failure> {
    let (is_rwlock, retry_ms) = match spec.system.as_str() {
        "distkit" => (false, None),
        "distkit-fast" => (false, Some(fast_ms(FAST_MS)?)),
        "distkit-rwlock" => (true, None),
        "distkit-rwlock-fast" => (true, Some(fast_ms(FAST_RWLOCK_MS)?)),
        other => return Err(format!("no such system here: {other:?}").into()),
    };
    let manager = ConnectionManager::new(client(&spec.url)?).await?;
    let settings = Settings { manager, retry: retry_ms.map(Duration::from_millis) };
    if is_rwlock { rwlock::run(spec, settings).await } else { pairs::run(spec, settings).await }
}

/// The settings of every lock of this process. Without a delay they are the defaults.
#[derive(Clone)]
struct Settings {
    manager: ConnectionManager,
    retry: Option<Duration>,
}

impl Settings {
    /// Returns the options of one lock. Each task has its own, because a lock has one owner.
    fn options(&self, name: &str) -> Result<LockOptions, Failure> {
        // Its keys have no colon.
        let key = DistkitRedisKey::try_from(name.replace(':', "-"))?;
        let options = LockOptions::new(key, self.manager.clone());
        Ok(match self.retry {
            Some(retry_interval) => LockOptions { retry_interval, ..options },
            None => options,
        })
    }
}
