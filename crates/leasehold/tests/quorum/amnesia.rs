//! Nodes that forget, played by the test: `forgetful.rs` has the same of real servers.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold_testkit::voters::{Mood, Voters};
use leasehold_testkit::wait_until;

use crate::played::{client, granted, voters};

const SOON: Duration = Duration::from_secs(10);

/// Two of five are down when the lock is taken, and one of the three that voted comes back empty, with those two: plain
/// Redlock has a second majority then.
async fn a_holder_and_three_nodes_that_know_nothing_of_it(voters: &Voters) -> leasehold::Guard {
    voters.nodes[3].be(Mood::Dead);
    voters.nodes[4].be(Mood::Dead);
    let holder = client(voters).await;
    let guard = holder.mutex("a").lock().await.expect("three of five are there");
    // From here on the holder does not hear of anything: it does not fill the nodes that come back.
    voters.nodes[2].restart_empty();
    voters.nodes[3].be(Mood::Answers);
    voters.nodes[4].be(Mood::Answers);
    guard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_empty_has_no_vote_until_it_has_rested() {
    let voters = voters(5);
    let guard = a_holder_and_three_nodes_that_know_nothing_of_it(&voters).await;
    let other = client(&voters).await;
    let answer = other.mutex("a").try_lock().await;
    match &answer {
        Ok(None) => {}
        Ok(Some(second)) => panic!("two holders: {:?} and {:?}", guard.token(), second.token()),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Quorum, "{error}"),
    }
    assert!(guard.check().is_ok());
    assert!(voters.nodes[2].record("a").grant.is_none(), "it rests, and is not filled");
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
    wait_until("it is known to all", SOON, || granted(&voters, "a") == 5);
    // So that two others may go.
    voters.nodes[0].be(Mood::Dead);
    voters.nodes[1].be(Mood::Dead);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(guard.check().is_ok(), "kept by those that were filled");
    assert_eq!(guard.release().await.unwrap(), leasehold::Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_flushed_is_a_lock_that_is_lost_and_none_that_is_taken() {
    let voters = voters(3);
    let (holder, other) = (client(&voters).await, client(&voters).await);
    let guard = holder.mutex("a").lease(Duration::from_millis(600)).lock().await.unwrap();
    voters.nodes.iter().for_each(|node| node.flush());
    let error = other.mutex("a").try_lock().await.expect_err("all of them rest");
    assert_eq!(error.kind(), ErrorKind::Quorum);
    let lost = tokio::time::timeout(SOON, guard.lost()).await.expect("its lease ends");
    assert!(lost.reason().is_expiry(), "no node votes, so that nothing is known but that its time is over");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_forgot_is_no_loss_while_a_majority_remembers() {
    let voters = voters(5);
    let holder = client(&voters).await;
    let guard = holder.mutex("a").lease(Duration::from_millis(600)).lock().await.unwrap();
    wait_until("all have voted", SOON, || granted(&voters, "a") == 5);
    voters.nodes[0].flush();
    voters.nodes[1].restart_empty();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(guard.check().is_ok());
}
