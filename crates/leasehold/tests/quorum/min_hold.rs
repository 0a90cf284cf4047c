//! A minimum hold on nodes: a majority keeps other clients out (P23).

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Released};

use crate::common::{
    LONG, MAX_LEASE, NAME, PROMPT, assert_busy, await_full_set, client, client_at_all, five, granted, join,
};

const HOLD: Duration = Duration::from_secs(3);

/// The client that released is gone, and so is a minority of the nodes. A waiter is served after the minimum hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_minority_that_dies_does_not_end_a_cool_down() {
    let quorum = five().await;
    let a = client_at_all(&quorum.url(), MAX_LEASE, quorum.servers()).await;
    let b = client(&quorum.url(), MAX_LEASE).await;
    let guard = a.mutex(NAME).min_hold(HOLD).lock().await.unwrap();
    let held = Instant::now();
    await_full_set(quorum.servers(), guard.token());
    let waiting = join(&b, quorum.servers()).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(a.close().await.unconfirmed().is_empty());
    quorum.server(0).kill();
    quorum.server(1).kill();
    assert_busy(&b.mutex(NAME)).await;
    let next = granted(HOLD + PROMPT, waiting).await;
    assert!(held.elapsed() >= HOLD, "{:?} after the grant", held.elapsed());
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

/// Two nodes are unreachable during the release. They receive it when they are back, or the vote ends with the lease. A
/// majority keeps other clients out anyway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_cool_down_at_a_majority_is_enough() {
    let quorum = five().await;
    let a = client_at_all(&quorum.url(), MAX_LEASE, quorum.servers()).await;
    let b = client(&quorum.url(), MAX_LEASE).await;
    let guard = a.mutex(NAME).lease(Duration::from_secs(1)).min_hold(HOLD).lock().await.unwrap();
    let held = Instant::now();
    await_full_set(quorum.servers(), guard.token());
    quorum.server(3).kill();
    quorum.server(4).kill();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    // Longer than the lease.
    while held.elapsed() < HOLD - Duration::from_millis(500) {
        assert_busy(&b.mutex(NAME)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let next = tokio::time::timeout(LONG, b.mutex(NAME).lock()).await.expect("it is over").unwrap();
    assert!(held.elapsed() >= HOLD, "{:?} after the grant", held.elapsed());
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

/// A node that forgets a cool-down abstains for the longest lease. So no cool-down may be longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_minimum_hold_beyond_the_longest_lease_is_invalid() {
    let quorum = five().await;
    let client = client(&quorum.url(), MAX_LEASE).await;
    let error = client.mutex(NAME).min_hold(MAX_LEASE + PROMPT).lock().await.expect_err("it is too long");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let said = error.to_string();
    assert!(said.contains("min_hold needs a lease of its length") && said.contains("set max_lease"), "{said}");
}
