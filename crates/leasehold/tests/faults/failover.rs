//! Failovers: to a replica that missed a write, and away from an old primary that still answers.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{Leasehold, LostReason, Released};
use leasehold_testkit::proxy::{Fault, Requests};
use leasehold_testkit::{FaultProxy, RedisServer, Value, wait_until};

use crate::common::{Harness, KEY, LONG, NAME, PROMPT, assert_kept, client, granted, join, within};

/// A primary behind a proxy, and its replica.
struct Pair {
    harness: Harness,
    replica: RedisServer,
}

impl Pair {
    fn new() -> Self {
        let harness = Harness::new();
        let replica = RedisServer::builder().replica_of(&harness.server).start();
        Self { harness, replica }
    }

    fn proxy(&self) -> &FaultProxy {
        &self.harness.proxy
    }

    /// Waits until the replica has the primary's data of this key.
    fn sync(&self, key: &str) {
        let get = ["GET", key];
        wait_until("the replica has it", LONG, || self.replica.command(&get) == self.harness.server.command(&get));
    }

    /// From now on the replica misses all writes.
    fn part(&self) {
        assert_eq!(self.replica.command(&["REPLICAOF", "NO", "ONE"]), Value::Status("OK".into()));
    }

    /// The primary dies, and the replica becomes the primary.
    fn fail_over(&self) {
        self.harness.server.kill();
        self.proxy().set_target(self.replica.port());
    }

    async fn survivor(&self, lease: Duration) -> Leasehold {
        client(&self.replica.url(), lease).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_a_replica_that_missed_the_last_grant() {
    let (pair, lease) = (Pair::new(), Duration::from_secs(3));
    let client = pair.harness.through(lease).await;
    let first = client.mutex(NAME).lock().await.unwrap();
    let seen = first.token();
    assert_eq!(first.release().await.unwrap(), Released::Released);
    pair.sync(KEY);
    pair.part();
    let missed = client.mutex(NAME).lock().await.unwrap();
    let there = pair.replica.command(&["GET", KEY]);
    assert!(there.text().is_some_and(|text| text.contains(&seen.to_string())), "{there:?}");
    pair.fail_over();
    let lost = within(lease, "the notification of the loss", missed.lost()).await;
    assert!(matches!(lost.reason(), LostReason::Forgotten | LostReason::Expired), "{lost:?}");
    let next = within(LONG, "the lock", client.mutex(NAME).lock()).await.unwrap();
    assert!(next.token() > missed.token() && missed.token() > seen, "tokens rise");
    assert_eq!(missed.release().await.unwrap(), Released::NotHeld);
    assert_kept(&next, lease).await;
}

/// The replica still has the grant that was released since. The session repeats the release (P13).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_a_replica_that_missed_a_release() {
    let (pair, lease) = (Pair::new(), Duration::from_secs(30));
    let client = pair.harness.through(lease).await;
    let guard = client.mutex(NAME).lock().await.unwrap();
    pair.sync(KEY);
    pair.part();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let next = pair.survivor(lease).await;
    assert!(next.mutex(NAME).try_lock().await.unwrap().is_none(), "it comes back with the failover");
    let waiting = join(&next, NAME, 1).await;
    pair.fail_over();
    // Between two tries to reconnect the session waits at most a second.
    drop(granted(Duration::from_secs(1) + PROMPT, waiting).await);
}

/// An orderly failover: the replica has all data, and the old primary becomes a replica of it. The old primary closes
/// no connection, and answers READONLY for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn away_from_a_primary_that_was_demoted() {
    let (pair, lease) = (Pair::new(), Duration::from_secs(3));
    let client = pair.harness.through(lease).await;
    let kept = client.mutex(NAME).lock().await.unwrap();
    pair.sync(KEY);
    pair.part();
    let port = pair.replica.port().to_string();
    assert_eq!(pair.harness.server.command(&["REPLICAOF", "127.0.0.1", &port]), Value::Status("OK".into()));
    pair.proxy().set_target(pair.replica.port());
    let asked = pair.proxy().seen().count("EVALSHA");
    assert_kept(&kept, 2 * lease).await;
    let holder = pair.survivor(lease).await.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("held");
    assert_eq!(holder.token, kept.token());
    assert_eq!(kept.release().await.unwrap(), Released::Released);
    let asked = pair.proxy().seen().count("EVALSHA") - asked;
    assert!(asked < 100, "a server that answers READONLY gets few requests: {asked}");
}

/// While there is no primary at all, the client sends few requests, and loses nothing if there is a primary in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demoted_and_promoted_again() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(4));
    let (client, other) = (harness.through(lease).await, harness.through(lease).await);
    let kept = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    // Its primary cannot be reached. The data stays, and is read-only.
    let nobody = leasehold_testkit::free_port();
    let port = nobody.number().to_string();
    assert_eq!(harness.server.command(&["REPLICAOF", "127.0.0.1", &port]), Value::Status("OK".into()));
    let asked = harness.proxy.seen().count("EVALSHA");
    let error = client.mutex("b").try_lock().await.unwrap_err();
    assert!(error.to_string().contains("replica") && error.is_retryable(), "{error}");
    assert_kept(&kept, lease / 2).await;
    let asked = harness.proxy.seen().count("EVALSHA") - asked;
    assert!(asked < 100, "a server that answers READONLY gets few requests: {asked}");
    assert_eq!(harness.server.command(&["REPLICAOF", "NO", "ONE"]), Value::Status("OK".into()));
    assert_kept(&kept, lease).await;
    assert_eq!(kept.release().await.unwrap(), Released::Released);
    drop(granted(Duration::from_secs(2), waiting).await);
}

/// The session's connection leads to the new primary, and the callers' connection to the old one, which lives on, cut
/// off. The client no longer believes its replies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_primary_that_lives_on() {
    let (pair, lease) = (Pair::new(), Duration::from_secs(3));
    let client = pair.harness.through(lease).await;
    let kept = client.mutex(NAME).lock().await.unwrap();
    pair.sync(KEY);
    pair.part();
    pair.proxy().set_target(pair.replica.port());
    let home = pair.harness.home();
    let cut = pair.proxy().inject(Fault::cut_before(Requests::matching(move |c| c.connection == home)).once());
    cut.wait(1, LONG);
    // The session's connection is there, and renews.
    let begun = Instant::now();
    while !pair.harness.calls(Script::Renew).iter().any(|call| call.connection > home) {
        assert!(begun.elapsed() < LONG, "the session does not reconnect");
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    let fresh = within(LONG, "the lock", client.mutex("b").lock()).await.unwrap();
    assert!(begun.elapsed() < PROMPT);
    assert_eq!(pair.harness.server.command(&["EXISTS", "lh1:{b}"]), Value::Int(0), "the old primary was used");
    assert_eq!(pair.replica.command(&["EXISTS", "lh1:{b}"]), Value::Int(1));
    assert_kept(&kept, lease).await;
    assert!(fresh.check().is_ok());
    assert_eq!(kept.release().await.unwrap(), Released::Released);
}
