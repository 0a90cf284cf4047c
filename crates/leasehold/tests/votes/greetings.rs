//! One node, greeted, asked and listened to.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::ErrorKind;
use leasehold::seam::node::{NoVote, Node, NodeLink, Rung};
use leasehold::seam::{Real, RedisNode};
use leasehold_spec::node::{Abstention, Ask, Charter, Renewal, Request, Rings, Said, Vote, Wait};
use leasehold_spec::{Contention, From, GrantId, LostHow, Name, Order, SessionId, Token, Was};
use leasehold_testkit::RedisServer;

const CHARTER: Charter = Charter { nodes: 3, max_lease_ms: 60_000 };

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
    u64::try_from(now).unwrap()
}

fn id(counter: u64) -> GrantId {
    GrantId { session: SessionId(7), counter, nonce: 9 }
}

fn ask(id: GrantId, token: u64, wait: Option<Wait>) -> Request {
    let token = Token::new(token).unwrap();
    let not_after_us = now_us() + 2_000_000;
    Request::Ask(Ask { id, token, range: 5, lease_ms: 30_000, not_after_us, wait, label: "me, myself".into() })
}

fn waiting(ticket: u64) -> Option<Wait> {
    Some(Wait { ticket, order: Order::Relaxed })
}

fn node(server: &RedisServer) -> RedisNode {
    RedisNode::parse(&server.url(), Real::world()).unwrap()
}

async fn opened(server: &RedisServer) -> Arc<dyn NodeLink> {
    node(server).open(CHARTER).await.unwrap()
}

async fn begun(server: &RedisServer) -> Arc<dyn NodeLink> {
    node(server).begin(CHARTER).await.unwrap();
    opened(server).await
}

async fn said(link: &Arc<dyn NodeLink>, request: &Request) -> Vote {
    link.ask(&Name::new("a {b}").unwrap(), request).await.unwrap()
}

#[tokio::test]
async fn a_vote_is_given_renewed_and_given_back_and_the_next_one_called() {
    let server = RedisServer::builder().start();
    let link = begun(&server).await;
    let name = Name::new("a {b}").unwrap();
    let heard: Arc<Mutex<Vec<Rung>>> = Arc::default();
    let into = Arc::clone(&heard);
    link.attach(SessionId(7), Arc::new(move |rung| into.lock().unwrap().push(rung))).await.unwrap();

    let token = now_us();
    let vote = said(&link, &ask(id(1), token, None)).await;
    let granted = Said::Granted { token: Token::new(token).unwrap(), range: 5, left_us: 30_000_000 };
    assert_eq!((vote.said, vote.highest.get(), vote.contention), (granted, token + 4, Contention::None));

    let vote = said(&link, &ask(id(2), token + 9, waiting(1))).await;
    let Said::Refused { holder: Some(holder), left_us } = vote.said else { panic!("{vote:?}") };
    assert_eq!((holder, vote.contention), (id(1).public(), Contention::Others));
    assert!((29_000_000..=30_000_000).contains(&left_us));

    let renewal = Renewal {
        id: id(1),
        token: Token::new(token).unwrap(),
        range: 5,
        from: From::Now,
        lease_ms: 20_000,
        not_after_us: now_us() + 2_000_000,
        fill: None,
    };
    let other = Name::new("other").unwrap();
    let votes = link.renew(&[(name.clone(), renewal.clone()), (other, renewal)]).await;
    let votes: Vec<_> = votes.into_iter().map(|vote| vote.unwrap().said).collect();
    assert_eq!(votes, [Said::Renewed { left_us: 20_000_000 }, Said::Lost { how: LostHow::NotHeld }]);

    let vote = said(&link, &Request::GiveBack { id: id(1), wait: None }).await;
    assert_eq!((vote.said, vote.has_called), (Said::GivenBack { was: Was::Granted }, true));
    link.ping().await.unwrap();
    let rungs = std::mem::take(&mut *heard.lock().unwrap());
    let [Rung::Bell(of, wanted), Rung::Bell(_, called)] = rungs.as_slice() else { panic!("{rungs:?}") };
    assert_eq!((of, wanted.id, wanted.rings), (&name, id(1), Rings::Wanted { token: Token::new(token).unwrap() }));
    assert_eq!((called.id, called.rings), (id(2), Rings::Call));
    assert_eq!(link.names(0).await.unwrap().0, [name]);

    link.close();
    for _ in 0..1_000 {
        if link.is_closed() && matches!(heard.lock().unwrap().as_slice(), [Rung::Detached]) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("nobody was told of the end");
}

#[tokio::test]
async fn a_node_that_nobody_knows_rests_and_gives_back_meanwhile() {
    let server = RedisServer::builder().start();
    let link = opened(&server).await;
    let refused = link.ask(&Name::new("a").unwrap(), &ask(id(1), now_us(), None)).await.unwrap_err();
    let NoVote::Abstains(Abstention::Resting { left_us }) = refused else { panic!("{refused:?}") };
    assert!((59_000_000..=60_000_000).contains(&left_us), "{left_us}");
    let vote = said(&link, &Request::GiveBack { id: id(1), wait: None }).await;
    assert_eq!(vote.said, Said::GivenBack { was: Was::Absent });
}

#[tokio::test]
async fn another_charter_is_refused_with_both() {
    let server = RedisServer::builder().start();
    drop(opened(&server).await);
    let Err(error) = node(&server).open(Charter { nodes: 5, max_lease_ms: 60_000 }).await else { panic!("entered") };
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("quorum of 3 nodes") && text.contains("one of 5 nodes"), "{text}");
}
