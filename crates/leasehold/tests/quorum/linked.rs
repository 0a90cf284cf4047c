//! The links of a session to simulated nodes, for tests of single requests.

use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::{Guess, Link, Real};
use leasehold_spec::{
    Acquire, Answer, GrantId, Hears, Name, Op, Order, Outcome, Patience, Place, SessionId, Take, Token,
};
use leasehold_testkit::voters::{Voter, Voters};
use leasehold_testkit::wait_until;

use crate::played::MAX_LEASE_MS;
use crate::shy::Shy;

pub(crate) const SOON: Duration = Duration::from_secs(5);
/// The longest lease of these quorums: a vote that disappears earlier was given back.
pub(crate) const LEASE_MS: u64 = MAX_LEASE_MS;
pub(crate) const ID: GrantId = GrantId { session: SessionId(7), counter: 1, nonce: 1 };

pub(crate) fn name() -> Name {
    Name::new("a").unwrap()
}

pub(crate) fn acquire(patience: Patience) -> Op {
    acquire_as(ID, patience)
}

pub(crate) fn acquire_as(id: GrantId, patience: Patience) -> Op {
    let (lease_ms, label) = (LEASE_MS, "".into());
    Op::Acquire(Acquire { id, take: Take::MUTEX, lease_ms, range: 1, not_after_us: u64::MAX, patience, label })
}

pub(crate) fn queued_acquire() -> Op {
    let place = Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears: Hears::Listens, order: Order::Relaxed };
    acquire(Patience::Queue(place))
}

pub(crate) async fn apply(link: &Arc<dyn Link>, op: &Op) -> Answer {
    link.apply(&name(), op, Guess::default()).await.unwrap()
}

pub(crate) async fn granted_to(link: &Arc<dyn Link>) -> Token {
    let answer = apply(link, &queued_acquire()).await;
    let Outcome::Granted { token, .. } = answer.outcome else { panic!("{answer:?}") };
    token
}

pub(crate) fn token_voted_for(node: &Voter) -> Option<Token> {
    node.record("a").grant.filter(|granted| granted.id == ID).map(|granted| granted.token)
}

/// Opens the link of a session, and a lane beside it. Both are connected to all nodes.
pub(crate) async fn link_and_lane(voters: &Voters) -> (Vec<Arc<Shy>>, Arc<dyn Link>, Arc<dyn Link>) {
    let (nodes, store) = Shy::each(voters, Real::world());
    let link = store.open().await.unwrap();
    link.attach(ID.session, Arc::new(|_| {})).await.unwrap();
    let lane = store.open().await.unwrap();
    wait_until("both links are connected to all nodes", SOON, || nodes.iter().all(|node| node.opened() == 2));
    (nodes, link, lane)
}
