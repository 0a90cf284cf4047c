//! Nodes that do not know a lock are filled while it is held, so that all votes are in place at the next failure.

use std::time::Duration;

use leasehold::Released;
use leasehold_testkit::{Quorum, RedisServer, wait_until};

use crate::common::{LONG, NAME, assert_busy, assert_kept, await_no_residue, client, five, five_of, vote, votes};

const LEASE: Duration = Duration::from_millis(1200);

/// Kills two nodes of the majority that voted first. The lock is kept.
async fn two_others_may_die(quorum: &Quorum, guard: leasehold::Guard) {
    wait_until("all nodes have voted", LONG, || votes(quorum.servers(), guard.token()) == 5);
    quorum.server(0).kill();
    quorum.server(1).kill();
    assert_kept(&guard, 2 * LEASE).await;
    let living = &quorum.servers()[2..];
    assert_eq!(votes(living, guard.token()), 3);
    let b = client(&quorum.url(), LEASE).await;
    assert_busy(&b.mutex(NAME)).await;
    let token = guard.token();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    await_no_residue(living, Duration::from_millis(800));
    assert!(b.mutex(NAME).lock().await.unwrap().token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_not_asked() {
    let quorum = five().await;
    let away = &quorum.proxies()[3..];
    away.iter().for_each(|proxy| proxy.refuse_connections());
    let a = client(&quorum.url_by_proxy(), LEASE).await;
    let guard = a.mutex(NAME).lock().await.unwrap();
    assert_eq!(votes(&quorum.servers()[3..], guard.token()), 0);
    away.iter().for_each(|proxy| proxy.accept_connections());
    two_others_may_die(&quorum, guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_down() {
    let quorum = five_of(RedisServer::builder().appendonly("always")).await;
    let down = &quorum.servers()[3..];
    down.iter().for_each(RedisServer::kill);
    let a = client(&quorum.url(), LEASE).await;
    let guard = a.mutex(NAME).lock().await.unwrap();
    down.iter().for_each(RedisServer::restart);
    two_others_may_die(&quorum, guard).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_were_late() {
    let quorum = five().await;
    let a = client(&quorum.url(), LEASE).await;
    let late = &quorum.servers()[3..];
    late.iter().for_each(RedisServer::stop);
    let guard = a.mutex(NAME).lock().await.unwrap();
    assert_eq!(votes(&quorum.servers()[..3], guard.token()), 3);
    late.iter().for_each(RedisServer::cont);
    two_others_may_die(&quorum, guard).await;
}

/// A node in quarantine is not filled: it may have voted for another client, and have forgotten that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_in_quarantine_are_not_filled() {
    let quorum = five().await;
    let a = client(&quorum.url(), LEASE).await;
    let guard = a.mutex(NAME).lock().await.unwrap();
    wait_until("five votes", LONG, || votes(quorum.servers(), guard.token()) == 5);
    quorum.server(4).restart();
    assert_kept(&guard, 2 * LEASE).await;
    assert!(vote(quorum.server(4)).is_none());
}
