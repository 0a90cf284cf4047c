//! Names with several grants.

use std::time::Duration;

use leasehold::Leasehold;
use leasehold::seam::{Guess, Real, RedisStore, Store};
use leasehold_spec::{Acquire, GrantId, Name, Op, Outcome, Patience, SessionId, Take};
use leasehold_testkit::{RedisServer, Value};

use crate::common::{NAME, TAKEOVER_SLACK, within};

/// The place of `cursor` in the record, and that of `least` before it: see docs/PROTOCOL.md.
const CURSOR: usize = 168;
const LEAST: usize = 152;
/// More grants than a step scans.
const READERS: usize = 700;

/// A scan of the grants was under way when the server was restarted: its cursor means another place now, and the grant of
/// the dead reader is behind it. The next scan finds that grant (P35).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p35_a_scan_that_missed_a_grant_is_followed_by_another() {
    let server = RedisServer::start();
    let client = Leasehold::builder(&server.url()).lease(Duration::from_secs(30)).connect().await.unwrap();
    let lock = client.rw_lock(NAME);
    read_and_die(&server).await;
    let mut readers = Vec::new();
    for _ in 0..READERS {
        readers.push(lock.read().await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    // The cursor of the last of 1,024 places: the scan is over after that.
    let key = format!("lh1:{{{NAME}}}");
    let record = server.command(&["HGET", &key, "r"]);
    let record = record.text().expect("a pool");
    assert_eq!(record.len(), CURSOR, "no scan is under way");
    let cut = format!("{}90000000000000001023", &record[..LEAST]);
    assert_eq!(server.command(&["HSET", &key, "r", &cut]), Value::Int(0));
    assert!(lock.try_write().await.unwrap().is_none(), "readers hold");
    let record = server.command(&["HGET", &key, "r"]);
    assert_eq!(record.text().map(str::len), Some(CURSOR), "that scan is over");
    drop(readers);
    let next = Duration::from_secs(5);
    let writer = within(next + TAKEOVER_SLACK, "the lock", lock.write()).await.unwrap();
    assert!(writer.is_valid());
}

/// Acquires a read lock for a second, as a client that then dies: it never gives the lease back.
async fn read_and_die(server: &RedisServer) {
    let link = RedisStore::new(&server.url(), Real::world()).unwrap().open().await.unwrap();
    let (id, label) = (GrantId { session: SessionId(7), counter: 1, nonce: 1 }, "".into());
    let (take, patience, not_after_us) = (Take::READ, Patience::Try, 9_000_000_000_000_000);
    let acquire = Acquire { id, take, lease_ms: 1_000, range: 1, not_after_us, patience, label };
    let answer = link.apply(&Name::new(NAME).unwrap(), &Op::Acquire(acquire), Guess::default()).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Granted { .. }), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_of_several_unconfirmed_leases_is_listed_once() {
    let server = RedisServer::start();
    let client = Leasehold::builder(&server.url()).lease(Duration::from_secs(30)).connect().await.unwrap();
    let semaphore = client.semaphore(NAME, 3);
    let _permits = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
    let _alone = client.mutex("a").lock().await.unwrap();
    server.stop();
    let closed = within(Duration::from_secs(6), "the end", client.close()).await;
    server.cont();
    assert_eq!(closed.unconfirmed(), ["a", NAME]);
}
