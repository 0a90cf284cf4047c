//! Servers that come back empty, or without their scripts.

use std::time::Duration;

use leasehold::{LostReason, Released};
use leasehold_testkit::{RedisServer, Value};

use crate::common::{Bench, KEY, NAME, PROMPT, assert_kept, await_waiters, first_granted, granted, join, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restarted_empty() {
    let (bench, lease) = (Bench::new(), Duration::from_secs(3));
    let (holder, next) = (bench.through(lease).await, bench.through(lease).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let alone = holder.mutex("b").lock().await.unwrap();
    let waiting = join(&next, NAME, 1).await;
    bench.server.restart();
    assert_eq!(bench.server.command(&["GET", "lh1:{b}"]), Value::Nil);
    // Told by the first renewal on a new connection, before the lease would have ended.
    let lost = within(lease, "word of the loss", alone.lost()).await;
    assert_eq!(lost.reason(), LostReason::Forgotten);
    let lost = within(lease, "word of the loss", guard.lost()).await;
    assert!(matches!(lost.reason(), LostReason::Forgotten | LostReason::Superseded), "{lost:?}");
    let new = granted(lease, waiting).await;
    assert!(new.token() > guard.token(), "tokens rise: there is no record, and the clock goes on");
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    assert_eq!(alone.release().await.unwrap(), Released::NotHeld);
    assert_kept(&new, lease).await;
    assert_eq!(new.release().await.unwrap(), Released::Released);
}

/// What a waiter was told of tokens before the restart says nothing about those after it: it neither waits for ever nor
/// asks again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restarted_empty_with_its_clock_behind() {
    let (bench, lease) = (Bench::with(RedisServer::builder().skew().start()), Duration::from_secs(3));
    let (holder, next) = (bench.through(lease).await, bench.through(lease).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let mut waiting = vec![join(&next, NAME, 1).await, join(&next, NAME, 2).await];
    bench.server.kill();
    bench.server.shift_clock(-600_000_000);
    bench.server.restart();
    within(lease, "word of the loss", guard.lost()).await;
    let asked = bench.proxy.seen().count("EVALSHA");
    for _ in 0..2 {
        let guard = first_granted(lease, &mut waiting).await;
        assert_kept(&guard, lease / 2).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    let asked = bench.proxy.seen().count("EVALSHA") - asked;
    assert!(asked < 200, "asked {asked} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed() {
    let (bench, lease) = (Bench::new(), Duration::from_millis(1500));
    let (client, other) = (bench.through(lease).await, bench.through(lease).await);
    let flush = || {
        assert_eq!(bench.server.command(&["SCRIPT", "FLUSH"]), Value::Status("OK".into()));
        bench.proxy.seen().count("EVAL")
    };
    let kept = client.mutex(NAME).lock().await.unwrap();
    let before = flush();
    assert_kept(&kept, lease).await;
    assert!(bench.proxy.seen().count("EVAL") > before, "the renewal brought its script back");
    flush();
    let waiting = join(&other, NAME, 1).await;
    flush();
    let released = kept.release().await.unwrap();
    assert_eq!(released, Released::Released);
    let guard = granted(PROMPT, waiting).await;
    assert_eq!(bench.server.command(&["EXISTS", KEY]), Value::Int(1));
    flush();
    let waiting = join(&client, NAME, 1).await;
    let before = flush();
    waiting.abort();
    await_waiters(&other, NAME, 0).await;
    assert!(bench.proxy.seen().count("EVAL") > before, "the leave brought its script back");
    flush();
    drop(guard);
    drop(within(PROMPT, "the lock", client.mutex(NAME).lock()).await.unwrap());
}
