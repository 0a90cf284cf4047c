//! What is told of each node.

use std::time::Duration;

use leasehold::NodeSays;
use leasehold_testkit::voters::Mood;
use leasehold_testkit::wait_until;

use crate::bench::{client, voters};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_each_node() {
    let voters = voters(5);
    let client = client(&voters).await;
    let free = client.mutex("a").inspect().await.unwrap();
    assert!(free.nodes.len() == 5 && free.nodes.iter().all(|node| node.says == NodeSays::Free), "{free:?}");
    let guard = client.mutex("a").lock().await.unwrap();
    wait_until("all have voted", SOON, || crate::bench::granted(&voters, "a") == 5);
    voters.nodes[1].be(Mood::Dead);
    voters.nodes[4].flush();
    let seen = client.mutex("a").inspect().await.unwrap();
    let holder = seen.holder.clone().expect("three of five say so");
    assert_eq!(holder.token, guard.token());
    let kinds: Vec<&str> = seen
        .nodes
        .iter()
        .map(|node| match &node.says {
            NodeSays::Voted(voted) if (voted.id(), voted.token) == (holder.id(), holder.token) => "it",
            NodeSays::Voted(_) => "another",
            NodeSays::Free => "free",
            NodeSays::Resting { .. } => "rests",
            NodeSays::Nothing { .. } => "nothing",
            _ => "?",
        })
        .collect();
    assert_eq!(kinds, ["it", "nothing", "it", "it", "free"], "{seen:?}");
    let NodeSays::Nothing { why } = &seen.nodes[1].says else { panic!("{seen:?}") };
    assert!(!why.is_empty());
}
