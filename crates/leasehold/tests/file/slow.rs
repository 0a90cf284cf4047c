//! A world in which time goes slowly: a client does everything that depends on time much later.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::seam::{Pending, Real, World, choose};
use leasehold_testkit::forward::{Forward, ForwardWorld};

/// How many times slower.
const SLOWER: u32 = 20;

/// Returns a client whose own re-checks are due after 80 s instead of 4 s (P15), or after 20 s for the end of a claim
/// (P7). If it reacts earlier, it got a message. For the store its leases have the usual length, and it renews them too
/// late.
pub(crate) async fn client(url: &str) -> Leasehold {
    let store = choose(url, None, &Real::world()).unwrap();
    let begun_us = Real.now_us();
    Leasehold::builder(url).connect_to(store, Arc::new(Forward(Slow { begun_us }))).await.unwrap()
}

struct Slow {
    begun_us: u64,
}

impl ForwardWorld for Slow {
    fn now_us(&self) -> u64 {
        self.begun_us + (Real.now_us() - self.begun_us) / u64::from(SLOWER)
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        Real.sleep(duration * SLOWER)
    }
}
