//! Checks the store when all workers are dead. Nothing may be locked for longer than its lease, and no key may stay for
//! longer than the retention.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Leasehold, Result};
use leasehold_testkit::{RedisServer, Value};

use super::scene::{LEASE, Scene, WAIT_MAX};
use super::worker::{ACCOUNTS, MACHINES, account, rounds};

/// How long a record outlives its last grant.
const RETENTION: Duration = Duration::from_secs(60);

/// Returns the longest time for which a key may stay. Waiters without a holder keep a record for two retentions.
fn longest(scene: Scene) -> Duration {
    if scene.needs_all() { 2 * RETENTION } else { LEASE + RETENTION }
}

/// Takes everything that the workers of a scene lock, and looks at every key. Returns complaints.
pub(crate) fn residue(
    scene: Scene,
    url: &str,
    server: Option<&RedisServer>,
) -> std::result::Result<Vec<String>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let locked = runtime.map_err(|error| format!("no runtime: {error}"))?.block_on(async {
        let client = Leasehold::builder(url).holder("observer").lease(LEASE).connect().await?;
        let locked = locked(scene, &client).await;
        client.close().await;
        locked
    });
    let mut complaints: Vec<String> = locked
        .map_err(|error| format!("the observer failed: {error}"))?
        .into_iter()
        .map(|name| format!("{name} is locked {WAIT_MAX:?} after the death of all processes"))
        .collect();
    complaints.extend(server.into_iter().flat_map(|server| lasting(server, longest(scene))));
    Ok(complaints)
}

/// Returns the names that a new client is not granted in time.
async fn locked(scene: Scene, client: &Leasehold) -> Result<Vec<String>> {
    let mutexes: Vec<String> = match scene {
        Scene::Counter => vec!["counter".into()],
        Scene::Buffer => vec!["buffer".into()],
        Scene::Philosophers => (0..scene.processes()).map(|fork| format!("fork {fork}")).collect(),
        Scene::Accounts => (0..ACCOUNTS).map(account).collect(),
        Scene::Readers | Scene::Machines | Scene::Jobs | Scene::Rounds | Scene::Leader => Vec::new(),
    };
    let deadline = Instant::now() + WAIT_MAX;
    let left = || deadline.saturating_duration_since(Instant::now());
    let mut locked = Vec::new();
    for name in mutexes {
        if client.mutex(&name).try_lock_for(left()).await?.is_none() {
            locked.push(name);
        }
    }
    let is_served = match scene {
        Scene::Readers => client.rw_lock("record").try_write_for(left()).await?.is_some(),
        Scene::Machines => {
            client.semaphore("machines", MACHINES).try_acquire_many_for(MACHINES, left()).await?.is_some()
        }
        Scene::Leader => client.election("shard").campaign_for("observer", left()).await?.is_some(),
        Scene::Rounds => loop {
            // The parties that have died may break a round.
            match round(client, left()).await {
                Err(error) if error.kind() == ErrorKind::Broken && !left().is_zero() => {}
                result => break result?,
            }
        },
        Scene::Counter | Scene::Buffer | Scene::Philosophers | Scene::Accounts | Scene::Jobs => true,
    };
    if !is_served {
        locked.push(scene.name().to_owned());
    }
    Ok(locked)
}

/// Lets one round of five new parties through.
async fn round(client: &Leasehold, wait: Duration) -> Result<bool> {
    let barrier = rounds::barrier(client);
    let arrive = || barrier.wait_for(wait);
    let (a, b, c, d, e) = tokio::join!(arrive(), arrive(), arrive(), arrive(), arrive());
    let mut let_through = true;
    for arrival in [a, b, c, d, e] {
        let_through &= arrival?.is_some();
    }
    Ok(let_through)
}

/// Finds keys that stay for longer than they may.
fn lasting(server: &RedisServer, longest: Duration) -> Vec<String> {
    let Value::Array(keys) = server.command(&["KEYS", "*"]) else {
        return vec!["the reply to KEYS is no list".into()];
    };
    let longest_ms = i64::try_from(longest.as_millis()).expect("a minute or two");
    let left_ms = |key: &str| server.command(&["PTTL", key]).int();
    let keys = keys.iter().filter_map(Value::text).map(|key| (key, left_ms(key)));
    // For a key that has expired meanwhile the reply is -2.
    let lasting = keys.filter(|(_, left_ms)| !left_ms.is_some_and(|ms| ms == -2 || (0..=longest_ms).contains(&ms)));
    lasting
        .map(|(key, left_ms)| format!("{key} expires in {left_ms:?} ms, and should within {longest_ms} ms"))
        .collect()
}
