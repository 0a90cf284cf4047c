//! Failovers: to a replica that missed something, and away from a primary that goes on talking.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{Leasehold, LostReason, Released};
use leasehold_testkit::proxy::{Fault, Requests};
use leasehold_testkit::{FaultProxy, RedisServer, Value, wait_until};

use crate::common::{Bench, KEY, LONG, NAME, PROMPT, assert_kept, client, granted, join, within};

/// A primary behind a proxy, and its replica.
struct Pair {
    bench: Bench,
    replica: RedisServer,
}

impl Pair {
    fn new() -> Self {
        let bench = Bench::new();
        let replica = RedisServer::builder().replica_of(&bench.server).start();
        Self { bench, replica }
    }

    fn proxy(&self) -> &FaultProxy {
        &self.bench.proxy
    }

    /// Waits until the replica has what the primary has for this key.
    fn sync(&self, key: &str) {
        let get = ["GET", key];
        wait_until("the replica has it", LONG, || self.replica.command(&get) == self.bench.server.command(&get));
    }

    /// The replica misses what comes from now on.
    fn part(&self) {
        assert_eq!(self.replica.command(&["REPLICAOF", "NO", "ONE"]), Value::Status("OK".into()));
    }

    /// The primary dies, and the replica is the primary.
    fn fail_over(&self) {
        self.bench.server.kill();
        self.proxy().set_target(self.replica.port());
    }

    async fn survivor(&self, lease: Duration) -> Leasehold {
        client(&self.replica.url(), lease).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_a_replica_that_missed_the_last_grant() {
    let (pair, lease) = (Pair::new(), Duration::from_secs(3));
    let client = pair.bench.through(lease).await;
    let first = client.mutex(NAME).lock().await.unwrap();
    let seen = first.token();
    assert_eq!(first.release().await.unwrap(), Released::Released);
    pair.sync(KEY);
    pair.part();
    let missed = client.mutex(NAME).lock().await.unwrap();
    let there = pair.replica.command(&["GET", KEY]);
    assert!(there.text().is_some_and(|text| text.contains(&seen.to_string())), "{there:?}");
    pair.fail_over();
    let lost = within(lease, "word of the loss", missed.lost()).await;
    assert!(matches!(lost.reason(), LostReason::Forgotten | LostReason::Expired), "{lost:?}");
    let next = within(LONG, "the lock", client.mutex(NAME).lock()).await.unwrap();
    assert!(next.token() > missed.token() && missed.token() > seen, "tokens rise");
    assert_eq!(missed.release().await.unwrap(), Released::NotHeld);
    assert_kept(&next, lease).await;
}

/// The replica still has the grant that was given back since: the session says so again (P13).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn to_a_replica_that_missed_a_release() {
    let (pair, lease) = (Pair::new(), Duration::from_secs(30));
    let client = pair.bench.through(lease).await;
    let guard = client.mutex(NAME).lock().await.unwrap();
    pair.sync(KEY);
    pair.part();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let next = pair.survivor(lease).await;
    assert!(next.mutex(NAME).try_lock().await.unwrap().is_none(), "it comes back with the failover");
    let waiting = join(&next, NAME, 1).await;
    pair.fail_over();
    // Between two tries to reconnect the session waits for a second at most.
    drop(granted(Duration::from_secs(1) + PROMPT, waiting).await);
}

/// An orderly failover: the replica has everything, and the old primary becomes a replica of it. It closes nothing, and
/// answers whoever stays READONLY for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn away_from_a_primary_that_was_demoted() {
    let (pair, lease) = (Pair::new(), Duration::from_secs(3));
    let client = pair.bench.through(lease).await;
    let kept = client.mutex(NAME).lock().await.unwrap();
    pair.sync(KEY);
    pair.part();
    let port = pair.replica.port().to_string();
    assert_eq!(pair.bench.server.command(&["REPLICAOF", "127.0.0.1", &port]), Value::Status("OK".into()));
    pair.proxy().set_target(pair.replica.port());
    let asked = pair.proxy().seen().count("EVALSHA");
    assert_kept(&kept, 2 * lease).await;
    let holder = pair.survivor(lease).await.mutex(NAME).inspect().await.unwrap().holder.expect("held");
    assert_eq!(holder.token, kept.token());
    assert_eq!(kept.release().await.unwrap(), Released::Released);
    let asked = pair.proxy().seen().count("EVALSHA") - asked;
    assert!(asked < 100, "a server that answers READONLY is not asked again and again: {asked} times");
}

/// While there is no primary at all, nobody is asked again and again either, and nothing is lost if there is one in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn demoted_and_promoted_again() {
    let (bench, lease) = (Bench::new(), Duration::from_secs(4));
    let (client, other) = (bench.through(lease).await, bench.through(lease).await);
    let kept = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    // A primary that cannot be reached: what is here stays, and is read-only.
    let nobody = leasehold_testkit::free_port();
    let port = nobody.number().to_string();
    assert_eq!(bench.server.command(&["REPLICAOF", "127.0.0.1", &port]), Value::Status("OK".into()));
    let asked = bench.proxy.seen().count("EVALSHA");
    let error = client.mutex("b").try_lock().await.unwrap_err();
    assert!(error.to_string().contains("replica") && error.is_retryable(), "{error}");
    assert_kept(&kept, lease / 2).await;
    let asked = bench.proxy.seen().count("EVALSHA") - asked;
    assert!(asked < 100, "a server that answers READONLY is not asked again and again: {asked} times");
    assert_eq!(bench.server.command(&["REPLICAOF", "NO", "ONE"]), Value::Status("OK".into()));
    assert_kept(&kept, lease).await;
    assert_eq!(kept.release().await.unwrap(), Released::Released);
    drop(granted(Duration::from_secs(2), waiting).await);
}

/// The session's connection leads to the new primary and the callers' to the old one, which lives on, cut off: what it
/// says is not heard any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_primary_that_lives_on() {
    let (pair, lease) = (Pair::new(), Duration::from_secs(3));
    let client = pair.bench.through(lease).await;
    let kept = client.mutex(NAME).lock().await.unwrap();
    pair.sync(KEY);
    pair.part();
    pair.proxy().set_target(pair.replica.port());
    let home = pair.bench.home();
    let cut = pair.proxy().inject(Fault::cut_before(Requests::matching(move |c| c.connection == home)).once());
    cut.wait(1, LONG);
    // It is there, and renews.
    let begun = Instant::now();
    while !pair.bench.calls(Script::Renew).iter().any(|call| call.connection > home) {
        assert!(begun.elapsed() < LONG, "the session does not come");
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    let fresh = within(LONG, "the lock", client.mutex("b").lock()).await.unwrap();
    assert!(begun.elapsed() < PROMPT);
    assert_eq!(pair.bench.server.command(&["EXISTS", "lh1:{b}"]), Value::Int(0), "asked at the old primary");
    assert_eq!(pair.replica.command(&["EXISTS", "lh1:{b}"]), Value::Int(1));
    assert_kept(&kept, lease).await;
    assert!(fresh.check().is_ok());
    assert_eq!(kept.release().await.unwrap(), Released::Released);
}
