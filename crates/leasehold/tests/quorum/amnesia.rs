//! Simulated nodes that forget. `forgetful.rs` has the same tests on real servers.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_testkit::voters::{Mood, Voters};
use leasehold_testkit::wait_until;

use crate::played::{client, granted, voters};

const SOON: Duration = Duration::from_secs(10);

/// Acquires a lock while two of five nodes are down. Then one of the three nodes that voted comes back empty, together with
/// those two. Plain Redlock has a second majority now.
async fn a_holder_and_three_nodes_that_do_not_know_it(voters: &Voters) -> leasehold::Guard {
    voters.nodes[3].be(Mood::Dead);
    voters.nodes[4].be(Mood::Dead);
    let holder = client(voters).await;
    let guard = holder.mutex("a").lock().await.expect("three of five nodes are up");
    // From here on the holder receives nothing: it does not fill the nodes that come back.
    voters.nodes[2].restart_empty();
    voters.nodes[3].be(Mood::Answers);
    voters.nodes[4].be(Mood::Answers);
    guard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_empty_does_not_vote_in_quarantine() {
    let voters = voters(5);
    let guard = a_holder_and_three_nodes_that_do_not_know_it(&voters).await;
    let other = client(&voters).await;
    let answer = other.mutex("a").try_lock().await;
    match &answer {
        Ok(None) => {}
        Ok(Some(second)) => panic!("two holders: {:?} and {:?}", guard.token(), second.token()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Quorum, "{error}"),
    }
    assert!(guard.check().is_ok());
    assert!(voters.nodes[2].record("a").grant.is_none(), "a node in quarantine is not filled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_come_back_are_filled() {
    let voters = voters(5);
    voters.nodes[3].be(Mood::Dead);
    voters.nodes[4].be(Mood::Dead);
    let holder = client(&voters).await;
    let guard = holder.mutex("a").lease(Duration::from_millis(900)).lock().await.unwrap();
    assert_eq!(granted(&voters, "a"), 3);
    voters.nodes[3].be(Mood::Answers);
    voters.nodes[4].be(Mood::Answers);
    wait_until("all nodes have voted", SOON, || granted(&voters, "a") == 5);
    // After that two other nodes may fail.
    voters.nodes[0].be(Mood::Dead);
    voters.nodes[1].be(Mood::Dead);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(guard.check().is_ok(), "the filled nodes keep it");
    assert_eq!(guard.release().await.unwrap(), leasehold::Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_of_all_nodes_loses_the_lock_and_grants_no_other() {
    let voters = voters(3);
    let (holder, other) = (client(&voters).await, client(&voters).await);
    let guard = holder.mutex("a").lease(Duration::from_millis(600)).lock().await.unwrap();
    voters.nodes.iter().for_each(|node| node.flush());
    let error = other.mutex("a").try_lock().await.expect_err("all nodes are in quarantine");
    assert_eq!(error.kind(), ErrorKind::Quorum);
    let lost = tokio::time::timeout(SOON, guard.lost()).await.expect("its lease ends");
    assert!(lost.reason().is_expiry(), "no node votes, so only the end of the lease is known");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgetful_node_is_no_loss_while_a_majority_remembers() {
    let voters = voters(5);
    let holder = client(&voters).await;
    let guard = holder.mutex("a").lease(Duration::from_millis(600)).lock().await.unwrap();
    wait_until("all have voted", SOON, || granted(&voters, "a") == 5);
    voters.nodes[0].flush();
    voters.nodes[1].restart_empty();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(guard.check().is_ok());
}
