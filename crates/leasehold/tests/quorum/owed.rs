//! Debts: nodes keep votes and places in queues that have ended, until they receive the release.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::seam::node::NoVote;
use leasehold::seam::{Fault, Guess, Link, Message, Real, error};
use leasehold::{ErrorKind, Leasehold, Released};
use leasehold_spec::node::{Ask, Request, Said};
use leasehold_spec::{Delivery, Event, From, GrantId, LostHow, Op, Outcome, Patience, Renew, SessionId, Token};
use leasehold_testkit::voters::{Mood, Voter, Voters};
use leasehold_testkit::wait_until;
use tokio::runtime::{Builder, Runtime};

use crate::linked::{
    ID, LEASE_MS, SOON, acquire, acquire_as, apply, granted_to, link_and_lane, name, queued_acquire, token_voted_for,
};
use crate::played::{client, granted, voters};
use crate::shy::{Hasty, Shy};

const STRANGER: GrantId = GrantId { session: SessionId(8), counter: 1, nonce: 1 };

/// Attaches an inbox. Returns the tokens that are granted by messages.
async fn grants(link: &Arc<dyn Link>) -> Arc<Mutex<Vec<Token>>> {
    let granted: Arc<Mutex<Vec<Token>>> = Arc::default();
    let heard = Arc::clone(&granted);
    let inbox = move |message| {
        if let Message::Delivery(_, Delivery { id: ID, token, event: Event::Granted, .. }) = message {
            heard.lock().unwrap().push(token);
        }
    };
    link.attach(ID.session, Arc::new(inbox)).await.unwrap();
    granted
}

fn give_back(node: &Voter, id: GrantId) {
    node.ask("a", &Request::GiveBack { id, upto: Token::HIGHEST, wait: None });
}

/// Gives the votes of these nodes to another client.
fn taken(nodes: &[Arc<Voter>]) {
    taken_ahead(nodes, 1_000);
}

/// Has a node refuse releases with an error, as long as the returned flag is set. Also returns the number of releases.
fn refuses(node: &Shy, kind: ErrorKind) -> (Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (refuses, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (is_on, count) = (Arc::clone(&refuses), Arc::clone(&asked));
    node.says(move |request| {
        matches!(request, Request::GiveBack { .. }).then(|| count.fetch_add(1, Ordering::SeqCst))?;
        let fault = || match kind {
            ErrorKind::Unreachable => Fault::Gone(error(kind, "the connection broke")),
            _ => Fault::Refused(error(kind, "not now")),
        };
        is_on.load(Ordering::SeqCst).then(|| NoVote::Fault(fault()))
    });
    (refuses, asked)
}

/// Counts the releases that a node receives.
fn releases_of(node: &Shy) -> Arc<AtomicUsize> {
    let (refuses, asked) = refuses(node, ErrorKind::Store);
    refuses.store(false, Ordering::SeqCst);
    asked
}

/// Breaks a link, and waits until it is opened again. The nodes still know everything.
async fn opened_anew(voters: &Voters, nodes: &[Arc<Shy>], link: &Arc<dyn Link>) {
    let before = nodes[0].opened();
    voters.nodes[0].restart();
    apply(link, &Op::Inspect).await;
    wait_until("it is opened anew", SOON, || nodes[0].opened() > before);
}

/// The release reaches a majority, and one node refuses: its vote would block the next client for the rest of the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_release_is_repeated() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Hasty::world());
    let (refuses, _) = refuses(&nodes[0], ErrorKind::Store);
    let link = store.open().await.unwrap();
    link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
    let token = granted_to(&link).await;
    wait_until("all have voted", SOON, || granted(&voters, "a") == 3);
    let released = apply(&link, &Op::Release { id: ID, token, used: token }).await;
    assert!(matches!(released.outcome, Outcome::Released), "{released:?}");
    assert_eq!(token_voted_for(&voters.nodes[0]), Some(token));
    refuses.store(false, Ordering::SeqCst);
    wait_until("it is given back", SOON, || token_voted_for(&voters.nodes[0]).is_none());
    assert_eq!(nodes[0].opened(), 1, "the link is the same");
}

/// The caller gets the answers of a majority, and ends. Its requests to the other nodes are sent anyway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_a_runtime_leaves_no_votes() {
    let voters = voters(5);
    let (nodes, store) = Shy::each(&voters, Hasty::world());
    let link = store.open().await.unwrap();
    link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
    let token = granted_to(&link).await;
    wait_until("all have voted", SOON, || granted(&voters, "a") == 5);
    nodes[3..].iter().for_each(|node| node.delay_requests());
    let here = Arc::clone(&link);
    let release = move || pollster::block_on(apply(&here, &Op::Release { id: ID, token, used: token }));
    let released = std::thread::spawn(release).join().unwrap();
    assert!(matches!(released.outcome, Outcome::Released), "{released:?}");
    nodes[3..].iter().for_each(|node| node.send_delayed());
    wait_until("it is given back", SOON, || granted(&voters, "a") == 0);
}

/// The caller's runtime ends as soon as a majority has answered. The requests to the other nodes are sent anyway.
#[test]
fn a_runtime_that_ends_leaves_no_votes() {
    let (voters, runtime) = (voters(5), Runtime::new().unwrap());
    let (nodes, store) = Shy::each(&voters, Hasty::world());
    let (link, token) = runtime.block_on(async {
        let link = store.open().await.unwrap();
        link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
        let token = granted_to(&link).await;
        (link, token)
    });
    wait_until("all have voted", SOON, || granted(&voters, "a") == 5);
    nodes[3..].iter().for_each(|node| node.delay_requests());
    let ends = Builder::new_current_thread().enable_all().build().unwrap();
    let released = ends.block_on(apply(&link, &Op::Release { id: ID, token, used: token }));
    assert!(matches!(released.outcome, Outcome::Released), "{released:?}");
    drop(ends);
    assert_eq!(granted(&voters, "a"), 2);
    nodes[3..].iter().for_each(|node| node.send_delayed());
    wait_until("the votes have gone back", SOON, || granted(&voters, "a") == 0);
}

/// A link ends with the runtime that opened it, and owes a node a vote. The session's link pays.
#[test]
fn the_sessions_link_pays_the_debts_of_an_ended_lane() {
    let (voters, runtime) = (voters(3), Runtime::new().unwrap());
    let (nodes, store) = Shy::each(&voters, Hasty::world());
    let link = runtime.block_on(async {
        let link = store.open().await.unwrap();
        link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
        link
    });
    let ends = Builder::new_current_thread().enable_all().build().unwrap();
    let (refuses, asked) = refuses(&nodes[0], ErrorKind::Unreachable);
    let lane = ends.block_on(async {
        let lane = store.open().await.unwrap();
        let token = granted_to(&lane).await;
        let released = apply(&lane, &Op::Release { id: ID, token, used: token }).await;
        assert!(matches!(released.outcome, Outcome::Released), "{released:?}");
        while asked.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        lane
    });
    drop(ends);
    assert!(lane.is_closed() && !link.is_closed());
    assert!(token_voted_for(&voters.nodes[0]).is_some());
    refuses.store(false, Ordering::SeqCst);
    wait_until("the vote has gone back", SOON, || token_voted_for(&voters.nodes[0]).is_none());
}

/// A runtime stands still before it reads the answers of nodes to a release, and its link is closed. It is unknown whether
/// these nodes have carried the release out, so the session's link repeats it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_link_repeats_unanswered_releases() {
    for unread in [1, 3] {
        let voters = voters(3);
        let (nodes, _link, lane) = link_and_lane(&voters).await;
        let token = granted_to(&lane).await;
        wait_until("all have voted", SOON, || granted(&voters, "a") == 3);

        let (_stands_still, stands) = tokio::sync::watch::channel(false);
        nodes[3 - unread..].iter().for_each(|node| node.withhold(Some(stands.clone())));
        let told: Vec<_> = nodes[3 - unread..].iter().map(|node| releases_of(node)).collect();
        let times = || told.iter().map(|told| told.load(Ordering::SeqCst)).min().unwrap();
        let released = tokio::spawn(lane.apply(&name(), &Op::Release { id: ID, token, used: token }, Guess::default()));
        wait_until("all nodes receive the release", SOON, || times() == 1);
        let released = match unread {
            1 => released.await.unwrap().is_ok(),
            _ => {
                let closed = Instant::now();
                lane.close();
                let is_done = released.await.unwrap().is_ok();
                assert!(
                    closed.elapsed() < Duration::from_millis(500),
                    "it does not wait for an answer: {:?}",
                    closed.elapsed()
                );
                is_done
            }
        };
        assert_eq!(released, unread == 1, "a majority has answered, or the link is closed");
        nodes.iter().for_each(|node| node.withhold(None));
        lane.close();
        wait_until("they receive it again", SOON, || times() == 2);
    }
}

/// A runtime stands still, and its link is closed. From then on only the session's link asks for the attempt. Another round
/// of the closed link would overtake the round of the session's link, which would then give back what it has won.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_link_begins_no_round() {
    let voters = voters(3);
    let (nodes, link, lane) = link_and_lane(&voters).await;
    nodes.iter().for_each(|node| node.delay_requests());
    let asked = tokio::spawn(lane.apply(&name(), &acquire(Patience::Try), Guess::default()));
    tokio::time::sleep(Duration::from_millis(40)).await;
    lane.close();
    // A node has 50 ms to answer. In this time the closed link could begin several rounds, although it has no node.
    let again = tokio::spawn(link.apply(&name(), &acquire(Patience::Try), Guess::default()));
    tokio::time::sleep(Duration::from_millis(35)).await;
    nodes.iter().for_each(|node| node.send_delayed());
    let answer = again.await.unwrap().unwrap();
    assert!(matches!(answer.outcome, Outcome::Granted { .. }), "{answer:?}");
    assert!(asked.await.unwrap().is_err());
    wait_until("all have voted", SOON, || voters.nodes.iter().all(|node| token_voted_for(node).is_some()));
}

/// A lease is revoked at two of three nodes. The first two answers to a round come from a revoked node and from the third
/// one: according to them the lease lasts until the third node is free. The last answer arrives after the decision, and
/// shows that a majority is free earlier. The session is notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_after_the_decision_shows_when_a_majority_is_free() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Real::world());
    let link = store.open().await.unwrap();
    let told: Arc<Mutex<Vec<u64>>> = Arc::default();
    let heard = Arc::clone(&told);
    let inbox = move |message| {
        if let Message::Ending { name: ends, at_us } = message {
            assert_eq!(ends, name());
            heard.lock().unwrap().push(at_us);
        }
    };
    link.attach(ID.session, Arc::new(inbox)).await.unwrap();
    wait_until("it is connected to all nodes", SOON, || nodes.iter().all(|node| node.opened() == 1));
    taken(&voters.nodes);
    for node in &voters.nodes[..2] {
        let (holder, token) = (STRANGER.public(), node.record("a").highest);
        let said = node.ask("a", &Request::Revoke { holder, token, grace_ms: 1_000 }).said;
        assert!(matches!(said, Said::Revoking { .. }), "{said:?}");
    }
    nodes[1].delay_requests();
    let queued = apply(&link, &queued_acquire()).await;
    let Outcome::Queued { left_us, .. } = queued.outcome else { panic!("{queued:?}") };
    assert!(left_us > 5_000_000, "by the first two answers: {left_us} µs");
    nodes[1].send_delayed();
    wait_until("the session is notified", SOON, || !told.lock().unwrap().is_empty());
    let left_us = told.lock().unwrap()[0].saturating_sub(Real::world().now_us());
    assert!(left_us <= 1_000_000, "{left_us} µs");
}

/// The release is done when a majority has received it, and then the client closes. The other nodes receive it anyway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_releases_of_a_closing_client_reach_all_nodes() {
    let voters = voters(5);
    let (nodes, store) = Shy::each(&voters, Hasty::late());
    let client = Leasehold::builder("").lease(Duration::from_secs(5)).connect_to(store, Real::world()).await.unwrap();
    let guard = client.mutex("a").lock().await.unwrap();
    wait_until("all have voted", SOON, || granted(&voters, "a") == 5);
    nodes[3..].iter().for_each(|node| node.delay_requests());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let closing = tokio::spawn(client.close());
    tokio::time::sleep(Duration::from_millis(20)).await;
    nodes[3..].iter().for_each(|node| node.send_delayed());
    assert!(closing.await.unwrap().unconfirmed().is_empty());
    assert_eq!(granted(&voters, "a"), 0, "the votes are gone when the client is closed");
}

/// The client does not wait forever: a vote that is not released ends by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closing_client_does_not_wait_for_a_stalled_node() {
    let voters = voters(3);
    let client = client(&voters).await;
    let guard = client.mutex("a").lock().await.unwrap();
    voters.nodes[2].be(Mood::Stopped);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let begun = Instant::now();
    assert!(client.close().await.unconfirmed().is_empty());
    // An answer may take 50 ms and a round trip. A second is for a busy machine.
    assert!(begun.elapsed() < Duration::from_millis(1_050), "{:?}", begun.elapsed());
}

/// A renewal can arrive after the release of its lease, which used another connection. It would fill the node for no
/// holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_expires_when_its_caller_gives_up() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Hasty::world());
    let latest_us = Arc::new(AtomicU64::new(0));
    let heard = Arc::clone(&latest_us);
    nodes[0].says(move |request| {
        if let Request::Renew(renewal) = request {
            heard.fetch_max(renewal.not_after_us, Ordering::SeqCst);
        }
        None
    });
    let link = store.open().await.unwrap();
    link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
    let token = granted_to(&link).await;
    let not_after_us = link.ping().await.unwrap() + 8_000_000;
    let renew = Renew { id: ID, token, from: From::Now, lease_ms: 9_000, not_after_us };
    let renewed = apply(&link, &Op::Renew(renew)).await;
    assert!(matches!(renewed.outcome, Outcome::Renewed { .. }), "{renewed:?}");
    wait_until("the first node receives a renewal", SOON, || latest_us.load(Ordering::SeqCst) > 0);
    let late_us = latest_us.load(Ordering::SeqCst).saturating_sub(voters.nodes[0].clock_us());
    assert!(late_us <= 1_000_000, "a node carries it out for {late_us} µs more");
}

/// A node that never received a request has no vote to give back, so there is no pending return that could replace
/// another debt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debts_to_a_node_that_is_away_for_long_stay() {
    let voters = voters(3);
    let (_, store) = Shy::each(&voters, Hasty::world());
    let link = store.open().await.unwrap();
    link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
    let token = granted_to(&link).await;
    wait_until("all have voted", SOON, || granted(&voters, "a") == 3);
    voters.nodes[0].be(Mood::Dead);
    let released = apply(&link, &Op::Release { id: ID, token, used: token }).await;
    assert!(matches!(released.outcome, Outcome::Released), "{released:?}");
    for counter in 2..1_200 {
        let id = GrantId { counter, ..ID };
        let answer = apply(&link, &acquire_as(id, Patience::Try)).await;
        let Outcome::Granted { token, .. } = answer.outcome else { panic!("{answer:?}") };
        apply(&link, &Op::Release { id, token, used: token }).await;
    }
    assert_eq!(token_voted_for(&voters.nodes[0]), Some(token));
    voters.nodes[0].be(Mood::Answers);
    wait_until("it is given back", SOON, || token_voted_for(&voters.nodes[0]).is_none());
}

/// A round is lost, and the connection breaks while its only vote is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vote_of_a_lost_round_is_owed_until_its_node_answers() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Hasty::world());
    let (refuses, asked) = refuses(&nodes[0], ErrorKind::Unreachable);
    let link = store.open().await.unwrap();
    link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
    wait_until("all nodes are connected", SOON, || nodes.iter().all(|node| node.opened() == 1));
    taken(&voters.nodes[1..]);
    let busy = apply(&link, &acquire(Patience::Try)).await;
    assert!(matches!(busy.outcome, Outcome::Busy { .. }), "{busy:?}");
    wait_until("it has received the release", SOON, || asked.load(Ordering::SeqCst) > 0);
    assert!(token_voted_for(&voters.nodes[0]).is_some());
    refuses.store(false, Ordering::SeqCst);
    wait_until("it is given back", SOON, || token_voted_for(&voters.nodes[0]).is_none());
}

/// The vote belongs to a lost grant. When it is given back, the same attempt has been granted again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_debt_does_not_end_a_later_vote_of_the_same_attempt() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Hasty::world());
    let (refuses, asked) = refuses(&nodes[0], ErrorKind::Store);
    let link = store.open().await.unwrap();
    link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
    let first = granted_to(&link).await;
    wait_until("all have voted", SOON, || granted(&voters, "a") == 3);
    voters.nodes[1..].iter().for_each(|node| give_back(node, ID));
    let not_after_us = Real::world().now_us() + 1_000_000;
    let renew = Renew { id: ID, token: first, from: From::Now, lease_ms: LEASE_MS, not_after_us };
    let lost = apply(&link, &Op::Renew(renew)).await;
    assert!(matches!(lost.outcome, Outcome::Lost { how: LostHow::NotHeld }), "{lost:?}");
    assert_eq!(token_voted_for(&voters.nodes[0]), Some(first), "it has refused");
    let second = granted_to(&link).await;
    wait_until("all have voted again", SOON, || voters.nodes.iter().all(|node| token_voted_for(node) == Some(second)));
    assert!(second > first);
    refuses.store(false, Ordering::SeqCst);
    let before = asked.load(Ordering::SeqCst);
    opened_anew(&voters, &nodes, &link).await;
    wait_until("the vote is given back", SOON, || asked.load(Ordering::SeqCst) > before);
    // The return is first on the same link.
    apply(&link, &Op::Inspect).await;
    assert!(voters.nodes.iter().all(|node| token_voted_for(node) == Some(second)), "the votes are for the later grant");
}

/// The client holds the lease. It has ended at the nodes, which have voted for another client. A re-check finds that out,
/// and waits with a new token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_re_check_asks_again_for_a_grant_that_has_ended_at_the_nodes() {
    let voters = voters(3);
    let (_, store) = Shy::each(&voters, Real::world());
    let link = store.open().await.unwrap();
    let granted = grants(&link).await;
    let first = granted_to(&link).await;
    wait_until("all have voted", SOON, || voters.nodes.iter().all(|node| token_voted_for(node) == Some(first)));
    voters.nodes.iter().for_each(|node| give_back(node, ID));
    taken(&voters.nodes);
    let looked = apply(&link, &queued_acquire()).await;
    assert!(matches!(looked.outcome, Outcome::Queued { .. }), "{looked:?}");
    wait_until("it waits", SOON, || voters.nodes.iter().all(|node| node.record("a").queue.len() == 1));
    voters.nodes.iter().for_each(|node| give_back(node, STRANGER));
    wait_until("it is called, and granted", SOON, || !granted.lock().unwrap().is_empty());
    let second = granted.lock().unwrap()[0];
    assert!(second > first, "{second} after {first}");
    // The third node may still have had the vote of the other client when most nodes called.
    assert!(voters.nodes.iter().filter(|node| token_voted_for(node) == Some(second)).count() >= 2);
}

/// All nodes have answered a round of a lane (the token is too small), and the caller is not polled. The lane is closed.
/// The session's link asks for the same attempt, is refused, and waits in the queue of each node. Then the caller goes on,
/// and gives the votes of its round back. The attempt has to stay in the queues, or no node would call it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_link_keeps_an_attempt_in_the_queues_that_waits_by_another() {
    let voters = voters(3);
    let (nodes, store) = Shy::each(&voters, Real::world());
    let link = store.open().await.unwrap();
    let granted = grants(&link).await;
    let lane = store.open().await.unwrap();
    wait_until("both links are connected to all nodes", SOON, || nodes.iter().all(|node| node.opened() == 2));
    // The lock is free, and its last token is ahead of the clock: a client had a range of tokens, and has released.
    taken_ahead(&voters.nodes, 2_000_000);
    voters.nodes.iter().for_each(|node| give_back(node, STRANGER));

    // The answers have arrived, and the runtime of the lane stands still.
    let (go_on, stands) = tokio::sync::watch::channel(false);
    nodes.iter().for_each(|node| node.withhold(Some(stands.clone())));
    let mut asked = lane.apply(&name(), &queued_acquire(), Guess::default());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(asked.as_mut().poll(&mut context).is_pending());
    assert!(voters.nodes.iter().all(|node| node.asked() == 2), "all nodes have received the round");
    nodes.iter().for_each(|node| node.withhold(None));
    lane.close();

    // Meanwhile another client holds the lock. The session's link asks, and waits.
    taken_ahead(&voters.nodes, 4_000_000);
    let queued = apply(&link, &queued_acquire()).await;
    assert!(matches!(queued.outcome, Outcome::Queued { .. }), "{queued:?}");
    let waiters = || voters.nodes.iter().map(|node| node.record("a").queue.len()).collect::<Vec<_>>();
    assert_eq!(waiters(), [1, 1, 1], "it waits at all nodes");

    go_on.send_replace(true);
    assert!(asked.await.is_err(), "the lane is closed");
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    let waiters_then = waiters();
    // The holder releases: the waiter is called, asks, and is granted the lease.
    voters.nodes.iter().for_each(|node| give_back(node, STRANGER));
    assert_eq!(waiters_then, [1, 1, 1], "it waits still");
    wait_until("it is called, and granted", SOON, || !granted.lock().unwrap().is_empty());
}

/// Gives these nodes' votes to another client, for a token that is so far ahead of their clocks.
fn taken_ahead(nodes: &[Arc<Voter>], by_us: u64) {
    for node in nodes {
        let (token, not_after_us) = (Token::new(node.clock_us() + by_us).unwrap(), u64::MAX);
        let ask =
            Ask { id: STRANGER, token, range: 1, lease_ms: LEASE_MS, not_after_us, wait: None, label: "s".into() };
        let said = node.ask("a", &Request::Ask(ask)).said;
        assert!(matches!(said, Said::Granted { .. }), "{said:?}");
    }
}
