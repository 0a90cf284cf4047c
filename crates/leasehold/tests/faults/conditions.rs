//! Condition variables, latches and elections: notifications of processes that die, and servers that forget or are full.

use std::time::Duration;

use leasehold::seam::Script;
use leasehold::{ErrorKind, Leasehold, Released, Result};
use leasehold_testkit::proxy::Fault;
use leasehold_testkit::{RedisServer, wait_until};
use tokio::task::JoinHandle;

use crate::child::Worker;
use crate::common::{
    CLAIM, CLAIM_SLACK, Harness, NAME, PROMPT, TAKEOVER_SLACK, await_waiters, client, inboxes, script, set_memory,
    within,
};

/// No re-check is due within the time of a test.
const LEASE: Duration = Duration::from_secs(30);
const CHANGED: &str = "changed";
/// The time within which a waiter that may have missed something wakes up (P43).
const UNSURE: Duration = Duration::from_secs(6);

/// Waits for a notification with a lock of its own, and returns when the store has `waiters` for it, this one last.
async fn wait(client: &Leasehold, own: &str, waiters: usize) -> JoinHandle<Result<()>> {
    let (mutex, changed) = (client.mutex(own), client.condvar(CHANGED));
    let waiting = tokio::spawn(async move { changed.wait(mutex.lock().await?).await.map(drop) });
    await_waiters(client, CHANGED, waiters).await;
    waiting
}

async fn woken(time: Duration, waiting: JoinHandle<Result<()>>) {
    within(time, "a notification", waiting).await.unwrap().unwrap();
}

/// Starts a process that waits for a notification, with the lock of this name.
async fn start(server: &RedisServer, client: &Leasehold, lease: Duration) -> Worker {
    let mut worker = Worker::start(&server.url());
    worker.command(&format!("wait {CHANGED} {NAME} {}", lease.as_millis()));
    await_waiters(client, CHANGED, 1).await;
    worker
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p42_a_killed_waiter_is_passed_over() {
    let server = RedisServer::start();
    let client = client(&server.url(), LEASE).await;
    let mut dies = start(&server, &client, LEASE).await;
    let waiting = wait(&client, "own", 2).await;
    dies.kill();
    wait_until("the server knows it", PROMPT, || inboxes(&server) == 1);
    assert!(client.condvar(CHANGED).notify_one().await.unwrap());
    woken(PROMPT, waiting).await;
}

/// The frozen process is attached, so it is notified. It does not claim the notification.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p42_a_frozen_waiter_costs_a_claim() {
    let server = RedisServer::start();
    let client = client(&server.url(), LEASE).await;
    let mut freezes = start(&server, &client, LEASE).await;
    let waiting = wait(&client, "own", 2).await;
    freezes.stop();
    assert!(client.condvar(CHANGED).notify_one().await.unwrap());
    woken(CLAIM + CLAIM_SLACK, waiting).await;
    // It may have missed something, so it wakes up, too.
    freezes.cont();
    freezes.expect_line("woken");
}

/// The process has claimed its notification and waits for the lock. It dies, and its lease passes on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p42_the_notification_of_a_killed_process_passes_on() {
    let (server, lease) = (RedisServer::start(), Duration::from_secs(2));
    let client = client(&server.url(), LEASE).await;
    let mut dies = start(&server, &client, lease).await;
    let waiting = wait(&client, "own", 2).await;
    let _held = client.mutex(NAME).lock().await.unwrap();
    assert!(client.condvar(CHANGED).notify_one().await.unwrap());
    await_waiters(&client, NAME, 1).await;
    tokio::time::sleep(CLAIM + CLAIM_SLACK).await;
    assert!(!waiting.is_finished(), "the first waiter has claimed its notification");
    dies.kill();
    woken(lease + TAKEOVER_SLACK, waiting).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p43_a_server_that_was_restarted_empty_wakes_its_waiters() {
    let harness = Harness::new();
    let client = harness.through(LEASE).await;
    let waiting = [wait(&client, "a", 1).await, wait(&client, "b", 2).await];
    let latch = client.latch("parts");
    latch.create(2).await.unwrap();
    latch.count_down().await.unwrap();
    let gate = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    await_waiters(&client, "parts", 1).await;
    harness.server.restart();
    for waiting in waiting {
        woken(UNSURE, waiting).await;
    }
    // The latch is gone, and its waiter does not wait for the next one of the name.
    let absent = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Absent);
    absent(within(UNSURE, "an answer", gate).await.unwrap());
    absent(latch.count_down().await);
    assert!(!client.condvar(CHANGED).notify_one().await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p44_a_count_down_whose_reply_is_lost_counts_once() {
    let harness = Harness::new();
    let (client, other) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let latch = client.latch("parts");
    latch.create(3).await.unwrap();
    let lost = harness.proxy.inject(Fault::cut_at_reply(script(Script::PoolCountDown)).once());
    within(UNSURE, "a count-down", latch.count_down()).await.unwrap();
    assert_eq!((lost.hits(), harness.calls(Script::PoolCountDown).len()), (1, 2), "it was sent again");
    assert_eq!(other.latch("parts").remaining().await.unwrap(), 2);
}

/// A full server carries out each request that frees memory or lets others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_opens_latches_and_notifies() {
    let harness = Harness::new();
    let client = harness.beside(LEASE).await;
    let latch = client.latch("parts");
    latch.create(2).await.unwrap();
    let gate = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    await_waiters(&client, "parts", 1).await;
    let waiting = wait(&client, "own", 1).await;
    let leadership = client.election("shard").campaign("a").await.unwrap();
    set_memory(&harness.server, "1");
    let refused = client.latch("more").create(1).await.unwrap_err();
    assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Store, true), "{refused}");
    latch.count_down().await.unwrap();
    assert_eq!(latch.remaining().await.unwrap(), 1);
    latch.count_down().await.unwrap();
    within(PROMPT, "an open latch", gate).await.unwrap().unwrap();
    latch.delete().await.unwrap();
    leadership.put("b").await.unwrap();
    assert_eq!(client.election("shard").leader().await.unwrap().unwrap().value, "b");
    assert!(client.condvar(CHANGED).notify_one().await.unwrap());
    // The waiter wakes up, and its lock is a new one.
    let refused = within(PROMPT, "a refusal", waiting).await.unwrap().unwrap_err();
    assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Store, true), "{refused}");
    await_waiters(&client, CHANGED, 0).await;
}

/// No poll of the observer is due within the time of the test. The queue of the observers has no name for users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p48_an_observer_is_notified_of_each_change() {
    let server = RedisServer::start();
    let (client, other) = (client(&server.url(), LEASE).await, client(&server.url(), LEASE).await);
    let mut observer = other.election("shard").observe();
    assert_eq!(observer.next().await.unwrap(), None);
    let leadership = client.election("shard").campaign("a").await.unwrap();
    assert_eq!(within(PROMPT, "a leader", observer.next()).await.unwrap().unwrap().value, "a");
    leadership.put("b").await.unwrap();
    assert_eq!(within(PROMPT, "its new value", observer.next()).await.unwrap().unwrap().value, "b");
    assert_eq!(client.names().await.unwrap(), ["shard"]);
    assert_eq!(leadership.resign().await.unwrap(), Released::Released);
    assert_eq!(within(PROMPT, "its end", observer.next()).await.unwrap(), None);
}
