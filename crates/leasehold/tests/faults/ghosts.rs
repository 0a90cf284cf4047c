//! Grants without a caller: a request that is executed after its caller has gone must not block the lock for a lease.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{ErrorKind, Released};
use leasehold_testkit::Value;
use leasehold_testkit::proxy::{Fault, Way};
use pollster::block_on;
use tokio::runtime::Runtime;

use crate::bad_store::Forged;
use crate::common::{
    CLAIM, Harness, KEY, LATE, LONG, NAME, PROMPT, assert_within_server, await_waiters, granted, join, lock, script,
    within,
};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_dropped() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    waiting.abort();
    within(PROMPT, "it leaves the queue", await_waiters(&other, NAME, 0)).await;
    assert_eq!(harness.calls(Script::Leave).len(), 1);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
}

/// The push was in flight when the future was dropped: the leave hands the grant on (P16).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_dropped_when_it_was_just_granted() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    let next = join(&other, NAME, 2).await;
    harness.proxy.stall(Way::Replies);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    harness.proxy.wait_seen("the push is held up", LONG, |seen| seen.stalled_replies >= 1);
    waiting.abort();
    drop(granted(PROMPT, next).await);
    harness.proxy.resume();
}

/// A leave uses the connection of its acquire. On another connection it would overtake the acquire.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_follows_its_acquire() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let held = harness.proxy.inject(Fault::hold(script(Script::Acquire)).once());
    let waiting = lock(&client, NAME);
    held.wait(1, LONG);
    let left = harness.proxy.inject(Fault::delay(script(Script::Leave), Duration::ZERO).once());
    waiting.abort();
    left.wait(1, LONG);
    let (asked, left) = (harness.calls(Script::Acquire), harness.calls(Script::Leave));
    assert_eq!((asked.len(), left.len()), (1, 1));
    assert_eq!(asked[0].connection, left[0].connection);
    held.lift();
    drop(within(PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

/// The acquire's connection is gone, but its bytes are not: they arrive after the first leave. The attempt is closed by
/// a leave that is answered when the acquire can no longer be executed (P14).
#[test]
fn acquire_that_arrives_after_its_leave() {
    let harness = Harness::new();
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let client = first.block_on(harness.through(LEASE));
    let held = harness.proxy.inject(Fault::hold(script(Script::Acquire)).once());
    let mutex = client.mutex(NAME);
    // The future uses the callers' connection, which the first runtime drives. It is polled by a runtime that lives on.
    let handle = first.handle().clone();
    let trying = thread::spawn(move || {
        let _entered = handle.enter();
        block_on(mutex.try_lock()).unwrap_err()
    });
    held.wait(1, LONG);
    let begun = Instant::now();
    // The callers' connection ends with its runtime. The session and its own connection go on.
    drop(first);
    second.block_on(async {
        let error = trying.join().unwrap();
        assert!(error.kind() == ErrorKind::Unreachable && error.may_have_acted(), "{error}");
        let other = harness.beside(LEASE).await;
        while harness.calls(Script::Leave).is_empty() {
            assert!(begun.elapsed() < LATE, "it leaves at once");
            tokio::task::yield_now().await;
        }
        held.lift();
        // This is the fault: a grant without a caller.
        while other.mutex(NAME).inspect().await.unwrap().holder().is_none() {
            assert!(begun.elapsed() < LATE, "the acquire was carried out");
            tokio::task::yield_now().await;
        }
        drop(within(LATE + PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
        assert!(harness.calls(Script::Leave).len() >= 2);
    });
}

/// For whatever reason an entry of this session was left in the queue: when it is granted, the session gives the grant
/// back at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_for_nobody_is_given_back() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    // An attempt of this session that it no longer knows, and whose claim would last for a whole lease.
    let guard = client.mutex("b").lock().await.unwrap();
    let record = harness.server.command(&["GET", "lh1:{b}"]);
    let session = record.text().expect("a record")[20..52].to_owned();
    let ghost = Forged { session, counter: 1 << 40, claim_ms: 30_000, label: "ghost" };
    assert!(matches!(ghost.acquire(&mut harness.server.resp()), Value::Bulk(said) if said.starts_with(b"QUEUED")));
    let next = join(&other, NAME, 2).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, next).await);
    assert!(PROMPT < CLAIM && guard.check().is_ok());
    assert_eq!(harness.calls(Script::Leave).len(), 1);
    assert_eq!(harness.server.command(&["EXISTS", KEY]), Value::Int(1));
}

/// A push that lay in a buffer for more than half a claim is claimed before the waiter enters. By its own content the
/// claim may be over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_push_is_claimed_before_it_is_believed() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    harness.proxy.stall(Way::Replies);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    harness.proxy.wait_seen("the push is held up", LONG, |seen| seen.stalled_replies >= 1);
    tokio::time::sleep(CLAIM * 6 / 10).await;
    harness.proxy.resume();
    let guard = granted(CLAIM + PROMPT, waiting).await;
    assert!(guard.remaining() > CLAIM, "claimed first: {:?}", guard.remaining());
    assert_within_server(&guard, &other).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}
