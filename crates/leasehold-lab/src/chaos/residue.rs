//! The check for residue after the repair of a round, when its clients are idle: holders, waiters, inboxes of dead
//! clients, keys without an expiry.

use std::time::{Duration, Instant};

use leasehold::{Inspection, Leasehold, NodeSays, NodeView, Released, Result};
use leasehold_testkit::history::{Attempt, Ended, GaveUp};
use leasehold_testkit::{Recorder, RedisServer, Value};

use super::client::PERMITS;
use super::fleet::CLIENTS;
use super::names::{Class, Names};
use super::options::Store;
use super::stage::Stage;
use crate::lease::{Lease, Permits};

/// Twice the longest lease that a client can have died with (the clock may have been set back), two re-checks, and some
/// time for a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(12);
/// How long a record outlives its last grant.
const RETENTION: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Within this time a node that was away is notified of every vote that is no longer wanted: its connection is restored
/// in a second, or in six if it accepts connections and replies late. It is much less than the leases of keepers, whose
/// end would hide a vote that was left.
const FREED: Duration = Duration::from_secs(8);
/// The time after which a place in the queue of a node is taken for one that was left. A node that was unreachable when
/// an attempt was abandoned is notified when it is back, or it passes the place over at its turn. The key of the place
/// expires in any case.
const NOTIFIED: Duration = Duration::from_secs(2);

/// Returns the time within which every client is served after a repair. A node of a quorum that has forgotten something
/// is in quarantine first. If most nodes are, no client is granted anything until a majority has left quarantine. Grants
/// after that wait for no lease of a dead client, but waiters still need time to connect, to be notified and to be
/// granted as usual.
pub(crate) fn bound(stage: &Stage) -> Duration {
    stage.ground.quarantine() + BOUND
}

/// The result of the check.
#[derive(Debug, Default)]
pub(crate) struct Residue {
    /// The complaints. Empty if all is well.
    pub(crate) complaints: Vec<String>,
    /// Places of abandoned attempts in the queues of a quorum's nodes.
    pub(crate) places: u64,
}

/// Checks every name and locks it once: a new client must be served.
pub(crate) fn residue(stage: &Stage, names: Names, recorder: &Recorder) -> Residue {
    let bound = bound(stage);
    let (observer, store) = (stage.observer(), stage.store);
    let mut residue = stage.runtime().block_on(async {
        let each = names.all().into_iter().map(|name| {
            let (observer, recorder) = (observer.clone(), recorder.clone());
            tokio::spawn(async move { free(&observer, (&name, store), &recorder, bound).await })
        });
        let mut residue = Residue::default();
        for one in each.collect::<Vec<_>>() {
            match one.await.expect("a check does not panic") {
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

/// Checks that a new client can lock the name, and that there is then no holder and no waiter. Returns the number of
/// places that were left.
async fn free(
    observer: &Leasehold,
    (name, store): (&str, Store),
    recorder: &Recorder,
    bound: Duration,
) -> std::result::Result<u64, String> {
    let lease = Class::of(name).longest_lease(store);
    let attempt = recorder.attempt(name, &format!("observer/{name}"));
    let taken = match Class::of(name) {
        Class::Shared => take(attempt, observer.rw_lock(name).lease(lease).try_write_for(bound)).await,
        Class::Permits => {
            let semaphore = observer.semaphore(name, PERMITS).lease(lease);
            let permit = semaphore.try_acquire_many_for(PERMITS, bound).await;
            let permits = permit.map(|permit| permit.map(|permit| Permits { permit, units: PERMITS }));
            take(attempt, std::future::ready(permits)).await
        }
        _ => take(attempt, observer.mutex(name).lease(lease).try_lock_for(bound)).await,
    };
    if !matches!(taken, Ok(Some(_))) {
        return Err(format!("{name}: cannot be locked {bound:?} after the healing: {taken:?}"));
    }
    let (begun, within) = (Instant::now(), if store == Store::Quorum { FREED } else { bound });
    loop {
        let late = begun.elapsed() >= within;
        let seen = observer.mutex(name).inspect().await;
        match &seen {
            Ok(seen) if is_free(seen) && seen.waiters == 0 => return Ok(0),
            Ok(seen) if is_free(seen) && store == Store::Quorum && begun.elapsed() >= NOTIFIED => {
                return Ok(seen.waiters as u64);
            }
            _ if late => return Err(format!("{name}: left behind after {within:?}: {seen:?}")),
            _ => tokio::time::sleep(POLL).await,
        }
    }
}

/// Takes the whole name, and gives it back.
async fn take<L: Lease>(attempt: Attempt, taking: impl Future<Output = Result<Option<L>>>) -> Result<Option<Released>> {
    match taking.await? {
        Some(guard) => {
            let held = attempt.share(guard.share()).granted(guard.token());
            held.claims(|| guard.check().is_ok());
            held.ended(Ended::Released);
            guard.release().await.map(Some)
        }
        None => {
            attempt.gave_up(GaveUp::TimedOut);
            Ok(None)
        }
    }
}

/// Whether there is no holder; in a quorum, also no vote on any node.
fn is_free(seen: &Inspection) -> bool {
    let is_held_at = |node: &NodeView| matches!(node.says, NodeSays::Voted(_));
    seen.holder.is_none() && !seen.nodes.iter().any(is_held_at)
}

/// Returns the prefix of this store's keys.
fn prefix(store: Store) -> &'static str {
    if store == Store::Quorum { "lq1" } else { "lh1" }
}

/// Checks that there is one inbox for each client, and one for the observer.
fn inboxes(server: &RedisServer, store: Store, bound: Duration) -> Option<String> {
    let deadline = Instant::now() + bound;
    loop {
        let late = Instant::now() >= deadline;
        let Value::Array(there) = server.command(&["PUBSUB", "CHANNELS", &format!("{}:inbox:*", prefix(store))]) else {
            return Some("the reply to PUBSUB CHANNELS is no list".into());
        };
        if there.len() == CLIENTS + 1 {
            return None;
        }
        if late {
            return Some(format!("{} inboxes are attached, of {CLIENTS} clients and one observer", there.len()));
        }
        std::thread::sleep(POLL);
    }
}

/// Finds keys that would stay forever, or for much longer than the retention.
fn endless(server: &RedisServer, stage: &Stage) -> Vec<String> {
    // A node keeps a record for the lease that it votes for plus the retention, and never longer.
    let leases = if stage.store == Store::Quorum { 1 } else { 2 };
    let longest = leases * Class::Far.longest_lease(stage.store) + RETENTION + stage.set_back + Duration::from_secs(5);
    let longest_ms = i64::try_from(longest.as_millis()).expect("a minute or so");
    let Value::Array(keys) = server.command(&["KEYS", &format!("{}*:*", prefix(stage.store))]) else {
        return vec!["the reply to KEYS is no list".into()];
    };
    let mut complaints = Vec::new();
    // A node's marker is the only key that stays.
    for key in keys.iter().filter_map(Value::text).filter(|key| *key != "lq1:marker") {
        // For a key that has expired meanwhile the reply is -2.
        let left_ms = server.command(&["PTTL", key]).int();
        if !left_ms.is_some_and(|ms| ms == -2 || (0..=longest_ms).contains(&ms)) {
            complaints.push(format!("{key} expires in {left_ms:?} ms, and should within {longest_ms} ms"));
        }
    }
    complaints
}
