//! What must be gone when a round has healed and its clients are at rest: holders, waiters, inboxes of the dead, keys
//! without an end.

use std::time::{Duration, Instant};

use leasehold::{Leasehold, Result};
use leasehold_testkit::history::{Ended, GaveUp};
use leasehold_testkit::{Recorder, RedisServer, Value};

use super::fleet::CLIENTS;
use super::names::{Class, Names};
use super::stage::Stage;

/// The longest lease that somebody can have died with, two looks, and what a busy machine needs.
pub(crate) const BOUND: Duration = Duration::from_secs(12);
/// How long a record outlives its last grant.
const RETENTION: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Complaints, none if all is well. Locks every name once: whoever comes now has to be served.
pub(crate) fn residue(stage: &Stage, names: Names, recorder: &Recorder) -> Vec<String> {
    let bound = BOUND + stage.set_back;
    let eye = stage.eye();
    let mut complaints = stage.runtime().block_on(async {
        let each = names.all().into_iter().map(|name| {
            let (eye, recorder) = (eye.clone(), recorder.clone());
            tokio::spawn(async move { free(&eye, &name, &recorder, bound).await })
        });
        let mut complaints = Vec::new();
        for one in each.collect::<Vec<_>>() {
            complaints.extend(one.await.expect("a look does not panic").err());
        }
        complaints
    });
    if let Some(redis) = &stage.redis {
        complaints.extend(inboxes(&redis.server, bound));
        complaints.extend(endless(&redis.server, stage.set_back));
    }
    complaints
}

/// The lock can be had by a newcomer, and then nobody has it and nobody waits.
async fn free(eye: &Leasehold, name: &str, recorder: &Recorder, bound: Duration) -> std::result::Result<(), String> {
    let lease = Class::of(name).longest_lease();
    let mutex = eye.mutex(name).lease(lease);
    let attempt = recorder.attempt(name, &format!("eye/{name}"));
    let taken = async {
        match mutex.try_lock_for(bound).await? {
            Some(guard) => {
                let held = attempt.granted(guard.token().get());
                held.claims(|| guard.check().is_ok());
                held.ended(Ended::Released);
                guard.release().await.map(Some)
            }
            None => {
                attempt.gave_up(GaveUp::TimedOut);
                Ok(None)
            }
        }
    };
    let taken: Result<_> = taken.await;
    if !matches!(taken, Ok(Some(_))) {
        return Err(format!("{name}: cannot be locked {bound:?} after the healing: {taken:?}"));
    }
    let deadline = Instant::now() + bound;
    loop {
        let late = Instant::now() >= deadline;
        let seen = mutex.inspect().await;
        match &seen {
            Ok(seen) if seen.holder.is_none() && seen.waiters == 0 => return Ok(()),
            _ if late => return Err(format!("{name}: left behind after {bound:?}: {seen:?}")),
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

/// One inbox for each client, and the eye's.
fn inboxes(server: &RedisServer, bound: Duration) -> Option<String> {
    let deadline = Instant::now() + bound;
    loop {
        let late = Instant::now() >= deadline;
        let Value::Array(there) = server.command(&["PUBSUB", "CHANNELS", "lh1:inbox:*"]) else {
            return Some("PUBSUB CHANNELS answers no list".into());
        };
        if there.len() == CLIENTS + 1 {
            return None;
        }
        if late {
            return Some(format!("{} inboxes are attached, of {CLIENTS} clients and one eye", there.len()));
        }
        std::thread::sleep(LOOK);
    }
}

/// Keys that would stay for ever, or for much longer than the retention.
fn endless(server: &RedisServer, set_back: Duration) -> Vec<String> {
    let longest = 2 * Class::Far.longest_lease() + RETENTION + set_back + Duration::from_secs(5);
    let longest_ms = i64::try_from(longest.as_millis()).expect("a minute or so");
    let Value::Array(keys) = server.command(&["KEYS", "lh1:*"]) else {
        return vec!["KEYS answers no list".into()];
    };
    let mut complaints = Vec::new();
    for key in keys.iter().filter_map(Value::text) {
        // One that has ended meanwhile answers -2.
        let left_ms = server.command(&["PTTL", key]).int();
        if !left_ms.is_some_and(|ms| ms == -2 || (0..=longest_ms).contains(&ms)) {
            complaints.push(format!("{key} ends in {left_ms:?} ms, and should within {longest_ms} ms"));
        }
    }
    complaints
}
