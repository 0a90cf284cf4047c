//! Killed servers, and killed holders.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Released, Revoked};
use leasehold_testkit::history::Fenced;
use leasehold_testkit::voters::Mood;
use leasehold_testkit::{RedisServer, Registers, boottime_us, wait_until};

use crate::child::Worker;
use crate::common::{
    LONG, MAX_LEASE, NAME, PROMPT, REVOKED_SLACK, TAKEOVER_SLACK, assert_kept, assert_names, await_end_before,
    await_no_residue, client, client_at_all, five, five_of, granted, join, vote, votes, wall_us, within,
};
use crate::played;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_renewed_over_a_minority_that_dies() {
    let (quorum, lease) = (five().await, Duration::from_millis(1500));
    let (a, b) = (client(&quorum.url(), lease).await, client(&quorum.url(), lease).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let living = &quorum.servers()[2..];
    let waiting = join(&b, living).await;
    let end_us = vote(&living[0]).expect("held").end_us;
    quorum.server(0).kill();
    quorum.server(1).kill();
    assert_kept(&guard, 2 * lease).await;
    assert!(!waiting.is_finished());
    assert!(living.iter().all(|server| vote(server).expect("held").end_us > end_us), "renewed at the remaining nodes");
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let next = granted(PROMPT, waiting).await;
    assert!(next.token() > token);
    assert_eq!(next.release().await.unwrap(), Released::Released);
    await_no_residue(living, PROMPT);
}

/// The lease is fixed, so its ends at the servers are known and do not move.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_is_not_lost_until_the_validity_ends() {
    let (quorum, lease) = (five().await, Duration::from_millis(1500));
    // Without a renewal no node is filled.
    let a = client_at_all(&quorum.url(), lease, quorum.servers()).await;
    let guard = a.mutex(NAME).fixed_lease(lease).lock().await.unwrap();
    wait_until("five votes", LONG, || votes(quorum.servers(), guard.token()) == 5);
    let mut ends: Vec<u64> = quorum.servers().iter().map(|server| vote(server).expect("held").end_us).collect();
    ends.sort_unstable();
    for server in &quorum.servers()[..3] {
        server.kill();
    }
    let error = a.mutex("other").try_lock().await.expect_err("two of five are no majority");
    assert_eq!(error.kind(), ErrorKind::Quorum);
    assert_names(&error.to_string(), &quorum.servers()[..3], "");
    assert!(guard.check().is_ok(), "the result is unknown, and the lease has not ended");
    // As soon as three votes have ended another client may hold the lock, so the third end counts.
    await_end_before(&guard, ends[2], wall_us);
    assert!(within(LONG, "the loss", guard.lost()).await.reason().is_expiry());
    assert!(!guard.is_valid() && guard.remaining() == Duration::ZERO);
}

/// The same for a renewed lease, on simulated nodes: the test can read the record of a dead node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_cannot_be_renewed_ends_before_it_ends_at_a_majority() {
    let voters = played::voters(5);
    let holder = played::client(&voters).await;
    let guard = holder.mutex(NAME).lease(Duration::from_millis(900)).lock().await.unwrap();
    let since = |node: usize| voters.nodes[node].record(NAME).grant.map(|grant| grant.since_us);
    wait_until("five votes", LONG, || played::granted(&voters, NAME) == 5);
    let first = since(0);
    wait_until("a renewal", LONG, || since(0) > first);
    voters.nodes[..3].iter().for_each(|node| node.be(Mood::Dead));
    assert!(guard.check().is_ok());
    // Two nodes are left and renew the lease, which is no majority: the third-largest end is that of a dead node.
    let mut ends: Vec<u64> =
        voters.nodes[..3].iter().map(|node| node.record(NAME).grant.expect("held").end_us()).collect();
    ends.sort_unstable();
    await_end_before(&guard, ends[2], || voters.nodes[0].clock_us());
    assert!(within(LONG, "the loss", guard.lost()).await.reason().is_expiry());
    let renewed = &voters.nodes[4].record(NAME).grant;
    assert!(
        renewed.as_ref().is_none_or(|grant| grant.end_us() > ends[2]),
        "otherwise the test shows nothing: {renewed:?}"
    );
}

/// Nodes that save everything forget nothing: they vote as soon as they are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_come_back_go_on_with_holder_and_waiter() {
    let quorum = five_of(RedisServer::builder().appendonly("always")).await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    let dying = &quorum.servers()[..3];
    dying.iter().for_each(RedisServer::kill);
    let error = b.mutex(NAME).try_lock().await.expect_err("two of five are no majority");
    assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
    dying.iter().for_each(RedisServer::restart);
    assert!(guard.check().is_ok());
    let token = guard.token();
    let freed = within(LONG, "the release", guard.release()).await.unwrap();
    assert_eq!(freed, Released::Released);
    let next = granted(LONG, waiting).await;
    assert!(next.token() > token);
    assert_eq!(next.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), LONG);
}

/// The lease ends by its time alone, and then the waiters go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_when_a_majority_is_back_after_the_lease() {
    let quorum = five_of(RedisServer::builder().appendonly("always")).await;
    let lease = Duration::from_millis(900);
    let (a, b) = (client(&quorum.url(), lease).await, client(&quorum.url(), lease).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    quorum.servers()[..3].iter().for_each(RedisServer::kill);
    assert!(within(LONG, "the end", guard.lost()).await.reason().is_expiry());
    assert!(!waiting.is_finished(), "two of five are no majority");
    quorum.servers()[..3].iter().for_each(RedisServer::restart);
    let next = granted(LONG, waiting).await;
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    assert_kept(&next, lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows_a_killed_holder_with_and_without_a_minority() {
    let cases = [0, 2].map(|dead| tokio::spawn(kill_a_holder(dead)));
    for case in cases {
        case.await.unwrap();
    }
}

async fn kill_a_holder(dead: usize) {
    let (quorum, lease) = (five().await, Duration::from_millis(1500));
    let next = client(&quorum.url(), lease).await;
    let mut holder = Worker::start(&quorum.url());
    holder.command(&format!("lock {NAME} {}", lease.as_millis()));
    let token: u64 = holder.expect_line("held").parse().unwrap();
    wait_until("five votes", LONG, || quorum.servers().iter().all(|server| vote(server).is_some()));
    quorum.servers()[..dead].iter().for_each(RedisServer::kill);
    let living = &quorum.servers()[dead..];
    let waiting = join(&next, living).await;
    holder.kill();
    let killed = Instant::now();
    let mut ends: Vec<u64> = living.iter().map(|server| vote(server).expect("held").end_us).collect();
    ends.sort_unstable();
    let guard = granted(lease + TAKEOVER_SLACK, waiting).await;
    let (at_us, took) = (wall_us(), killed.elapsed());
    assert!(at_us >= ends[2], "no client holds before a majority is free: {ends:?}");
    assert!(took <= lease + TAKEOVER_SLACK, "{took:?}");
    println!("{dead} dead: taken over {:?} after a majority was free", Duration::from_micros(at_us - ends[2]));
    assert!(guard.token().get() > token);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows_a_stopped_holder_that_was_revoked_with_and_without_a_minority() {
    let cases = [0, 2].map(|dead| tokio::spawn(revoke_a_stopped_holder(dead)));
    for case in cases {
        case.await.unwrap();
    }
}

/// The holder receives nothing, and the revoking client is gone. Each node notifies the waiter, long before its own
/// re-check (2.6 s at the earliest).
async fn revoke_a_stopped_holder(dead: usize) {
    let (quorum, grace) = (five().await, Duration::from_secs(1));
    let next = client(&quorum.url(), MAX_LEASE).await;
    let mut holder = Worker::start(&quorum.url());
    holder.command(&format!("lock {NAME} {}", MAX_LEASE.as_millis()));
    let token: u64 = holder.expect_line("held").parse().unwrap();
    wait_until("five votes", LONG, || quorum.servers().iter().all(|server| vote(server).is_some()));
    quorum.servers()[..dead].iter().for_each(RedisServer::kill);
    let waiting = join(&next, &quorum.servers()[dead..]).await;
    holder.stop();
    let operator = client(&quorum.url(), MAX_LEASE).await;
    let seen = operator.mutex(NAME).inspect().await.unwrap().holder().cloned().expect("held");
    let revoked = Instant::now();
    let answer = operator.mutex(NAME).revoke(&seen, grace).await.unwrap();
    assert!(matches!(answer, Revoked::Within(left) if left <= grace), "{answer:?}");
    operator.close().await;
    let guard = granted(grace + REVOKED_SLACK, waiting).await;
    let took = revoked.elapsed();
    assert!((grace..=grace + REVOKED_SLACK).contains(&took), "{took:?}");
    println!("{dead} dead: served {took:?} after the revocation");
    assert!(guard.token().get() > token);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// The holder wakes up after the end of its lease: its first check reports the loss, and its token is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_follows_a_stopped_holder_and_fences_it() {
    let (quorum, shelves, lease) = (five().await, RedisServer::start(), Duration::from_secs(1));
    let next = client(&quorum.url(), lease).await;
    let mut holder = Worker::start(&quorum.url());
    holder.command(&format!("lock {NAME} {}", lease.as_millis()));
    let token: u64 = holder.expect_line("held").parse().unwrap();
    holder.command(&format!("spin {token}"));
    holder.expect_line("spinning");
    let waiting = join(&next, quorum.servers()).await;
    holder.stop();
    let stopped_us = boottime_us();
    let guard = granted(lease + TAKEOVER_SLACK, waiting).await;
    assert!(guard.token().get() > token);
    let write = Registers::at(shelves.port()).write_fenced("shelf", guard.token().get());
    assert!(matches!(write, Fenced::Accepted(_)), "{write:?}");
    // The message is sent while the process is stopped: the process handles it first.
    holder.command(&format!("check {token}"));
    holder.command(&format!("write {} {token}", shelves.port()));
    holder.cont();
    let last_us: u64 = holder.expect_line("ended").parse().unwrap();
    assert!(last_us <= stopped_us, "the first check after the stop succeeded");
    let lost = holder.expect_line("lost");
    assert!(lost.starts_with(&format!("{NAME} Stopped ")), "the nodes did not cause the loss: {lost}");
    assert_eq!(holder.expect_line("refused"), "");
    holder.command(&format!("release {token}"));
    assert_eq!(holder.expect_line("released"), "Ok(NotHeld)");
    assert_kept(&guard, lease).await;
}
