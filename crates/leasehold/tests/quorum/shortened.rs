//! A node's clock is seen to be set forward while a question is in flight.

use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::{Guess, Message, Real};
use leasehold_spec::{
    Acquire, From, GrantId, Hears, Kind, Name, Op, Order, Outcome, Patience, Place, Renew, SessionId, Take,
};
use leasehold_testkit::voters::Mood;
use leasehold_testkit::wait_until;
use tokio::time::timeout;

use crate::played::voters;

const SOON: Duration = Duration::from_secs(5);

/// The first of two nodes has renewed a lease. Then its clock is seen to be set forward, before the second node answers.
/// The first answer is not valid any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_forward_between_two_answers_shortens_the_validity() {
    let voters = voters(3);
    voters.nodes[2].be(Mood::Dead);
    let link = voters.store().open().await.unwrap();
    let id = GrantId { session: SessionId(7), counter: 1, nonce: 1 };
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    link.attach(id.session, Arc::new(move |message| drop(tell.send(message)))).await.unwrap();
    let name = Name::new("a").unwrap();
    let lease_ms = 8_000;
    let place = Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears: Hears::Listens, order: Order::Relaxed };
    let acquire = Op::Acquire(Acquire {
        id,
        take: Take::MUTEX,
        lease_ms,
        range: 1,
        not_after_us: u64::MAX,
        patience: Patience::Queue(place),
        label: "".into(),
    });
    let answer = link.apply(&name, &acquire, Guess::default()).await.unwrap();
    let Outcome::Granted { token, .. } = answer.outcome else { panic!("{answer:?}") };

    voters.nodes[1].be(Mood::Stopped);
    let since_us = || voters.nodes[0].record("a").grant.map(|granted| granted.since_us);
    let granted_us = since_us();
    let not_after_us = Real::world().now_us() + 7_000_000;
    let renew = Renew { id, token, from: From::Now, lease_ms, not_after_us };
    let renewing = tokio::spawn(link.renew(&[(name.clone(), renew)], Kind::Mutex));
    wait_until("one node has renewed", SOON, || since_us() != granted_us);
    // The reply has to arrive, too, which no event shows. If it arrived later than this, the test would prove nothing.
    tokio::time::sleep(Duration::from_millis(20)).await;
    voters.nodes[0].set_clock(9_000_000);
    let looking = tokio::spawn(link.apply(&Name::new("b").unwrap(), &Op::Inspect, Guess::default()));
    let warned = async { while !matches!(told.recv().await, Some(Message::RecheckAll)) {} };
    timeout(SOON, warned).await.expect("the session re-checks all names");
    voters.nodes[1].be(Mood::Answers);
    let said = renewing.await.unwrap().remove(0).unwrap();
    let left_us = if let Outcome::Renewed { left_us } = said.outcome { left_us } else { 0 };
    assert!(left_us < 1_000_000, "it has ended at one of the two nodes: {said:?}");
    drop(looking.await);
}
