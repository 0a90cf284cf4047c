//! The server's clock jumps.

use std::time::{Duration, Instant};

use leasehold::Released;
use leasehold_testkit::RedisServer;

use crate::child::Worker;
use crate::common::{
    Harness, NAME, PROMPT, TAKEOVER_SLACK, assert_kept, assert_within_server, await_waiters, client, first_granted,
    granted, join, within,
};

fn harness() -> Harness {
    Harness::with(RedisServer::builder().skew().start())
}

/// A part of the lease is gone. The client shortens the lease at the first reply, and renews at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_by_less_than_a_lease() {
    let (harness, lease) = (harness(), Duration::from_secs(3));
    let (client, other) = (harness.through(lease).await, harness.beside(lease).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    harness.server.shift_clock(1_800_000);
    // Any reply shows the jump.
    client.mutex("b").inspect().await.unwrap();
    assert_within_server(&guard, &other).await;
    assert_kept(&guard, 2 * lease).await;
    assert!(!waiting.is_finished());
    assert_within_server(&guard, &other).await;
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(granted(PROMPT, waiting).await.token() > token);
}

/// The whole lease is gone. The holder is notified at the first reply, and not when its own clock reaches the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_by_more_than_a_lease() {
    let (harness, lease) = (harness(), Duration::from_secs(30));
    let (client, other) = (harness.through(lease).await, harness.beside(lease).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    harness.server.shift_clock(40_000_000);
    client.mutex("b").inspect().await.unwrap();
    assert!(guard.check().is_err_and(|lost| lost.reason().is_expiry()));
    let next = within(PROMPT, "the lock", other.mutex(NAME).lock()).await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    assert_kept(&next, PROMPT).await;
}

/// A lease that begins in the future of the server's clock begins at the next step that touches the name. The waiter
/// makes that step at the end that it knew before the clock was set. So the dead holder is followed within twice its
/// lease, however far the clock was set back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn back_behind_a_holder_that_is_killed() {
    let (server, lease) = (RedisServer::builder().skew().start(), Duration::from_secs(2));
    let next = client(&server.url(), Duration::from_secs(30)).await;
    let mut holder = Worker::start(&server.url());
    holder.command(&format!("lock {NAME} {}", lease.as_millis()));
    let token: u64 = holder.expect_line("held").parse().unwrap();
    let waiting = join(&next, NAME, 1).await;
    holder.kill();
    let killed = Instant::now();
    server.shift_clock(-20_000_000);
    let guard = granted(2 * lease + TAKEOVER_SLACK, waiting).await;
    println!("followed after {:?}", killed.elapsed());
    assert!(guard.token().get() > token);
    assert_within_server(&guard, &next).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Requests carry the server's time. After a jump they are late, or early by an hour, and are repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn back_and_forth_by_an_hour() {
    let (harness, lease) = (harness(), Duration::from_millis(1500));
    let (client, other) = (harness.through(lease).await, harness.beside(lease).await);
    let guard = client.mutex(NAME).lock().await.unwrap();
    let waiting = join(&other, NAME, 1).await;
    harness.server.shift_clock(-3_600_000_000);
    assert_kept(&guard, 2 * lease).await;
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = granted(PROMPT, waiting).await;
    assert!(guard.token() > token, "tokens rise behind a clock that steps back");
    let waiting = join(&client, NAME, 1).await;
    let token = guard.token();
    harness.server.shift_clock(0);
    // An hour forward: by the server's clock the lease has ended long ago.
    let next = granted(lease + TAKEOVER_SLACK, waiting).await;
    assert!(next.token() > token);
    within(lease, "the notification of the loss", guard.lost()).await;
    assert_kept(&next, lease).await;
    assert_within_server(&next, &other).await;
}

/// A waiter's entry and its deadline are measured on the server's clock. A jump of more than the record's retention
/// deletes both, and the order of the waiters. No waiter waits beyond its next re-check.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_over_jumps() {
    let (harness, lease) = (harness(), Duration::from_secs(3));
    let (client, other) = (harness.through(lease).await, harness.beside(lease).await);
    let look = lease / 3 * 12 / 10;
    for shift in [600_000_000, -600_000_000, 0] {
        let guard = client.mutex(NAME).lock().await.unwrap();
        let mut waiting = vec![join(&other, NAME, 1).await];
        let mutex = other.mutex(NAME);
        let patient = async move { mutex.try_lock_for(Duration::from_secs(60)).await };
        waiting.push(tokio::spawn(async { Ok(patient.await?.expect("sixty seconds have not passed")) }));
        await_waiters(&client, NAME, 2).await;
        harness.server.shift_clock(shift);
        drop(guard);
        for _ in 0..2 {
            let guard = first_granted(look + TAKEOVER_SLACK, &mut waiting).await;
            assert_within_server(&guard, &client).await;
            assert_eq!(guard.release().await.unwrap(), Released::Released);
        }
    }
}
