//! A server whose memory is full, and a queue that is full.

use std::time::Duration;

use leasehold::seam::Script;
use leasehold::{ErrorKind, Released};
use leasehold_testkit::Value;

use crate::bad_store::Forged;
use crate::common::{Harness, LONG, NAME, PROMPT, assert_kept, await_waiters, granted, join, set_memory, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory() {
    let (harness, lease) = (Harness::new(), Duration::from_millis(1500));
    let (client, other) = (harness.through(lease).await, harness.beside(lease).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    let leaving = join(&client, NAME, 2).await;
    set_memory(&harness.server, "1");
    assert!(matches!(harness.server.command(&["SET", "k", "v"]), Value::Error(said) if said.starts_with("OOM")));
    // New locks are refused, and the error says why.
    for error in [
        within(PROMPT, "a refusal", client.mutex("b").lock()).await.unwrap_err(),
        client.mutex("b").try_lock().await.unwrap_err(),
        client.mutex(NAME).fair().try_lock_for(PROMPT).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.may_have_acted(), error.is_retryable()), (ErrorKind::Store, false, true));
        assert!(error.to_string().contains("out of memory") && error.to_string().contains("maxmemory"), "{error}");
    }
    // Everything else goes on: renewals, leaves, re-checks (each waiter re-checks at least twice in this time),
    // releases.
    leaving.abort();
    await_waiters(&other, NAME, 1).await;
    assert_kept(&guard, 2 * lease).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = granted(PROMPT, waiting).await;
    assert_kept(&guard, 2 * lease).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    set_memory(&harness.server, "0");
    drop(within(PROMPT, "the lock", client.mutex("b").lock()).await.unwrap());
}

/// The holder dies while the memory is full: re-checks are refused, and hand over all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_when_a_holder_dies() {
    let (harness, lease) = (Harness::new(), Duration::from_millis(1500));
    let (client, other) = (harness.through(lease).await, harness.beside(lease).await);
    let mut holder = crate::child::Worker::start(&harness.server.url());
    holder.command(&format!("lock {NAME} {}", lease.as_millis()));
    holder.expect_line("held");
    let waiting = join(&other, NAME, 1).await;
    set_memory(&harness.server, "1");
    assert_eq!(client.mutex("b").try_lock().await.unwrap_err().kind(), ErrorKind::Store);
    holder.kill();
    drop(granted(lease + crate::common::TAKEOVER_SLACK, waiting).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue() {
    let (harness, lease) = (Harness::new(), Duration::from_secs(30));
    let client = harness.through(lease).await;
    let guard = client.mutex(NAME).lock().await.unwrap();
    let mut resp = harness.server.resp();
    let waiters = u64::try_from(leasehold_spec::limits::QUEUE_MAX).unwrap();
    // Entries of sessions that are long gone. They are sent in one write, so that it takes a second.
    for counter in 1..=waiters {
        Forged { session: "d".repeat(32), counter, claim_ms: 1000, label: "" }.send(&mut resp);
    }
    for _ in 1..=waiters {
        assert!(matches!(resp.receive().unwrap(), Value::Bulk(said) if said.starts_with(b"QUEUED")));
    }
    for error in [
        within(PROMPT, "a refusal", client.mutex(NAME).fair().lock()).await.unwrap_err(),
        within(PROMPT, "a refusal", client.mutex(NAME).fair().try_lock_for(LONG)).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.may_have_acted(), error.is_retryable()), (ErrorKind::Full, false, true));
        assert!(error.to_string().contains("10000") && error.to_string().contains(NAME), "{error}");
    }
    assert!(client.mutex(NAME).try_lock().await.unwrap().is_none());
    assert_eq!(client.mutex(NAME).inspect().await.unwrap().waiters, leasehold_spec::limits::QUEUE_MAX);
    guard.check().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    // Each step removes 64, so that no step blocks the server. They are gone before any waiter needs a re-check.
    await_waiters(&client, NAME, 0).await;
    let settles = harness.calls(Script::Settle).len();
    assert!(settles >= 10_000 / 64 - 1, "{settles}");
    drop(within(LONG, "the lock", client.mutex(NAME).lock()).await.unwrap());
}
