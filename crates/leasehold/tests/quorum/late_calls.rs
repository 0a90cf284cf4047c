//! Late calls: a node has called a waiter, and the call arrives after the waiter was granted and ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::seam::Real;
use leasehold::{Guard, Leasehold, Released};
use leasehold_spec::Contention;
use leasehold_spec::node::{Bell, Rings};
use leasehold_testkit::voters::Voters;
use leasehold_testkit::wait_until;

use crate::played::{client, granted, voters};
use crate::shy::Shy;

const SOON: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_secs(5);
const HOLD: Duration = Duration::from_secs(1);

struct Late {
    voters: Voters,
    nodes: Vec<Arc<Shy>>,
    client: Leasehold,
}

impl Late {
    async fn new() -> Self {
        let voters = voters(3);
        let (nodes, store) = Shy::each(&voters, Real::world());
        let client = Leasehold::builder("").lease(LEASE).connect_to(store, Real::world()).await.unwrap();
        Self { voters, nodes, client }
    }

    /// Releases the lock. The calls of all nodes arrive between the end of the lease in the client and its release at the
    /// nodes, and `meanwhile` runs after them. Returns the result of the release.
    async fn release<Work: Future>(&self, guard: Guard, meanwhile: impl FnOnce() -> Work) -> Released {
        let attempt = self.voters.nodes[0].record("a").grant.expect("it is held").id;
        self.nodes.iter().for_each(|node| node.hesitate(true));
        let releasing = tokio::spawn(guard.release());
        wait_until("the release is on its way", SOON, || self.nodes.iter().all(|node| node.delays()));
        for (node, voter) in self.nodes.iter().zip(&self.voters.nodes) {
            node.hesitate_no_more();
            let highest = voter.record("a").highest;
            let (to, contention) = (attempt.session, Contention::None);
            node.ring("a", Bell { to, now_us: 0, highest, contention, id: attempt, rings: Rings::Call });
        }
        meanwhile().await;
        self.nodes.iter().for_each(|node| node.hesitate(false));
        releasing.await.unwrap().unwrap()
    }
}

/// The client must not give the votes back before its release does: another client would hold and release meanwhile, and
/// the release would find nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_call_does_not_make_a_release_look_like_a_loss() {
    let late = Late::new().await;
    let guard = late.client.mutex("a").lock().await.unwrap();
    wait_until("all have voted", SOON, || granted(&late.voters, "a") == 3);
    let b = client(&late.voters).await;
    let released = late
        .release(guard, async || {
            if let Ok(Some(guard)) = b.mutex("a").try_lock().await {
                assert_eq!(guard.release().await.unwrap(), Released::Released);
            }
        })
        .await;
    assert_eq!(released, Released::Released);
    wait_until("no vote stays", SOON, || granted(&late.voters, "a") == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_late_call_does_not_end_a_minimum_hold() {
    let late = Late::new().await;
    let guard = late.client.mutex("a").min_hold(HOLD).lock().await.unwrap();
    let held = Instant::now();
    wait_until("all have voted", SOON, || granted(&late.voters, "a") == 3);
    assert_eq!(late.release(guard, async || {}).await, Released::Released);
    let b = client(&late.voters).await;
    let next = tokio::time::timeout(SOON, b.mutex("a").lock()).await.expect("the cool-down ends").unwrap();
    assert!(held.elapsed() >= HOLD, "{:?} after the grant", held.elapsed());
    assert_eq!(next.release().await.unwrap(), Released::Released);
}
