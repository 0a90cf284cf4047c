//! A blocking client.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::blocking::{Guard, Leasehold};
use leasehold::seam::World;
use leasehold::{ErrorKind, LostReason};
use leasehold_spec::{Answer, Contention, Op, Outcome, Rest};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::harness::{Altered, Harness, MS, token};
use crate::store::Opener;

const SOON: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(3_600);

/// There is no lane even if a runtime is available, as here: the thread that would drive the lane is the one that
/// blocks.
#[tokio::test]
async fn a_client_for_threads_has_no_lane_and_is_not_for_a_forked_child() {
    let (store, mut requests) = Harness::store(0);
    let (world, shop) = (Altered::world(), Arc::new(Opener(Arc::clone(&store))));
    let process = Arc::clone(&world);
    let builder = Leasehold::builder("");
    let client = spawn_blocking(|| builder.connect_to(shop, world as Arc<dyn World>)).await.unwrap().unwrap();
    let mutex = client.mutex("name").reentrant();
    let locking = spawn_blocking({
        let mutex = mutex.clone();
        move || mutex.lock()
    });
    let request = timeout(SOON, requests.recv()).await.expect("a request").unwrap();
    assert!(matches!(request.op, Op::Acquire(_)), "{:?}", request.op);
    let granted = Answer {
        now_us: store.server_us(),
        highest: token(7),
        contention: Contention::None,
        rest: Rest::Done,
        handed_claim_ms: None,
        outcome: Outcome::Granted { token: token(7), left_us: 30_000 * MS, range: 1 },
    };
    assert!(request.reply.send(Ok(granted)).is_ok());
    let guard: Guard = locking.await.unwrap().unwrap();
    assert_eq!(store.links().len(), 1, "the session's own");

    process.process.fetch_add(1, Ordering::SeqCst);
    let child = spawn_blocking(move || {
        assert_eq!(
            guard.wait_lost(LONG).map(|lost| lost.reason()),
            Some(LostReason::Closed),
            "no thread of the child would ever report it"
        );
        assert_eq!(mutex.lock().unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(mutex.try_lock_for(LONG).unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(client.close().unconfirmed().is_empty(), "only the parent gives it back");
        guard
    });
    let guard = timeout(SOON, child).await.expect("no call of the child waits").unwrap();
    process.process.fetch_sub(1, Ordering::SeqCst);
    assert!(guard.is_valid(), "closed in the child alone");
    assert!(requests.try_recv().is_err(), "nothing was sent");
}
