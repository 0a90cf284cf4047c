//! Grants for nobody: what is carried out after its caller has gone must not cost anybody a lease.

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
    Bench, CLAIM, KEY, LATE, LONG, NAME, PROMPT, assert_modest, await_waiters, granted, join, lock, script, within,
};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_dropped() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    waiting.abort();
    within(PROMPT, "it leaves the queue", await_waiters(&other, NAME, 0)).await;
    assert_eq!(bench.calls(Script::Leave).len(), 1);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
}

/// The push was on its way when the future was dropped: the leave hands the grant on (P16).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_dropped_when_it_was_just_granted() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    let next = join(&other, NAME, 2).await;
    bench.proxy.stall(Way::Replies);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    bench.proxy.wait_seen("the push is held up", LONG, |seen| seen.stalled_replies >= 1);
    waiting.abort();
    drop(granted(PROMPT, next).await);
    bench.proxy.resume();
}

/// A leave goes the way that its acquire went, behind it: on another connection it would overtake it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_follows_its_acquire() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let held = bench.proxy.inject(Fault::hold(script(Script::Acquire)).once());
    let waiting = lock(&client, NAME);
    held.wait(1, LONG);
    let left = bench.proxy.inject(Fault::delay(script(Script::Leave), Duration::ZERO).once());
    waiting.abort();
    left.wait(1, LONG);
    let (asked, left) = (bench.calls(Script::Acquire), bench.calls(Script::Leave));
    assert_eq!((asked.len(), left.len()), (1, 1));
    assert_eq!(asked[0].connection, left[0].connection);
    held.lift();
    drop(within(PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

/// The acquire's connection is gone, and its bytes are not: they arrive behind the first leave. The attempt is closed by a
/// leave that is answered when the acquire can no longer be carried out (P14).
#[test]
fn acquire_that_arrives_after_its_leave() {
    let bench = Bench::new();
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let client = first.block_on(bench.through(LEASE));
    let held = bench.proxy.inject(Fault::hold(script(Script::Acquire)).once());
    let mutex = client.mutex(NAME);
    // On the callers' connection, which the first runtime drives, and polled by nothing that ends with that runtime.
    let handle = first.handle().clone();
    let trying = thread::spawn(move || {
        let _entered = handle.enter();
        block_on(mutex.try_lock()).unwrap_err()
    });
    held.wait(1, LONG);
    let begun = Instant::now();
    // With its runtime, the callers' connection ends. The session and its own go on.
    drop(first);
    second.block_on(async {
        let error = trying.join().unwrap();
        assert!(error.kind() == ErrorKind::Unreachable && error.may_have_acted(), "{error}");
        let other = bench.beside(LEASE).await;
        while bench.calls(Script::Leave).is_empty() {
            assert!(begun.elapsed() < LATE, "it leaves at once");
            tokio::task::yield_now().await;
        }
        held.lift();
        // That is the fault: a grant for nobody.
        while other.mutex(NAME).inspect().await.unwrap().holder.is_none() {
            assert!(begun.elapsed() < LATE, "the acquire was carried out");
            tokio::task::yield_now().await;
        }
        drop(within(LATE + PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
        assert!(bench.calls(Script::Leave).len() >= 2);
    });
}

/// However an entry of ours came to be left in the queue: when it is granted, it is given back at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_for_nobody_is_given_back() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    // An attempt of this session's that nobody knows any more, whose claim would last for a whole lease.
    let guard = client.mutex("b").lock().await.unwrap();
    let record = bench.server.command(&["GET", "lh1:{b}"]);
    let session = record.text().expect("a record")[20..52].to_owned();
    let ghost = Forged { session, counter: 1 << 40, claim_ms: 30_000, label: "ghost" };
    assert!(matches!(ghost.acquire(&mut bench.server.resp()), Value::Bulk(said) if said.starts_with(b"QUEUED")));
    let next = join(&other, NAME, 2).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, next).await);
    assert!(PROMPT < CLAIM && guard.check().is_ok());
    assert_eq!(bench.calls(Script::Leave).len(), 1);
    assert_eq!(bench.server.command(&["EXISTS", KEY]), Value::Int(1));
}

/// A push that lay in a buffer for more than half a claim is claimed first and entered then: by what it says, it may be
/// over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_push_is_claimed_before_it_is_believed() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    bench.proxy.stall(Way::Replies);
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    bench.proxy.wait_seen("the push is held up", LONG, |seen| seen.stalled_replies >= 1);
    tokio::time::sleep(CLAIM * 6 / 10).await;
    bench.proxy.resume();
    let guard = granted(CLAIM + PROMPT, waiting).await;
    assert!(guard.remaining() > CLAIM, "claimed first: {:?}", guard.remaining());
    assert_modest(&guard, &other).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}
