//! Stopped servers: their connections are open, and they do not reply.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Released};
use leasehold_testkit::{RedisServer, wait_until};

use crate::common::{
    LONG, MAX_LEASE, NAME, PROMPT, assert_kept, assert_names, await_no_residue, client, client_at_all, five, granted,
    join, votes, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_minority_does_not_delay() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let (still, others) = quorum.servers().split_at(2);
    still.iter().for_each(RedisServer::stop);
    let mut token = None;
    for _ in 0..5 {
        let guard = within(PROMPT, "the lock", a.mutex(NAME).lock()).await.unwrap();
        let waiting = join(&b, others).await;
        assert!(Some(guard.token()) > token);
        let freed = within(PROMPT, "the release", guard.release()).await.unwrap();
        assert_eq!(freed, Released::Released);
        let next = granted(PROMPT, waiting).await;
        token = Some(next.token());
        assert_eq!(within(PROMPT, "the release", next.release()).await.unwrap(), Released::Released);
    }
    let late = within(PROMPT, "a new client", client(&quorum.url(), MAX_LEASE)).await;
    let guard = within(PROMPT, "its lock", late.mutex(NAME).lock()).await.unwrap();
    assert!(Some(guard.token()) > token);
    // Requests that they received meanwhile are carried out late, or not at all.
    still.iter().for_each(RedisServer::cont);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_majority_is_named_and_keeps_no_votes() {
    let quorum = five().await;
    let a = client_at_all(&quorum.url(), MAX_LEASE, quorum.servers()).await;
    let still = &quorum.servers()[..3];
    still.iter().for_each(RedisServer::stop);
    let begun = Instant::now();
    let error = within(LONG, "an answer", a.mutex(NAME).try_lock()).await.expect_err("two are no majority");
    println!("after {:?}: {error}", begun.elapsed());
    assert_eq!(error.kind(), ErrorKind::Quorum);
    assert!(error.may_have_acted() && error.is_retryable(), "{error:?}");
    assert_names(&error.to_string(), still, "does not reply");
    assert!(error.to_string().contains("thousands of calls"), "the client may be the slow part: {error}");
    let error = within(LONG, "an answer", a.mutex(NAME).inspect()).await.expect_err("two are no majority");
    assert_names(&error.to_string(), still, "");
    still.iter().for_each(RedisServer::cont);
    await_no_residue(quorum.servers(), Duration::from_secs(5));
    let guard = within(LONG, "the lock", a.mutex(NAME).lock()).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

/// A waiter with a long timeout outlasts the stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_outlasts_a_stopped_majority() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    let still = &quorum.servers()[..3];
    still.iter().for_each(RedisServer::stop);
    let token = guard.token();
    let freeing = tokio::spawn(guard.release());
    wait_until("two nodes have received it", LONG, || votes(&quorum.servers()[3..], token) == 0);
    assert!(!waiting.is_finished(), "two of five are no majority");
    still.iter().for_each(RedisServer::cont);
    let freed = within(LONG, "the release", freeing).await.unwrap().unwrap();
    assert_eq!(freed, Released::Released);
    let next = granted(LONG, waiting).await;
    assert!(next.token() > token);
    assert_eq!(next.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}

/// The nodes vote late, or at the next renewal, and give the votes back at the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_go_on_during_a_hold_vote_for_it_and_keep_nothing() {
    let (quorum, lease) = (five().await, Duration::from_millis(1200));
    let a = client(&quorum.url(), lease).await;
    let still = &quorum.servers()[..2];
    still.iter().for_each(RedisServer::stop);
    let guard = a.mutex(NAME).lock().await.unwrap();
    assert_eq!(votes(&quorum.servers()[2..], guard.token()), 3);
    still.iter().for_each(RedisServer::cont);
    wait_until("all five vote for it", LONG, || votes(quorum.servers(), guard.token()) == 5);
    assert_kept(&guard, lease).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_millis(800));
}

/// The stop is longer than a lease: the holder keeps the other votes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_renewed_over_a_stopped_minority() {
    let (quorum, lease) = (five().await, Duration::from_millis(900));
    let (a, b) = (client(&quorum.url(), lease).await, client(&quorum.url(), lease).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    let (still, others) = quorum.servers().split_at(2);
    still.iter().for_each(RedisServer::stop);
    assert_kept(&guard, 2 * lease).await;
    still.iter().for_each(RedisServer::cont);
    assert_kept(&guard, lease).await;
    assert_eq!(votes(others, guard.token()), 3);
    assert!(!waiting.is_finished());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let next = granted(LONG, waiting).await;
    assert_eq!(next.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), Duration::from_secs(5));
}
