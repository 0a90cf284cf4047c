//! Requests and messages that cross a release: they are sent on other connections, and arrive in any order.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use leasehold::seam::node::NoVote;
use leasehold::seam::{Fault, Guess, Link, Real, error};
use leasehold::{ErrorKind, Guard, Leasehold, Released};
use leasehold_spec::node::{Bell, Charter, Request, Rings, Said, Vote};
use leasehold_spec::{Contention, From, GrantId, GrantState, Op, Outcome, Renew, Token};
use leasehold_testkit::voters::{Mood, Voter, Voters};
use leasehold_testkit::wait_until;
use tokio::task::JoinHandle;

use crate::linked::{ID, LEASE_MS, SOON, apply, granted_to, link_and_lane, name, token_voted_for};
use crate::played::{client, granted, voters};
use crate::shy::Shy;

const LEASE: Duration = Duration::from_secs(5);
const HOLD: Duration = Duration::from_secs(1);

/// Delivers the call of a node for this attempt. The node has called it while it waited.
fn call(node: &Shy, id: GrantId) {
    let contention = Contention::None;
    node.ring("a", Bell { to: id.session, now_us: 0, highest: Token::NONE, contention, id, rings: Rings::Call });
}

struct Setup {
    voters: Voters,
    nodes: Vec<Arc<Shy>>,
    client: Leasehold,
}

impl Setup {
    async fn new() -> Self {
        let voters = voters(3);
        let (nodes, store) = Shy::each(&voters, Real::world());
        let client = Leasehold::builder("").lease(LEASE).connect_to(store, Real::world()).await.unwrap();
        Self { voters, nodes, client }
    }

    /// Takes the lock by the votes of all nodes.
    async fn lock(&self, min_hold: Duration) -> Guard {
        let guard = self.client.mutex("a").min_hold(min_hold).lock().await.unwrap();
        wait_until("all have voted", SOON, || granted(&self.voters, "a") == 3);
        guard
    }

    /// Begins to release the lock. The calls of all nodes arrive between the end of the lease in the client and its release
    /// at the nodes. Returns the task.
    async fn release(&self, guard: Guard) -> JoinHandle<Released> {
        let attempt = self.voters.nodes[0].record("a").grant.expect("it is held").id;
        self.nodes.iter().for_each(|node| node.delay_requests());
        let releasing = tokio::spawn(async { guard.release().await.unwrap() });
        wait_until("the release is on its way", SOON, || self.nodes.iter().all(|node| node.has_delayed()));
        for node in &self.nodes {
            node.delay_no_new_requests();
            call(node, attempt);
        }
        releasing
    }

    fn send_releases(&self) {
        self.nodes.iter().for_each(|node| node.send_delayed());
    }
}

/// The client must not give the votes back before its release does: another client would hold and release meanwhile, and
/// the release would find nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_call_does_not_make_a_release_look_like_a_loss() {
    let setup = Setup::new().await;
    let guard = setup.lock(Duration::ZERO).await;
    let b = client(&setup.voters).await;
    let releasing = setup.release(guard).await;
    if let Ok(Some(guard)) = b.mutex("a").try_lock().await {
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    setup.send_releases();
    assert_eq!(releasing.await.unwrap(), Released::Released);
    wait_until("no vote stays", SOON, || granted(&setup.voters, "a") == 0);
}

/// Asserts that another client is granted the lock only after the minimum hold, and before the lease would end. The
/// lock was acquired after `held`.
async fn assert_minimum_hold(setup: &Setup, held: Instant) {
    let b = client(&setup.voters).await;
    let next = tokio::time::timeout(SOON, b.mutex("a").lock()).await.expect("the cool-down ends").unwrap();
    let after = held.elapsed();
    assert!(after >= HOLD && after < LEASE - HOLD, "{after:?} after the acquire");
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_late_call_does_not_end_a_minimum_hold() {
    let setup = Setup::new().await;
    let (held, guard) = (Instant::now(), setup.lock(HOLD).await);
    let releasing = setup.release(guard).await;
    setup.send_releases();
    assert_eq!(releasing.await.unwrap(), Released::Released);
    assert_minimum_hold(&setup, held).await;
}

/// The caller gives the release up before it is sent, and the session repeats it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_release_that_is_given_up_does_not_end_a_minimum_hold() {
    let setup = Setup::new().await;
    let (held, guard) = (Instant::now(), setup.lock(HOLD).await);
    let releasing = setup.release(guard).await;
    releasing.abort();
    assert!(releasing.await.unwrap_err().is_cancelled());
    setup.send_releases();
    assert_minimum_hold(&setup, held).await;
}

async fn cool_down(link: &Arc<dyn Link>, token: Token) {
    let cooled = apply(link, &Op::CoolDown { id: ID, used: token, for_ms: LEASE_MS / 2 }).await;
    assert!(matches!(cooled.outcome, Outcome::Left { .. }), "{cooled:?}");
}

fn await_cool_down(node: &Voter) {
    let cools = || node.record("a").grant.map(|granted| granted.state) == Some(GrantState::CoolingDown);
    wait_until("the node cools down", SOON, cools);
}

/// A majority has answered. The third node has not received the cool-down yet, and its call for the attempt is late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_late_call_does_not_end_a_minimum_hold_at_a_slow_node() {
    let voters = voters(3);
    let (nodes, _link, lane) = link_and_lane(&voters).await;
    let token = granted_to(&lane).await;
    wait_until("all have voted", SOON, || granted(&voters, "a") == 3);
    nodes[2].delay_requests();
    cool_down(&lane, token).await;
    nodes[2].delay_no_new_requests();
    call(&nodes[2], ID);
    await_cool_down(&voters.nodes[2]);
}

/// The third node cannot be reached. It receives the cool-down when it is back, whatever is given back there meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p23_a_late_call_does_not_end_a_minimum_hold_at_a_lost_node() {
    let voters = voters(3);
    let (nodes, _link, lane) = link_and_lane(&voters).await;
    let token = granted_to(&lane).await;
    wait_until("all have voted", SOON, || granted(&voters, "a") == 3);
    voters.nodes[2].be(Mood::Dead);
    cool_down(&lane, token).await;
    call(&nodes[2], ID);
    voters.nodes[2].be(Mood::Answers);
    await_cool_down(&voters.nodes[2]);
}

/// The lane's request to the third node is slow, and the release overtakes it. Returns whether the node has voted: if the
/// machine is too slow, the node refuses.
async fn late_vote(release: impl AsyncFnOnce(&[Arc<Shy>], Arc<dyn Link>, Arc<dyn Link>, Token)) -> bool {
    let voters = voters(3);
    let (nodes, link, lane) = link_and_lane(&voters).await;
    nodes[2].delay_vote_requests();
    let token = granted_to(&lane).await;
    release(&nodes, link, Arc::clone(&lane), token).await;
    wait_until("no node has voted", SOON, || granted(&voters, "a") == 0);
    let asked = voters.nodes[2].asked();
    nodes[2].send_delayed();
    wait_until("the third node is asked", SOON, || voters.nodes[2].asked() > asked);
    let has_voted = voters.nodes[2].record("a").highest >= token;
    wait_until("no vote stays", SOON, || token_voted_for(&voters.nodes[2]).is_none());
    has_voted
}

/// Repeats [`late_vote`] until the third node has voted in it, at most 20 times.
async fn assert_late_vote_is_returned(release: impl AsyncFn(&[Arc<Shy>], Arc<dyn Link>, Arc<dyn Link>, Token)) {
    for _ in 0..20 {
        if late_vote(&release).await {
            return;
        }
    }
    panic!("the machine is too slow");
}

async fn release(link: &Arc<dyn Link>, token: Token) {
    apply(link, &Op::Release { id: ID, token, used: token }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_whose_reply_is_lost_goes_back() {
    assert_late_vote_is_returned(async |nodes, link, _lane, token| {
        release(&link, token).await;
        nodes[2].lose_delayed_replies();
    })
    .await;
}

/// The caller gives its release up before it is sent. The session repeats it on its own link, so it does not follow the
/// request of the lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_comes_after_a_release_that_was_given_up_goes_back() {
    assert_late_vote_is_returned(async |nodes, link, lane, token| {
        nodes[..2].iter().for_each(|node| node.delay_requests());
        let releasing =
            tokio::spawn(lane.apply(&name(), &Op::Release { id: ID, token, used: token }, Guess::default()));
        wait_until("the release is on its way", SOON, || nodes[..2].iter().all(|node| node.has_delayed()));
        releasing.abort();
        assert!(releasing.await.unwrap_err().is_cancelled());
        nodes.iter().for_each(|node| node.delay_no_new_requests());
        release(&link, token).await;
    })
    .await;
}

/// The third node votes while the release is in flight, and its reply is lost. The client learns of the vote by a call.
/// Returns whether the node has voted: if the machine is too slow, the node refuses.
async fn vote_during_a_release() -> bool {
    let voters = voters(3);
    let (nodes, link, lane) = link_and_lane(&voters).await;
    nodes[2].delay_vote_requests();
    let token = granted_to(&lane).await;
    let third = &voters.nodes[2];
    nodes[..2].iter().for_each(|node| node.delay_requests());
    let mut releasing = link.apply(&name(), &Op::Release { id: ID, token, used: token }, Guess::default());
    // The first poll sends the requests. The third node carries its request out, and has no vote to give back yet.
    let is_sent = poll_fn(|context| Poll::Ready(releasing.as_mut().poll(context).is_pending())).await;
    assert!(is_sent && nodes[..2].iter().all(|node| node.has_delayed()), "the release is in flight");
    third.be(Mood::Mute);
    let asked = third.asked();
    nodes[2].send_delayed();
    wait_until("the third node is asked for its vote", SOON, || third.asked() > asked);
    third.be(Mood::Answers);
    if token_voted_for(third).is_none() {
        return false;
    }
    call(&nodes[2], ID);
    assert!(token_voted_for(third).is_some(), "the release is in flight");
    nodes[..2].iter().for_each(|node| node.send_delayed());
    assert_eq!(releasing.await.unwrap().outcome, Outcome::Released);
    wait_until("no vote stays", SOON, || token_voted_for(third).is_none());
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_comes_during_a_release_goes_back_after_it() {
    for _ in 0..20 {
        if vote_during_a_release().await {
            return;
        }
    }
    panic!("the machine is too slow");
}

/// A renewal fills the third node after the release has passed it, and the reply is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fill_whose_reply_is_lost_goes_back() {
    let voters = voters(3);
    let (nodes, link, lane) = link_and_lane(&voters).await;
    let refuses = || NoVote::Fault(Fault::Refused(error(ErrorKind::Store, "not now")));
    nodes[2].says(move |request| matches!(request, Request::Ask(_)).then(refuses));
    let token = granted_to(&lane).await;
    nodes[2].delay_vote_requests();
    let not_after_us = Real::world().now_us() + 1_000_000;
    let renew = Renew { id: ID, token, from: From::Now, lease_ms: LEASE_MS, not_after_us };
    apply(&link, &Op::Renew(renew)).await;
    release(&lane, token).await;
    nodes[2].lose_delayed_replies();
    nodes[2].send_delayed();
    wait_until("the third node is filled", SOON, || voters.nodes[2].record("a").highest >= token);
    wait_until("no vote stays", SOON, || token_voted_for(&voters.nodes[2]).is_none());
}

/// The connection of a renewal breaks, and the release is sent on another one. The node stands still meanwhile, and reads
/// the release before the renewal, which fills it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fill_that_comes_after_a_broken_connection_goes_back() {
    let voters = voters(3);
    let (nodes, link, lane) = link_and_lane(&voters).await;
    let sent = Arc::new(Mutex::new(None));
    let breaks = {
        let sent = Arc::clone(&sent);
        move |request: &Request| {
            if let Request::Renew(renewal) = request {
                *sent.lock().unwrap() = Some(renewal.clone());
            }
            let is_for_vote = matches!(request, Request::Ask(_) | Request::Renew(_));
            is_for_vote.then(|| NoVote::Fault(Fault::Gone(error(ErrorKind::Unreachable, "the connection broke"))))
        }
    };
    nodes[2].says(breaks);
    let token = granted_to(&lane).await;
    let not_after_us = Real::world().now_us() + 1_000_000;
    let renew = Renew { id: ID, token, from: From::Now, lease_ms: LEASE_MS, not_after_us };
    apply(&link, &Op::Renew(renew)).await;
    release(&lane, token).await;
    let renewal = sent.lock().unwrap().take().expect("the third node was asked");
    let other = voters.seats()[2].open(Charter { nodes: 3, max_lease_ms: LEASE_MS }).await.unwrap();
    let filled = other.renew(&[(name(), renewal)]).await;
    assert!(matches!(&filled[..], [Ok(Vote { said: Said::Filled { .. }, .. })]), "{filled:?}");
    assert_eq!(token_voted_for(&voters.nodes[2]), Some(token));
    wait_until("no vote stays", SOON, || token_voted_for(&voters.nodes[2]).is_none());
}
