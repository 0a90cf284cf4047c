//! The status of each node, in errors and for operators.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::seam::Real;
use leasehold::{ErrorKind, Leasehold, NodeSays};
use leasehold_testkit::voters::{Mood, Voters};
use leasehold_testkit::{Quorum, wait_until};

use crate::played::{MAX_LEASE_MS, client, voters};
use crate::shy::Shy;

const SOON: Duration = Duration::from_secs(10);

/// Real nodes that were not initialized are in quarantine, whatever other requests they have answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_in_quarantine_is_not_shown_as_voting() {
    let quorum = Quorum::builder(3).max_lease(Duration::from_secs(60)).start();
    let client = Leasehold::connect(&quorum.url()).await.expect("the nodes are up, in quarantine");
    let mutex = client.mutex("a");
    for _ in 0..3 {
        let error = mutex.try_lock().await.expect_err("all nodes are in quarantine");
        assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
        let said = error.to_string();
        assert!(said.contains("0 of 3 nodes vote") && said.matches("is in quarantine for").count() == 3, "{said}");
        // Nodes in quarantine answer releases and inspections.
        let seen = mutex.inspect().await.expect("they look");
        assert_eq!(seen.holder(), None);
        for (node, server) in seen.nodes.iter().zip(quorum.servers()) {
            assert_eq!(node.at, format!("127.0.0.1:{}", server.port()));
            let NodeSays::Resting { left } = &node.says else { panic!("{node:?}") };
            assert!((40..=60).contains(&left.as_secs()), "{left:?}");
        }
        assert_eq!(seen.nodes.len(), 3);
        // Nodes without a record do not show that there is no holder.
        let error = client.names().await.expect_err("all nodes are in quarantine");
        assert!(error.kind() == ErrorKind::Quorum && error.to_string().contains("0 of 3 nodes vote"), "{error}");
    }
    leasehold::quorum::begin(&quorum.url()).await.expect("all nodes are up");
    let guard = client.mutex("a").lock().await.expect("they vote");
    assert_eq!(client.names().await.expect("they vote"), ["a"]);
    assert!(guard.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inspect_shows_each_node() {
    let voters = voters(5);
    let client = client(&voters).await;
    let free = client.mutex("a").inspect().await.unwrap();
    assert!(free.nodes.len() == 5 && free.nodes.iter().all(|node| node.says == NodeSays::Free), "{free:?}");
    let guard = client.mutex("a").lock().await.unwrap();
    wait_until("all have voted", SOON, || crate::played::granted(&voters, "a") == 5);
    voters.nodes[1].be(Mood::Dead);
    voters.nodes[4].flush();
    let seen = client.mutex("a").inspect().await.unwrap();
    let holder = seen.holder().cloned().expect("three of five nodes show it");
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

/// The connections to most nodes broke a moment ago, and the client has not noticed. An empty list from these connections
/// does not show that there are no names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_list_of_names_is_made_of_broken_connections() {
    let world = Real::world();
    let voters = Voters::new(3, MAX_LEASE_MS, Arc::clone(&world));
    let (nodes, store) = Shy::each(&voters, Arc::clone(&world));
    let client = Leasehold::builder("quorum:").connect_to(store, world).await.unwrap();
    let _held = client.mutex("held").lock().await.unwrap();
    assert_eq!(client.names().await.unwrap(), ["held"]);
    for broken in 1..=3 {
        nodes.iter().take(broken).for_each(|node| node.break_links(true));
        match client.names().await {
            Ok(names) => assert_eq!((names.as_slice(), broken), (["held".to_owned()].as_slice(), 1)),
            Err(error) => assert_eq!((error.kind(), broken > 1), (ErrorKind::Quorum, true), "{error}"),
        }
        nodes.iter().for_each(|node| node.break_links(false));
        let begun = Instant::now();
        while client.names().await.ok().is_none_or(|names| names != ["held"]) {
            assert!(begun.elapsed() < SOON, "the nodes are connected");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}
