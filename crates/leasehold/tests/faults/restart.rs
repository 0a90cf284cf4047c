//! Servers that come back empty, or without their scripts.

use std::time::Duration;

use leasehold::{LostReason, Released};
use leasehold_testkit::{RedisServer, Value};

use crate::common::{Harness, KEY, NAME, PROMPT, assert_kept, await_waiters, first_granted, granted, join, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restarted_empty() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(3));
    let (holder, next) = (harness.through(lease).await, harness.through(lease).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let alone = holder.mutex("b").lock().await.unwrap();
    let waiting = join(&next, NAME, 1).await;
    harness.server.restart();
    assert_eq!(harness.server.command(&["GET", "lh1:{b}"]), Value::Nil);
    // The first renewal on a new connection reports the loss, before the lease would have ended.
    let lost = within(lease, "the notification of the loss", alone.lost()).await;
    assert_eq!(lost.reason(), LostReason::Forgotten);
    let lost = within(lease, "the notification of the loss", guard.lost()).await;
    assert!(matches!(lost.reason(), LostReason::Forgotten | LostReason::Superseded), "{lost:?}");
    let new = granted(lease, waiting).await;
    assert!(new.token() > guard.token(), "tokens rise: there is no record, and the clock goes on");
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    assert_eq!(alone.release().await.unwrap(), Released::NotHeld);
    assert_kept(&new, lease).await;
    assert_eq!(new.release().await.unwrap(), Released::Released);
}

/// The tokens that a waiter knew before the restart say nothing about the tokens after it. The waiter does not wait for
/// ever, and does not retry in a busy loop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restarted_empty_with_its_clock_behind() {
    let (harness, lease) = (Harness::with(RedisServer::builder().skew().start()), Duration::from_secs(3));
    let (holder, next) = (harness.through(lease).await, harness.through(lease).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let mut waiting = vec![join(&next, NAME, 1).await, join(&next, NAME, 2).await];
    harness.server.kill();
    harness.server.shift_clock(-600_000_000);
    harness.server.restart();
    within(lease, "the notification of the loss", guard.lost()).await;
    let asked = harness.proxy.seen().count("EVALSHA");
    for _ in 0..2 {
        let guard = first_granted(lease, &mut waiting).await;
        assert_kept(&guard, lease / 2).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    let asked = harness.proxy.seen().count("EVALSHA") - asked;
    assert!(asked < 200, "{asked} requests");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed() {
    let (harness, lease) = (Harness::new(), Duration::from_millis(1500));
    let (client, other) = (harness.through(lease).await, harness.through(lease).await);
    let flush = || {
        assert_eq!(harness.server.command(&["SCRIPT", "FLUSH"]), Value::Status("OK".into()));
        harness.proxy.seen().count("EVAL")
    };
    let kept = client.mutex(NAME).lock().await.unwrap();
    let before = flush();
    assert_kept(&kept, lease).await;
    assert!(harness.proxy.seen().count("EVAL") > before, "the renewal brought its script back");
    flush();
    let waiting = join(&other, NAME, 1).await;
    flush();
    let released = kept.release().await.unwrap();
    assert_eq!(released, Released::Released);
    let guard = granted(PROMPT, waiting).await;
    assert_eq!(harness.server.command(&["EXISTS", KEY]), Value::Int(1));
    flush();
    let waiting = join(&client, NAME, 1).await;
    flush();
    waiting.abort();
    // The leave has found its script. This inspection, or the leave, has brought it.
    await_waiters(&other, NAME, 0).await;
    flush();
    drop(guard);
    drop(within(PROMPT, "the lock", client.mutex(NAME).lock()).await.unwrap());
}

/// A server that does not know the scripts of pools gets that of the release with the first request. Otherwise the first
/// release would be sent twice, and the acquire behind it would pass it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p16_a_client_is_not_in_its_own_way_at_a_server_without_scripts() {
    let harness = Harness::new();
    let client = harness.through(Duration::from_secs(3)).await;
    let semaphore = client.semaphore(NAME, 3);
    for round in 0..10 {
        let mut permits = Vec::new();
        for _ in 0..3 {
            permits.push(semaphore.acquire().await.unwrap());
        }
        drop(permits);
        let all = semaphore.try_acquire_many(3).await.unwrap();
        let all = all.unwrap_or_else(|| panic!("round {round}: nobody else holds a permit"));
        assert_eq!(all.release().await.unwrap(), Released::Released);
        assert_eq!(harness.server.command(&["SCRIPT", "FLUSH"]), Value::Status("OK".into()));
    }
    let sources = harness.proxy.seen().count("EVAL");
    assert!((10..15).contains(&sources), "{sources} requests brought their script");
}

/// Thousands of requests can be in flight when the server misses a script of some 20 kB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_requests_brings_their_script() {
    let harness = Harness::new();
    let client = harness.through(Duration::from_secs(30)).await;
    let acquiring: Vec<_> = (0..200)
        .map(|number| {
            let semaphore = client.semaphore(number.to_string(), 1);
            tokio::spawn(async move { semaphore.acquire().await.unwrap() })
        })
        .collect();
    let mut permits = Vec::new();
    for acquiring in acquiring {
        permits.push(within(PROMPT, "the permit", acquiring).await.unwrap());
    }
    // Each of the client's two connections may send it.
    let sources = harness.proxy.seen().count("EVAL");
    assert!((1..=2).contains(&sources), "{sources} requests brought their script");
}
