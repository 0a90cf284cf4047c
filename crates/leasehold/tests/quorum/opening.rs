//! Nodes that accept connections and then do not reply, and connections that must be closed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::seam::Real;
use leasehold_spec::SessionId;
use leasehold_testkit::voters::Mood;
use leasehold_testkit::wait_until;
use tokio::time::timeout;

use crate::played::voters;
use crate::shy::{Hasty, Shy, Silent};

const SOON: Duration = Duration::from_secs(5);

/// Each step of a connection has a bound: the ping and the inbox, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_greets_and_says_nothing_is_given_up_and_tried_again() {
    for silent in [Silent::Ping, Silent::Attach] {
        let voters = voters(3);
        let (nodes, store) = Shy::each(&voters, Hasty::world());
        nodes[1].be(silent);
        let link = timeout(SOON, store.open()).await.expect("two of three nodes are up").unwrap();
        timeout(SOON, link.attach(SessionId(7), Arc::new(|_| {}))).await.expect("two of three nodes attach").unwrap();
        wait_until(&format!("{silent:?}: it is opened anew"), SOON, || nodes[1].opened() >= 2);
        assert!(nodes[1].closed() >= 1, "{silent:?}: the first link is closed");
        nodes[1].be(Silent::Never);
        let (opened, closed) = (|| nodes[1].opened(), || nodes[1].closed());
        wait_until(&format!("{silent:?}: it is taken in"), SOON, || opened() == closed() + 1);
        link.close();
        wait_until(&format!("{silent:?}: all are closed"), SOON, || {
            nodes.iter().all(|node| node.opened() == node.closed())
        });
    }
}

/// With a bare majority a lock has no spare vote. If some of these nodes are in quarantine, the holder of a lock is
/// unknown.
#[tokio::test]
async fn connect_waits_a_moment_for_nodes_beyond_a_majority() {
    let voters = voters(5);
    let (nodes, store) = Shy::each(&voters, Real::world());
    let late = || voters.nodes[3..].iter();
    late().for_each(|node| node.be(Mood::Stopped));
    let opening = async {
        let link = timeout(SOON, store.open()).await.expect("three of five nodes are up").unwrap();
        (link, nodes.iter().map(|node| node.opened()).sum::<usize>())
    };
    // The first poll connects three nodes. The others follow.
    let ((link, opened), ()) = tokio::join!(opening, async { late().for_each(|node| node.be(Mood::Answers)) });
    assert_eq!(opened, 5);
    link.close();
}

/// The connectors of a link need no timer of others, and end with the link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_link_leaves_no_task() {
    let voters = voters(3);
    let (world, tasks) = Hasty::counting();
    let (nodes, store) = Shy::each(&voters, world);
    voters.nodes[1].be(Mood::Dead);
    // A second link has no inbox, so it has no keeper of timers.
    let link = timeout(SOON, store.open()).await.expect("two of three nodes are up").unwrap();
    wait_until("the connector tries again and again", SOON, || nodes[1].tried() >= 3);
    voters.nodes[1].be(Mood::Answers);
    wait_until("it is connected again", SOON, || nodes[1].opened() == 1);
    voters.nodes[1].be(Mood::Dead);
    assert!(tasks.load(Ordering::SeqCst) >= 3, "one task for each node");
    drop(link);
    wait_until("the tasks have ended", SOON, || tasks.load(Ordering::SeqCst) == 0);
    assert!(nodes.iter().all(|node| node.opened() == node.closed()));
}

/// The future of a connecting client is dropped while its nodes are silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_connect_closes_its_connections() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Real::world());
    nodes.iter().for_each(|node| node.be(Silent::Ping));
    let opened = timeout(Duration::from_millis(20), store.open()).await;
    assert!(opened.is_err(), "no node answers");
    for node in nodes {
        assert_eq!((node.opened(), node.closed()), (1, 1));
    }
}
