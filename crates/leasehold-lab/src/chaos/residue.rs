//! What must be gone when a round has healed and its clients are at rest: holders, waiters, inboxes of the dead, keys
//! without an end.

use std::time::{Duration, Instant};

use leasehold::{Inspection, Leasehold, NodeSays, NodeView, Result};
use leasehold_testkit::history::{Ended, GaveUp};
use leasehold_testkit::{Recorder, RedisServer, Value};

use super::fleet::CLIENTS;
use super::names::{Class, Names};
use super::options::Store;
use super::stage::Stage;

/// Twice the longest lease that a client can have died with (the clock may have been set back), two looks, and what a busy
/// machine needs.
pub(crate) const BOUND: Duration = Duration::from_secs(12);
/// How long a record outlives its last grant.
const RETENTION: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Within this time a node that was away is told of every vote that is no longer wanted: it is connected anew in a second,
/// or in six where it takes connections and answers late. Long before the leases of keepers end, which would hide it.
const FREED: Duration = Duration::from_secs(8);
/// How long a place may stay in the queue of a node before it is taken for one that was left. A node that was not to be
/// heard of when an attempt was given up is told when it is back, or passes the place over at its turn; its key ends in any
/// case.
const TOLD: Duration = Duration::from_secs(2);

/// Within which everybody is served after a healing. A node of a quorum that has forgotten something rests first, and
/// where most have, nobody is granted anything until a majority has rested: what is granted then waits for no lease of the
/// dead, but who waits is connected to, called and granted as everywhere.
pub(crate) fn bound(stage: &Stage) -> Duration {
    stage.ground.rest() + BOUND
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Residue {
    /// None if all is well.
    pub(crate) complaints: Vec<String>,
    /// In the queues of a quorum's nodes, of attempts that are over.
    pub(crate) places: u64,
}

/// Looks, and locks every name once: whoever comes now has to be served.
pub(crate) fn residue(stage: &Stage, names: Names, recorder: &Recorder) -> Residue {
    let bound = bound(stage);
    let (eye, store) = (stage.eye(), stage.store);
    let mut residue = stage.runtime().block_on(async {
        let each = names.all().into_iter().map(|name| {
            let (eye, recorder) = (eye.clone(), recorder.clone());
            tokio::spawn(async move { free(&eye, (&name, store), &recorder, bound).await })
        });
        let mut residue = Residue::default();
        for one in each.collect::<Vec<_>>() {
            match one.await.expect("a look does not panic") {
                Ok(places) => residue.places += places,
                Err(complaint) => residue.complaints.push(complaint),
            }
        }
        residue
    });
    for (at, node) in stage.ground.nodes().iter().enumerate() {
        let found = inboxes(&node.server, stage.store, bound).into_iter().chain(endless(&node.server, stage));
        residue.complaints.extend(found.map(|complaint| format!("node {at}: {complaint}")));
    }
    residue
}

/// The lock can be had by a newcomer, and then nobody has it and nobody waits: but for so many places.
async fn free(
    eye: &Leasehold,
    (name, store): (&str, Store),
    recorder: &Recorder,
    bound: Duration,
) -> std::result::Result<u64, String> {
    let lease = Class::of(name).longest_lease(store);
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
    let (begun, within) = (Instant::now(), if store == Store::Quorum { FREED } else { bound });
    loop {
        let late = begun.elapsed() >= within;
        let seen = mutex.inspect().await;
        match &seen {
            Ok(seen) if is_free(seen) && seen.waiters == 0 => return Ok(0),
            Ok(seen) if is_free(seen) && store == Store::Quorum && begun.elapsed() >= TOLD => {
                return Ok(seen.waiters as u64);
            }
            _ if late => return Err(format!("{name}: left behind after {within:?}: {seen:?}")),
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Nobody holds; of a quorum every node that votes says so.
fn is_free(seen: &Inspection) -> bool {
    let is_held_at = |node: &NodeView| matches!(node.says, NodeSays::Voted(_));
    seen.holder.is_none() && !seen.nodes.iter().any(is_held_at)
}

/// With what the keys of this store begin.
fn prefix(store: Store) -> &'static str {
    if store == Store::Quorum { "lq1" } else { "lh1" }
}

/// One inbox for each client, and the eye's.
fn inboxes(server: &RedisServer, store: Store, bound: Duration) -> Option<String> {
    let deadline = Instant::now() + bound;
    loop {
        let late = Instant::now() >= deadline;
        let Value::Array(there) = server.command(&["PUBSUB", "CHANNELS", &format!("{}:inbox:*", prefix(store))]) else {
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
fn endless(server: &RedisServer, stage: &Stage) -> Vec<String> {
    // A node keeps a record for the lease that it votes for and the retention, and never for more.
    let leases = if stage.store == Store::Quorum { 1 } else { 2 };
    let longest = leases * Class::Far.longest_lease(stage.store) + RETENTION + stage.set_back + Duration::from_secs(5);
    let longest_ms = i64::try_from(longest.as_millis()).expect("a minute or so");
    let Value::Array(keys) = server.command(&["KEYS", &format!("{}*:*", prefix(stage.store))]) else {
        return vec!["KEYS answers no list".into()];
    };
    let mut complaints = Vec::new();
    // A node's marker stays, and is the one key that does.
    for key in keys.iter().filter_map(Value::text).filter(|key| *key != "lq1:marker") {
        // One that has ended meanwhile answers -2.
        let left_ms = server.command(&["PTTL", key]).int();
        if !left_ms.is_some_and(|ms| ms == -2 || (0..=longest_ms).contains(&ms)) {
            complaints.push(format!("{key} ends in {left_ms:?} ms, and should within {longest_ms} ms"));
        }
    }
    complaints
}
