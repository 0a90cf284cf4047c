//! Shared by the tests on simulated nodes. The tests on real servers have `common.rs`.

use std::time::Duration;

use leasehold::Leasehold;
use leasehold::seam::Real;
use leasehold_testkit::voters::Voters;

pub(crate) const MAX_LEASE_MS: u64 = 10_000;

pub(crate) fn voters(count: usize) -> Voters {
    Voters::new(count, MAX_LEASE_MS, Real::world())
}

pub(crate) async fn client(voters: &Voters) -> Leasehold {
    let builder = Leasehold::builder("").lease(Duration::from_secs(5));
    builder.connect_to(voters.store(), Real::world()).await.expect("a majority is up")
}

/// Returns how many nodes have voted.
pub(crate) fn granted(voters: &Voters, name: &str) -> usize {
    voters.nodes.iter().filter(|node| node.record(name).grant.is_some()).count()
}
