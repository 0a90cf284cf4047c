//! Processes that are killed, and processes that are frozen.

use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{Released, Revoked};
use leasehold_testkit::history::Fenced;
use leasehold_testkit::proxy::Fault;
use leasehold_testkit::{RedisServer, Registers, Value, boottime_us, wait_until};

use crate::child::Worker;
use crate::common::{
    CLAIM, CLAIM_SLACK, Harness, KEY, LONG, NAME, PROMPT, REVOKED_SLACK, TAKEOVER_SLACK, await_waiters, client,
    granted, inboxes, join, within,
};

const LEASE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_killed() {
    let (server, lease) = (RedisServer::start(), Duration::from_millis(1500));
    let next = client(&server.url(), lease).await;
    let mut holder = Worker::start(&server.url());
    holder.command(&format!("lock {NAME} {}", lease.as_millis()));
    let token: u64 = holder.expect_line("held").parse().unwrap();
    let waiting = join(&next, NAME, 1).await;
    let asked = Instant::now();
    let left = next.mutex(NAME).inspect().await.unwrap().holder().expect("held").remaining;
    holder.kill();
    let killed = Instant::now();
    let guard = granted(lease + TAKEOVER_SLACK, waiting).await;
    assert!(asked.elapsed() >= left, "the next waiter got the lock before the lease ended: {left:?}");
    assert!(killed.elapsed() <= lease + TAKEOVER_SLACK);
    assert!(guard.token().get() > token);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// The waiter's own lease is 30 s, so it re-checks only every 5 s. It must know when the *holder's* lease ends, and
/// that end moves at every renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_of_a_short_lease_killed_before_a_waiter_with_a_long_one() {
    let (server, short) = (RedisServer::start(), Duration::from_secs(1));
    let next = client(&server.url(), LEASE).await;
    let mut holder = Worker::start(&server.url());
    holder.command(&format!("lock {NAME} {}", short.as_millis()));
    holder.expect_line("held");
    let waiting = join(&next, NAME, 1).await;
    // The holder renews for a while: the end that the waiter got when it joined the queue has passed.
    tokio::time::sleep(short * 13 / 10).await;
    assert!(!waiting.is_finished(), "the holder renews");
    holder.kill();
    drop(granted(short + TAKEOVER_SLACK, waiting).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_killed() {
    let server = RedisServer::start();
    let (holder, next) = (client(&server.url(), LEASE).await, client(&server.url(), LEASE).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let mut first = Worker::start(&server.url());
    first.command(&format!("lock {NAME} 30000"));
    await_waiters(&next, NAME, 1).await;
    let waiting = join(&next, NAME, 2).await;
    assert_eq!(inboxes(&server), 3);
    first.kill();
    wait_until("the server sees that it is gone", LONG, || inboxes(&server) == 2);
    assert_eq!(next.mutex(NAME).inspect().await.unwrap().waiters, 2, "its entry is still there");
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
    assert!(released.elapsed() < CLAIM, "a dead waiter costs no claim");
}

/// A monitor receives every message, so PUBLISH counts one receiver for a dead inbox too (P6).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_killed_while_a_monitor_listens_to_everything() {
    let server = RedisServer::start();
    let mut monitor = server.resp();
    monitor.command(&["PSUBSCRIBE", "*"]);
    let (holder, next) = (client(&server.url(), LEASE).await, client(&server.url(), LEASE).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let mut first = Worker::start(&server.url());
    first.command(&format!("lock {NAME} 30000"));
    await_waiters(&next, NAME, 1).await;
    let waiting = join(&next, NAME, 2).await;
    first.kill();
    wait_until("the server sees that it is gone", LONG, || inboxes(&server) == 2);
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = granted(PROMPT, waiting).await;
    assert!(released.elapsed() < CLAIM, "a dead waiter costs no claim");
    // The monitor was there: it has received this grant, and no other. (Each session's probe is a message as well.)
    let token = guard.token().get().to_string();
    let mut grants = 0;
    while grants == 0 {
        let Value::Array(message) = monitor.receive().unwrap() else { panic!("a message") };
        let Some(text) = message.last().and_then(Value::text) else { continue };
        if text.starts_with("lh1 G ") {
            assert!(text.contains(&token), "the first grant that was pushed is the live waiter's: {text}");
            grants += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_waiter_frozen() {
    frozen(1).await;
}

/// A frozen process costs one claim, and not one for each of its waiters (P7).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_three_waiters_frozen_in_one_process() {
    frozen(3).await;
}

async fn frozen(waiters: usize) {
    let server = RedisServer::start();
    let (holder, next) = (client(&server.url(), LEASE).await, client(&server.url(), LEASE).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let mut first = Worker::start(&server.url());
    (0..waiters).for_each(|_| first.command(&format!("lock {NAME} 30000")));
    await_waiters(&next, NAME, waiters).await;
    let waiting = join(&next, NAME, waiters + 1).await;
    first.stop();
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let seen = next.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("the frozen one was granted");
    assert!(seen.remaining <= CLAIM, "a pushed grant lasts for a claim: {seen:?}");
    let guard = granted(CLAIM + CLAIM_SLACK, waiting).await;
    let took = released.elapsed();
    assert!((CLAIM..=CLAIM + CLAIM_SLACK).contains(&took), "{took:?}");
    assert!(guard.token() > seen.token);
    // The process gets its place back with all its waiters, by one re-check, and its stale push is not believed.
    first.cont();
    within(PROMPT, "all of them", await_waiters(&next, NAME, waiters)).await;
    let token = guard.token().get();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let mut last = token;
    for _ in 0..waiters {
        let held: u64 = first.expect_line("held").parse().unwrap();
        assert!(held > last, "tokens rise: {held} after {last}");
        last = held;
        first.command(&format!("check {held}"));
        assert_eq!(first.expect_line("valid"), "");
        first.command(&format!("release {held}"));
        assert_eq!(first.expect_line("released"), "Ok(Released)");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_stopped_beyond_its_lease() {
    let (server, shelves, lease) = (RedisServer::start(), RedisServer::start(), Duration::from_secs(1));
    let next = client(&server.url(), lease).await;
    let mut holder = Worker::start(&server.url());
    holder.command(&format!("lock {NAME} {}", lease.as_millis()));
    let token: u64 = holder.expect_line("held").parse().unwrap();
    holder.command(&format!("check {token}"));
    holder.expect_line("valid");
    holder.command(&format!("write {} {token}", shelves.port()));
    holder.expect_line("accepted");
    holder.command(&format!("spin {token}"));
    holder.expect_line("spinning");
    let waiting = join(&next, NAME, 1).await;
    holder.stop();
    let stopped_us = boottime_us();
    let guard = granted(lease + TAKEOVER_SLACK, waiting).await;
    assert!(guard.token().get() > token);
    let write = Registers::at(shelves.port()).write_fenced("shelf", guard.token().get());
    assert!(matches!(write, Fenced::Accepted(_)), "{write:?}");
    // Sent while the process is stopped: it executes this first when it goes on.
    holder.command(&format!("check {token}"));
    holder.command(&format!("write {} {token}", shelves.port()));
    holder.cont();
    let last_us: u64 = holder.expect_line("ended").parse().unwrap();
    assert!(last_us <= stopped_us, "the first check after the stop succeeded");
    let lost = holder.expect_line("lost");
    assert!(lost.starts_with("stock Stopped { lasted: "), "the store is not to blame: {lost}");
    assert_eq!(holder.expect_line("refused"), "");
    holder.command(&format!("release {token}"));
    assert_eq!(holder.expect_line("released"), "Ok(NotHeld)");
    assert!(guard.check().is_ok(), "the late release took nothing away");
}

/// The holder gets no message, and the revoker is gone. The waiter is notified when the grace ends, long before its own
/// next re-check (4 s at the earliest).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_stopped_and_revoked_by_a_client_that_is_gone() {
    let server = RedisServer::start();
    let (grace, lease) = (Duration::from_secs(1), Duration::from_secs(60));
    let next = client(&server.url(), LEASE).await;
    let mut holder = Worker::start(&server.url());
    holder.command(&format!("lock {NAME} {}", lease.as_millis()));
    let token: u64 = holder.expect_line("held").parse().unwrap();
    let waiting = join(&next, NAME, 1).await;
    holder.stop();
    let operator = client(&server.url(), LEASE).await;
    let seen = operator.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("held");
    let revoked = Instant::now();
    let answer = operator.mutex(NAME).revoke(&seen, grace).await.unwrap();
    assert!(matches!(answer, Revoked::Within(left) if left <= grace), "{answer:?}");
    assert!(operator.close().await.unconfirmed().is_empty());
    let guard = granted(grace + REVOKED_SLACK, waiting).await;
    let took = revoked.elapsed();
    assert!((grace..=grace + REVOKED_SLACK).contains(&took), "{took:?}");
    assert!(guard.token().get() > token);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// P15: without the message the waiter's own re-check hands over, at most 1.2 s later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_stopped_and_revoked_and_the_waiter_gets_no_message() {
    let (harness, grace, lease) = (Harness::new(), Duration::from_millis(300), Duration::from_secs(3));
    let look = lease / 3 * 12 / 10;
    let next = harness.through(lease).await;
    let mut holder = Worker::start(&harness.server.url());
    holder.command(&format!("lock {NAME} 60000"));
    holder.expect_line("held");
    let waiting = join(&next, NAME, 1).await;
    holder.stop();
    let lost = harness.proxy.inject(Fault::drop_push().times(1));
    let operator = harness.beside(LEASE).await;
    let seen = operator.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("held");
    operator.mutex(NAME).revoke(&seen, grace).await.unwrap();
    assert!(operator.close().await.unconfirmed().is_empty());
    lost.wait(1, LONG);
    let guard = granted(grace + look + REVOKED_SLACK, waiting).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// There are more dead waiters than one step examines. The reply to the release says MORE, and the session continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_dead_waiters_before_a_live_one() {
    let harness = Harness::new();
    let (holder, next) = (harness.through(LEASE).await, harness.beside(LEASE).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let mut dead = Worker::start(&harness.server.url());
    (0..100).for_each(|_| dead.command(&format!("lock {NAME} 30000")));
    await_waiters(&next, NAME, 100).await;
    let waiting = join(&next, NAME, 101).await;
    dead.kill();
    wait_until("the server sees that they are gone", LONG, || inboxes(&harness.server) == 2);
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    drop(granted(PROMPT, waiting).await);
    assert!(released.elapsed() < CLAIM, "dead waiters cost no claim");
    assert_eq!(next.mutex(NAME).inspect().await.unwrap().waiters, 0);
    assert!(!harness.calls(Script::Settle).is_empty(), "one step was not enough");
    // The last guard was dropped: its release is in flight.
    let is_plain = || harness.server.command(&["TYPE", KEY]) == Value::Status("string".into());
    wait_until("nothing is left of the queue", PROMPT, is_plain);
}
