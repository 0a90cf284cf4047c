//! Replies that are lost after the server has acted, and requests that are lost before.
//!
//! If one reply were lost on a connection that goes on, every later reply would be off by one, which TCP never does. So
//! the proxy breaks the connection instead.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{ErrorKind, Released};
use leasehold_testkit::proxy::{Fault, Latency};
use leasehold_testkit::wait_until;

use crate::common::{
    CLAIM, Harness, LONG, NAME, PROMPT, assert_kept, assert_within_server, await_waiters, granted, join, script, within,
};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_acquire_that_won() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let lost = harness.proxy.inject(Fault::cut_at_reply(script(Script::Acquire)).once());
    let guard = within(PROMPT, "the lock", client.mutex(NAME).lock()).await.unwrap();
    assert_eq!(lost.hits(), 1);
    let holder = other.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("held");
    assert_eq!(holder.token, guard.token(), "the same grant, asked for again");
    let calls = harness.calls(Script::Acquire);
    assert_eq!(calls[0].argument(3), calls[1].argument(3), "under the same id");
    assert_within_server(&guard, &other).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(within(PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

/// A repeated acquire gets the time that is left, and counts it from before its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_acquire_by_a_long_way() {
    let (harness, each_way) = (Harness::new(), Duration::from_millis(150));
    let (client, other) = (harness.through(Duration::from_secs(6)).await, harness.beside(LEASE).await);
    harness.proxy.set_latency(Some(Latency::fixed(each_way)));
    let lost = harness.proxy.inject(Fault::cut_at_reply(script(Script::Acquire)).once());
    let guard = within(LONG, "the lock", client.mutex(NAME).lock()).await.unwrap();
    assert_within_server(&guard, &other).await;
    assert_eq!(lost.hits(), 1);
    assert!(guard.remaining() < Duration::from_secs(6) - 2 * each_way, "{:?}", guard.remaining());
    let renewals = harness.calls(Script::Renew).len();
    let begun = Instant::now();
    while harness.calls(Script::Renew).len() == renewals {
        assert!(begun.elapsed() < LONG, "timed out while waiting for a renewal");
        assert_within_server(&guard, &other).await;
        tokio::task::yield_now().await;
    }
    assert_kept(&guard, 4 * each_way).await;
    assert_within_server(&guard, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_try_that_won() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let lost = harness.proxy.inject(Fault::cut_at_reply(script(Script::Acquire)).once());
    let error = client.mutex(NAME).try_lock().await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_acted(), lost.hits()), (ErrorKind::Unreachable, true, 1), "{error}");
    // The grant has no caller, so the session goes on until it is released.
    drop(within(crate::common::LATE + PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_acquire_that_waits() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let lost = harness.proxy.inject(Fault::cut_at_reply(script(Script::Acquire)).once());
    let waiting = join(&client, NAME, 1).await;
    lost.wait(1, LONG);
    wait_until("the acquire is repeated", LONG, || harness.calls(Script::Acquire).len() >= 2);
    await_waiters(&other, NAME, 1).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
    assert_eq!(other.mutex(NAME).inspect().await.unwrap().waiters, 0, "the queue had only one entry");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_renewal() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(3));
    let (client, other) = (harness.through(lease).await, harness.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let lost = harness.proxy.inject(Fault::cut_at_reply(script(Script::Renew)).times(3));
    assert_kept(&guard, lease * 3 / 2).await;
    lost.wait(3, LONG);
    assert_within_server(&guard, &other).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_release() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let lost = harness.proxy.inject(Fault::cut_at_reply(script(Script::Release)).once());
    let released = within(PROMPT, "an answer", guard.release()).await.unwrap();
    assert_eq!((released, lost.hits()), (Released::Released, 1), "a repeated release gets the reply of the first");
    drop(within(PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_that_never_arrived() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    let lost = harness.proxy.inject(Fault::cut_before(script(Script::Release)).once());
    drop(guard);
    drop(granted(PROMPT, waiting).await);
    assert_eq!(lost.hits(), 1);
}

/// The caller has gone, and the server is away when its guard is dropped: the session keeps the release until there is
/// a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_while_the_server_cannot_be_reached() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    harness.proxy.refuse_connections();
    assert!(harness.proxy.cut_all() >= 1);
    drop(guard);
    harness.proxy.wait_seen("it tries", LONG, |seen| seen.refused >= 2);
    assert!(!waiting.is_finished());
    harness.proxy.accept_connections();
    // Between two tries to reconnect the session waits at most a second.
    drop(granted(Duration::from_secs(1) + PROMPT, waiting).await);
}

/// The caller stops waiting for a reply that does not come. The session repeats the request on its own connection, at
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_dropped_while_it_is_held_up() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    let held = harness.proxy.inject(Fault::hold(script(Script::Release)).once());
    let releasing = tokio::spawn(guard.release());
    held.wait(1, LONG);
    releasing.abort();
    drop(granted(PROMPT, waiting).await);
    held.lift();
    assert_eq!(harness.calls(Script::Release).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_that_never_arrived() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    let lost = harness.proxy.inject(Fault::cut_before(script(Script::Leave)).once());
    waiting.abort();
    await_waiters(&other, NAME, 0).await;
    assert_eq!(lost.hits(), 1);
    let released = Instant::now();
    let next = join(&other, NAME, 1).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, next).await);
    assert!(released.elapsed() < CLAIM);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_leave() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    let lost = harness.proxy.inject(Fault::cut_at_reply(script(Script::Leave)).once());
    waiting.abort();
    lost.wait(1, LONG);
    await_waiters(&other, NAME, 0).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    assert!(client.close().await.unconfirmed().is_empty());
}
