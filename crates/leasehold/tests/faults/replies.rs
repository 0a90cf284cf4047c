//! Replies that are lost after the server has acted, and requests that are lost before.
//!
//! A reply that is swallowed on a connection which goes on would put every later reply one place off, which TCP never
//! does: so the connection breaks in its place.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{ErrorKind, Released};
use leasehold_testkit::proxy::{Fault, Latency};
use leasehold_testkit::wait_until;

use crate::common::{
    Bench, CLAIM, LONG, NAME, PROMPT, assert_kept, assert_modest, await_waiters, granted, join, script, within,
};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_acquire_that_won() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let lost = bench.proxy.inject(Fault::cut_at_reply(script(Script::Acquire)).once());
    let guard = within(PROMPT, "the lock", client.mutex(NAME).lock()).await.unwrap();
    assert_eq!(lost.hits(), 1);
    let holder = other.mutex(NAME).inspect().await.unwrap().holder.expect("held");
    assert_eq!(holder.token, guard.token(), "the same grant, asked for again");
    let calls = bench.calls(Script::Acquire);
    assert_eq!(calls[0].argument(3), calls[1].argument(3), "under the same id");
    assert_modest(&guard, &other).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(within(PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

/// A repeated acquire is told what is left, and counts from before it was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_acquire_by_a_long_way() {
    let (bench, each_way) = (Bench::new(), Duration::from_millis(150));
    let (client, other) = (bench.through(Duration::from_secs(6)).await, bench.beside(LEASE).await);
    bench.proxy.set_latency(Some(Latency::fixed(each_way)));
    let lost = bench.proxy.inject(Fault::cut_at_reply(script(Script::Acquire)).once());
    let guard = within(LONG, "the lock", client.mutex(NAME).lock()).await.unwrap();
    assert_modest(&guard, &other).await;
    assert_eq!(lost.hits(), 1);
    assert!(guard.remaining() < Duration::from_secs(6) - 2 * each_way, "{:?}", guard.remaining());
    let renewals = bench.calls(Script::Renew).len();
    let begun = Instant::now();
    while bench.calls(Script::Renew).len() == renewals {
        assert!(begun.elapsed() < LONG, "waited in vain for a renewal");
        assert_modest(&guard, &other).await;
        tokio::task::yield_now().await;
    }
    assert_kept(&guard, 4 * each_way).await;
    assert_modest(&guard, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_try_that_won() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let lost = bench.proxy.inject(Fault::cut_at_reply(script(Script::Acquire)).once());
    let error = client.mutex(NAME).try_lock().await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_acted(), lost.hits()), (ErrorKind::Unreachable, true, 1), "{error}");
    // It held, for nobody: the session goes on until that is given back.
    drop(within(crate::common::LATE + PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_acquire_that_waits() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let lost = bench.proxy.inject(Fault::cut_at_reply(script(Script::Acquire)).once());
    let waiting = join(&client, NAME, 1).await;
    lost.wait(1, LONG);
    wait_until("it asks again", LONG, || bench.calls(Script::Acquire).len() >= 2);
    await_waiters(&other, NAME, 1).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
    assert_eq!(other.mutex(NAME).inspect().await.unwrap().waiters, 0, "it stood there once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_renewal() {
    let (bench, lease) = (Bench::new(), Duration::from_secs(3));
    let (client, other) = (bench.through(lease).await, bench.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let lost = bench.proxy.inject(Fault::cut_at_reply(script(Script::Renew)).times(3));
    assert_kept(&guard, lease * 3 / 2).await;
    lost.wait(3, LONG);
    assert_modest(&guard, &other).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_release() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let lost = bench.proxy.inject(Fault::cut_at_reply(script(Script::Release)).once());
    let released = within(PROMPT, "an answer", guard.release()).await.unwrap();
    assert_eq!((released, lost.hits()), (Released::Released, 1), "a repeated release hears what the first would have");
    drop(within(PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_that_never_arrived() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    let lost = bench.proxy.inject(Fault::cut_before(script(Script::Release)).once());
    drop(guard);
    drop(granted(PROMPT, waiting).await);
    assert_eq!(lost.hits(), 1);
}

/// The caller has gone, and the server is away when its guard is dropped: the release is kept until there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_while_the_server_cannot_be_reached() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    bench.proxy.refuse_connections();
    assert!(bench.proxy.cut_all() >= 1);
    drop(guard);
    bench.proxy.wait_seen("it tries", LONG, |seen| seen.refused >= 2);
    assert!(!waiting.is_finished());
    bench.proxy.accept_connections();
    // Between two tries to reconnect the session waits for a second at most.
    drop(granted(Duration::from_secs(1) + PROMPT, waiting).await);
}

/// The caller stops waiting for an answer that does not come: the session asks for it on its own connection, at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_dropped_while_it_is_held_up() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    let held = bench.proxy.inject(Fault::hold(script(Script::Release)).once());
    let releasing = tokio::spawn(guard.release());
    held.wait(1, LONG);
    releasing.abort();
    drop(granted(PROMPT, waiting).await);
    held.lift();
    assert_eq!(bench.calls(Script::Release).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_that_never_arrived() {
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    let lost = bench.proxy.inject(Fault::cut_before(script(Script::Leave)).once());
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
    let bench = Bench::new();
    let (client, other) = (bench.through(LEASE).await, bench.beside(LEASE).await);
    let theirs = other.mutex(NAME).lock().await.unwrap();
    let waiting = join(&client, NAME, 1).await;
    let lost = bench.proxy.inject(Fault::cut_at_reply(script(Script::Leave)).once());
    waiting.abort();
    lost.wait(1, LONG);
    await_waiters(&other, NAME, 0).await;
    assert_eq!(theirs.release().await.unwrap(), Released::Released);
    assert!(client.close().await.unconfirmed().is_empty());
}
