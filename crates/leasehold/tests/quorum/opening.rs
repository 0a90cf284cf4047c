//! Connections to nodes that take them, and then say nothing; and who closes what nobody wants any more.

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

/// Everything that a try waits for has an end: the ping and the inbox as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_greets_and_says_nothing_is_given_up_and_tried_again() {
    for silent in [Silent::Ping, Silent::Attach] {
        let voters = voters(3);
        let (nodes, store) = Shy::each(&voters, Hasty::world());
        nodes[1].be(silent);
        let link = timeout(SOON, store.open()).await.expect("two of three are there").unwrap();
        timeout(SOON, link.attach(SessionId(7), Arc::new(|_| {}))).await.expect("two of three attach").unwrap();
        wait_until(&format!("{silent:?}: it is opened anew"), SOON, || nodes[1].opened() >= 2);
        assert!(nodes[1].closed() >= 1, "{silent:?}: nobody wants the first one");
        nodes[1].be(Silent::Never);
        let (opened, closed) = (|| nodes[1].opened(), || nodes[1].closed());
        wait_until(&format!("{silent:?}: it is taken in"), SOON, || opened() == closed() + 1);
        link.close();
        wait_until(&format!("{silent:?}: all are closed"), SOON, || {
            nodes.iter().all(|node| node.opened() == node.closed())
        });
    }
}

/// With a bare majority, some of which rest, nobody could say who holds a lock; and a lock had no vote to spare.
#[tokio::test]
async fn nodes_that_are_a_moment_behind_the_majority_are_waited_for() {
    let voters = voters(5);
    let (nodes, store) = Shy::each(&voters, Real::world());
    let late = || voters.nodes[3..].iter();
    late().for_each(|node| node.be(Mood::Stopped));
    let opening = async {
        let link = timeout(SOON, store.open()).await.expect("three of five are there").unwrap();
        (link, nodes.iter().map(|node| node.opened()).sum::<usize>())
    };
    // The first poll of the one connects three; then come the others.
    let ((link, opened), ()) = tokio::join!(opening, async { late().for_each(|node| node.be(Mood::Answers)) });
    assert_eq!(opened, 5);
    link.close();
}

/// Whoever keeps the nodes of a link connected needs nobody else's time, and ends with the link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_left_of_a_link_that_is_dropped() {
    let voters = voters(3);
    let (world, tasks) = Hasty::counting();
    let (nodes, store) = Shy::each(&voters, world);
    voters.nodes[1].be(Mood::Dead);
    // A second connection's: no inbox is attached to it, with which somebody would keep the time of rounds.
    let link = timeout(SOON, store.open()).await.expect("two of three are there").unwrap();
    wait_until("it is tried again and again", SOON, || nodes[1].tried() >= 3);
    voters.nodes[1].be(Mood::Answers);
    wait_until("it is connected again", SOON, || nodes[1].opened() == 1);
    voters.nodes[1].be(Mood::Dead);
    assert!(tasks.load(Ordering::SeqCst) >= 3, "one for each node");
    drop(link);
    wait_until("they have ended", SOON, || tasks.load(Ordering::SeqCst) == 0);
    assert!(nodes.iter().all(|node| node.opened() == node.closed()));
}

/// A client's future is dropped while its nodes are silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_dropped_while_it_connects_closes_what_it_has_opened() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Real::world());
    nodes.iter().for_each(|node| node.be(Silent::Ping));
    let opened = timeout(Duration::from_millis(20), store.open()).await;
    assert!(opened.is_err(), "nobody answers");
    for node in nodes {
        assert_eq!((node.opened(), node.closed()), (1, 1));
    }
}
