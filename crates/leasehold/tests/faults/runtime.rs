//! The caller's runtime is blocked, or is gone.

use std::future::{Future, poll_fn};
use std::sync::mpsc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{Leasehold, Released};
use leasehold_testkit::proxy::Latency;
use pollster::block_on;
use tokio::runtime::{Builder, Runtime};

use crate::common::{Harness, LONG, NAME, PROMPT, assert_kept, await_waiters, granted, join, lock, within};

/// Work that computes and never yields: a task on this runtime could not renew.
#[test]
fn blocked_for_two_leases() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(1));
    let rest = Runtime::new().unwrap();
    let other = rest.block_on(harness.beside(lease));
    let (waiting, blocked) = Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = harness.through(lease).await;
        let guard = client.mutex(NAME).lock().await.unwrap();
        let waiting = rest.block_on_elsewhere(&other);
        let renewals = harness.calls(Script::Renew).len();
        thread::sleep(2 * lease + lease / 2);
        guard.check().expect("kept");
        assert!(!waiting.is_finished(), "the other client got the lock");
        let renewals = harness.calls(Script::Renew).len() - renewals;
        assert!(renewals >= 4, "renewed each third: {renewals}");
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        (waiting, renewals)
    });
    assert!(blocked >= 4);
    drop(rest.block_on(granted(PROMPT, waiting)));
}

/// Joins the queue on this runtime, from within another one.
trait Elsewhere {
    fn block_on_elsewhere(&self, client: &Leasehold) -> tokio::task::JoinHandle<leasehold::Result<leasehold::Guard>>;
}

impl Elsewhere for Runtime {
    fn block_on_elsewhere(&self, client: &Leasehold) -> tokio::task::JoinHandle<leasehold::Result<leasehold::Guard>> {
        thread::scope(|scope| scope.spawn(|| self.block_on(join(client, NAME, 1))).join().unwrap())
    }
}

/// A waiter whose runtime is blocked is granted the lock, and keeps the grant until it is polled.
#[test]
fn blocked_while_its_waiter_is_granted() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(1));
    let rest = Runtime::new().unwrap();
    let other = rest.block_on(harness.beside(lease));
    let theirs = rest.block_on(other.mutex(NAME).lock()).unwrap();
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = harness.through(lease).await;
        let waiting = join(&client, NAME, 1).await;
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(rest.block_on(theirs.release()).unwrap(), Released::Released));
        });
        thread::sleep(2 * lease);
        let guard = granted(PROMPT, waiting).await;
        assert_kept(&guard, lease).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    });
}

#[test]
fn guard_that_outlives_its_runtime() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(1));
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let client = first.block_on(harness.through(lease));
    let guard = first.block_on(client.mutex(NAME).lock()).unwrap();
    drop(first);
    second.block_on(async {
        let other = harness.beside(lease).await;
        assert_kept(&guard, 2 * lease).await;
        let waiting = join(&other, NAME, 1).await;
        assert!(!waiting.is_finished());
        // In a thread that has no runtime at all.
        thread::spawn(move || drop(guard)).join().unwrap();
        drop(granted(PROMPT, waiting).await);
    });
    drop(client);
}

/// The client goes on with another runtime, and so do its waiters.
#[test]
fn client_that_outlives_its_runtime() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(30));
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let client = first.block_on(harness.through(lease));
    let other = second.block_on(harness.beside(lease));
    let theirs = second.block_on(other.mutex(NAME).lock()).unwrap();
    let abandoned = first.block_on(join(&client, NAME, 1));
    drop(first);
    second.block_on(async {
        // The waiting future is gone with its runtime, and has left the queue.
        assert!(within(PROMPT, "its end", abandoned).await.unwrap_err().is_cancelled());
        within(PROMPT, "it leaves", await_waiters(&other, NAME, 0)).await;
        let waiting = join(&client, NAME, 1).await;
        assert_eq!(theirs.release().await.unwrap(), Released::Released);
        let guard = granted(PROMPT, waiting).await;
        assert_eq!(within(PROMPT, "an answer", guard.release()).await.unwrap(), Released::Released);
        let guard = granted(PROMPT, lock(&client, "b")).await;
        drop(guard);
        assert!(within(LONG, "the end", client.close()).await.unconfirmed().is_empty());
    });
}

/// Connects, and locks `NAME`, in this runtime.
fn locked(runtime: &Runtime, harness: &Harness, lease: Duration) -> (Leasehold, leasehold::Guard) {
    runtime.block_on(async {
        let client = harness.beside(lease).await;
        let guard = client.mutex(NAME).lock().await.unwrap();
        (client, guard)
    })
}

fn one_threaded() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Makes every call of a client once. Each of them sends a request to a store that answers.
async fn call_everything(client: &Leasehold, guard: leasehold::Guard) {
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = client.mutex(NAME).lock().await.unwrap();
    drop(guard);
    let guard = client.mutex(NAME).try_lock().await.unwrap().expect("the dropped guard is released first");
    assert!(client.mutex(NAME).inspect().await.unwrap().holder().is_some());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = client.mutex(NAME).try_lock_for(Duration::from_millis(10)).await.unwrap().expect("it is free");
    let holder = client.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("this client");
    client.mutex(NAME).revoke(&holder, Duration::ZERO).await.unwrap();
    guard.lost().await;
    drop(guard);
    assert_eq!(client.mutex(NAME).run(async |_| 1).await.unwrap(), 1);
    assert!(!client.names().await.unwrap().is_empty());
}

/// The runtime that connected is neither gone nor polled: a request that was handed to its connection would stay there
/// for ever.
#[test]
fn calls_elsewhere_need_nobody_to_poll_the_runtime_that_connected() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(30));
    let (first, second) = (one_threaded(), one_threaded());
    let (client, guard) = locked(&first, &harness, lease);
    second.block_on(async {
        within(PROMPT, "all calls", call_everything(&client, guard)).await;
        assert!(within(PROMPT, "the end", client.close()).await.unconfirmed().is_empty());
    });
    let (client, guard) = locked(&first, &harness, lease);
    let begun = Instant::now();
    block_on(call_everything(&client, guard));
    assert!(begun.elapsed() < PROMPT, "without a runtime: {:?}", begun.elapsed());
}

/// The caller itself keeps its runtime from being polled: it waits within it with another executor. The requests in the
/// lane are repeated on the session's connection, half a second later.
#[test]
fn calls_within_a_blocked_runtime_are_answered() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(30));
    let runtime = one_threaded();
    let (client, guard) = locked(&runtime, &harness, lease);
    let in_the_way = Duration::from_millis(500);
    let _entered = runtime.enter();
    let begun = Instant::now();
    assert_eq!(block_on(guard.release()).unwrap(), Released::Released);
    assert!(begun.elapsed() < in_the_way + PROMPT, "a release: {:?}", begun.elapsed());
    // The next lane would be opened on this runtime, too, which never runs it: the calls use the session's connection.
    let guard = block_on(client.mutex(NAME).try_lock()).unwrap().expect("it is free");
    block_on(call_everything(&client, guard));
    assert!(begun.elapsed() < in_the_way + 2 * PROMPT, "all calls: {:?}", begun.elapsed());
}

/// A lock is granted although its request was handed to a lane that is blocked.
#[test]
fn a_lock_within_a_blocked_runtime_is_granted() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(30));
    for call in ["lock", "try_lock", "try_lock_for"] {
        let runtime = one_threaded();
        let client = runtime.block_on(harness.beside(lease));
        let _entered = runtime.enter();
        let (mutex, begun) = (client.mutex(NAME), Instant::now());
        let guard = match call {
            "lock" => Some(block_on(mutex.lock()).unwrap()),
            "try_lock" => block_on(mutex.try_lock()).unwrap(),
            _ => block_on(mutex.try_lock_for(Duration::ZERO)).unwrap(),
        };
        assert!(begun.elapsed() < Duration::from_millis(500) + PROMPT, "{call}: {:?}", begun.elapsed());
        assert_eq!(block_on(guard.expect("it is free").release()).unwrap(), Released::Released);
    }
}

/// A runtime sends a release, and is blocked before the reply comes. The future is awaited on another runtime.
#[test]
fn a_reply_that_a_blocked_runtime_does_not_read_is_requested_again() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(30));
    let (first, second) = (one_threaded(), one_threaded());
    let guard = first.block_on(async { harness.through(lease).await.mutex(NAME).lock().await.unwrap() });
    let each_way = Duration::from_millis(100);
    harness.proxy.set_latency(Some(Latency::fixed(each_way)));
    let (hand_on, handed_on) = mpsc::channel();
    let blocked = thread::spawn(move || {
        first.block_on(async {
            let mut releasing = Box::pin(guard.release());
            let sent = poll_fn(|context| Poll::Ready(releasing.as_mut().poll(context))).await;
            assert!(sent.is_pending(), "the answer takes 0.2 s");
            // Long enough for the request to be written.
            tokio::time::sleep(each_way / 2).await;
            hand_on.send(releasing).unwrap();
            thread::sleep(Duration::from_secs(5));
        });
    });
    let releasing = handed_on.recv().unwrap();
    let begun = Instant::now();
    assert_eq!(second.block_on(releasing).unwrap(), Released::Released);
    assert!(begun.elapsed() < Duration::from_millis(500) + PROMPT, "a release: {:?}", begun.elapsed());
    drop(blocked);
}
