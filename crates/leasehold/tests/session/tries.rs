//! Calls that only try beside waiters of their own client, and the bound for ghosts.

use std::time::Duration;

use leasehold_spec::{Op, Outcome};
use tokio::time::timeout;

use super::harness::{Harness, MS, release_guard, token};

/// A waiter of this client has asked the store, and has no reply yet. A call that only tries does not overtake it.
#[tokio::test]
async fn p21_a_try_beside_a_waiter_of_its_client_asks_nobody() {
    let mut harness = Harness::new().await;
    let waiting = harness.lock(30_000);
    let (_unanswered, _) = harness.next_acquire().await;
    let mutex = harness.leasehold.mutex("name").lease(Duration::from_secs(30));
    let tried = timeout(Duration::from_secs(10), mutex.try_lock()).await.expect("at once");
    assert!(tried.unwrap().is_none());
    harness.expect_no_request();
    waiting.abort();
}

/// A client with very many leases returns a grant that it gave up, like every other client.
#[tokio::test]
async fn p14_a_client_of_ten_thousand_leases_returns_a_ghost() {
    const LEASES: u64 = 10_001;
    let mut harness = Harness::new().await;
    let mut held = Vec::new();
    for number in 0..LEASES {
        held.push(harness.locked_as(&format!("lease {number}"), 3_600_000, 7).await);
    }
    let locking = harness.lock(30_000);
    let (request, acquire) = harness.next_acquire().await;
    harness.reply(request, Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 }, 7);
    let guard = locking.await.unwrap().unwrap();
    let releasing = tokio::spawn(release_guard(guard));
    let release = harness.next().await;
    assert!(matches!(release.op, Op::Release { id, .. } if id == acquire.id), "{:?}", release.op);
    harness.reply(release, Outcome::Released, 7);
    releasing.await.unwrap();
    harness.push(acquire.id, 8, harness.store.server_us(), 1_000 * MS);
    let ghost = timeout(Duration::from_secs(10), harness.next()).await.expect("the ghost is returned");
    assert!(matches!(ghost.op, Op::Leave { id, .. } if id == acquire.id), "{:?}", ghost.op);
}
