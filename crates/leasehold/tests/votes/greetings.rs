//! One node: greetings, requests and messages.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::ErrorKind;
use leasehold::seam::node::{Begin, NoVote, Node, NodeLink, NodeMessage};
use leasehold::seam::{Fault, NODE_RIGHTS, Real, RedisNode};
use leasehold_spec::node::{Abstention, Ask, Charter, Renewal, Request, Rings, Said, Vote, Wait};
use leasehold_spec::{Contention, From, GrantId, LostHow, Name, Order, SessionId, Token, Was};
use leasehold_testkit::{RedisServer, Value};

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
    node(server).prepare(CHARTER).await.unwrap().begin(Begin::Asked).await.unwrap();
    opened(server).await
}

async fn said(link: &Arc<dyn NodeLink>, request: &Request) -> Vote {
    link.ask(&Name::new("a {b}").unwrap(), request).await.unwrap()
}

#[tokio::test]
async fn a_vote_is_granted_renewed_and_released_and_the_next_waiter_is_called() {
    let server = RedisServer::builder().start();
    let link = begun(&server).await;
    let name = Name::new("a {b}").unwrap();
    let heard: Arc<Mutex<Vec<NodeMessage>>> = Arc::default();
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

    let vote = said(&link, &Request::GiveBack { id: id(1), upto: Token::HIGHEST, wait: None }).await;
    assert_eq!((vote.said, vote.has_called), (Said::GivenBack { was: Was::Granted }, true));
    link.ping().await.unwrap();
    let rungs = std::mem::take(&mut *heard.lock().unwrap());
    let [NodeMessage::Bell(of, wanted), NodeMessage::Bell(_, called)] = rungs.as_slice() else { panic!("{rungs:?}") };
    assert_eq!((of, wanted.id, wanted.rings), (&name, id(1), Rings::Wanted { token: Token::new(token).unwrap() }));
    assert_eq!((called.id, called.rings), (id(2), Rings::Call));
    assert_eq!(link.names(0).await.unwrap().0, [name]);

    link.close();
    for _ in 0..1_000 {
        if link.is_closed() && matches!(heard.lock().unwrap().as_slice(), [NodeMessage::Detached]) {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("no message about the end");
}

#[tokio::test]
async fn a_new_node_is_in_quarantine_and_accepts_releases() {
    let server = RedisServer::builder().start();
    let link = opened(&server).await;
    let refused = link.ask(&Name::new("a").unwrap(), &ask(id(1), now_us(), None)).await.unwrap_err();
    let NoVote::Abstains(Abstention::Resting { left_us }) = refused else { panic!("{refused:?}") };
    assert!((59_000_000..=60_000_000).contains(&left_us), "{left_us}");
    let vote = said(&link, &Request::GiveBack { id: id(1), upto: Token::HIGHEST, wait: None }).await;
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

/// Returns the rest of the node's quarantine, according to the answer to a request for a vote.
async fn quarantine_us(server: &RedisServer, link: &Arc<dyn NodeLink>) -> u64 {
    // The token is far from the clock, so that the node does not vote.
    match link.ask(&Name::new(&format!("port {}", server.port())).unwrap(), &ask(id(1), 1, None)).await {
        Ok(_) => 0,
        Err(NoVote::Abstains(Abstention::Resting { left_us })) => left_us,
        Err(other) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_restart_means_quarantine_unless_everything_was_saved_before_and_is_now() {
    // The state is saved in both cases, and the marker is there after the restart.
    for (fsync, later, rests) in [
        ("everysec", "everysec", true),
        ("always", "always", false),
        ("everysec", "always", true),
        ("always", "no", true),
    ] {
        let server = RedisServer::builder().appendonly(fsync).start();
        let link = begun(&server).await;
        assert_eq!(quarantine_us(&server, &link).await, 0);
        let run = link.run_id().to_owned();
        server.command(&["CONFIG", "SET", "appendfsync", "always"]);
        server.kill();
        server.restart();
        // As if the configuration had been so from the start on.
        server.command(&["CONFIG", "SET", "appendfsync", later]);
        let link = opened(&server).await;
        assert_ne!(link.run_id(), run);
        assert_eq!(quarantine_us(&server, &link).await > 0, rests, "{fsync}, then {later}");
    }
}

#[tokio::test]
async fn a_flushed_node_abstains_and_is_in_quarantine_from_the_next_greeting() {
    let server = RedisServer::builder().start();
    let link = begun(&server).await;
    server.command(&["FLUSHALL"]);
    let refused = link.ask(&Name::new("a").unwrap(), &ask(id(1), now_us(), None)).await.unwrap_err();
    assert!(matches!(refused, NoVote::Abstains(Abstention::Unmarked)), "{refused:?}");
    let renewal = Renewal {
        id: id(1),
        token: Token::new(1).unwrap(),
        range: 1,
        from: From::Now,
        lease_ms: 100,
        not_after_us: now_us() + 2_000_000,
        fill: None,
    };
    let batch: Vec<_> = (0..20).map(|at| (Name::new(&at.to_string()).unwrap(), renewal.clone())).collect();
    let votes = link.renew(&batch).await;
    assert!(votes.len() == 20 && votes.iter().all(|vote| matches!(vote, Err(NoVote::Abstains(_)))), "{votes:?}");
    assert!(quarantine_us(&server, &opened(&server).await).await > 59_000_000);
}

#[tokio::test]
async fn a_forgotten_script_is_sent_again() {
    let server = RedisServer::builder().start();
    let link = begun(&server).await;
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(said(&link, &Request::Settle).await.said, Said::Settled);
}

#[tokio::test]
async fn foreign_keys_are_refused_and_kept() {
    let server = RedisServer::builder().start();
    let link = begun(&server).await;
    let key = "lq1:{a %7Bb%7D}";
    for (put, says) in [
        (vec!["RPUSH", key, "1"], "has a list"),
        (vec!["SET", key, "something"], "has a string"),
        (vec!["SET", key, ""], "has a string"),
        (vec!["SET", key, "lq1FN-"], "has a string"),
        (vec!["SET", key, "lq2FN-and all that"], "has layout 2"),
    ] {
        server.command(&["DEL", key]);
        server.command(&put);
        let before = server.command(&["DUMP", key]);
        let requests = [
            ask(id(1), now_us(), waiting(1)),
            Request::GiveBack { id: id(1), upto: Token::HIGHEST, wait: None },
            Request::Settle,
            Request::Inspect,
            Request::Revoke { holder: id(1).public(), token: Token::new(1).unwrap(), grace_ms: 0 },
        ];
        for request in &requests {
            let refused = link.ask(&Name::new("a {b}").unwrap(), request).await.unwrap_err();
            let NoVote::Fault(Fault::Refused(error)) = refused else { panic!("{refused:?}") };
            assert_eq!(error.kind(), ErrorKind::Foreign);
            assert!(error.to_string().contains(says), "{error}");
        }
        assert_eq!(server.command(&["DUMP", key]), before);
    }
    // The key of the queue, while the name is held so that a client would wait there.
    server.command(&["DEL", key]);
    said(&link, &ask(id(1), now_us(), None)).await;
    for (put, last) in [(vec!["RPUSH", "lq1q:{a %7Bb%7D}", "1"], 1), (vec!["ZADD", "lq1q:{a %7Bb%7D}", "1", "x"], 2)] {
        server.command(&put);
        let refused = link.ask(&Name::new("a {b}").unwrap(), &ask(id(2), now_us(), waiting(1))).await.unwrap_err();
        let NoVote::Fault(Fault::Refused(error)) = refused else { panic!("{refused:?}") };
        assert_eq!(error.kind(), ErrorKind::Foreign, "{last}: {error}");
        assert_eq!(server.command(&["DEL", "lq1q:{a %7Bb%7D}"]), Value::Int(1));
    }
    // The key of the marker.
    server.command(&["SET", "lq1:marker", "something"]);
    let Err(error) = node(&server).open(CHARTER).await else { panic!("entered") };
    assert_eq!(error.kind(), ErrorKind::Foreign);
    server.command(&["SET", "lq1:marker", "lq3mine"]);
    let Err(error) = node(&server).prepare(CHARTER).await else { panic!("begun") };
    assert!(error.to_string().contains("layout 3"), "{error}");
}

#[tokio::test]
async fn the_documented_rights_are_enough_and_each_is_needed() {
    let server = RedisServer::builder().start();
    drop(begun(&server).await);
    let patterns = ["~lq1:*", "~lq1q:*", "&lq1:inbox:*"];
    let url = format!("redis://worker:secret@127.0.0.1:{}/1", server.port());
    let worker = RedisNode::parse(&url, Real::world()).unwrap();
    let set = |rights: &[&str]| {
        let all = [&["ACL", "SETUSER", "worker", "reset", "on", ">secret"], rights, &patterns].concat();
        assert_eq!(server.command(&all), Value::Status("OK".into()));
    };
    let named: Vec<&str> = NODE_RIGHTS.split(' ').collect();
    for missing in &named {
        let rest: Vec<&str> = named.iter().copied().filter(|right| right != missing).collect();
        set(&rest);
        let opened = match worker.open(CHARTER).await {
            Ok(link) => link.attach(SessionId(7), Arc::new(|_| {})).await.map_err(|fault| format!("{fault:?}")),
            Err(error) => Err(format!("{} {error}", error.kind() == ErrorKind::Denied)),
        };
        let said = opened.expect_err(missing);
        assert!(said.contains(missing.strip_prefix('+').unwrap()), "{missing} is not named: {said}");
    }
    set(&named);
    worker.prepare(CHARTER).await.unwrap().begin(Begin::Asked).await.unwrap();
    let link = worker.open(CHARTER).await.unwrap();
    link.attach(SessionId(7), Arc::new(|_| {})).await.unwrap();
    server.command(&["ACL", "LOG", "RESET"]);
    let token = now_us();
    said(&link, &ask(id(1), token, None)).await;
    said(&link, &ask(id(2), token + 9, waiting(1))).await;
    said(&link, &ask(id(2), token + 9, waiting(2))).await;
    for at in 3..6 {
        let dead = GrantId { session: SessionId(8), counter: at, nonce: 1 };
        said(&link, &ask(dead, token + 9, waiting(0))).await;
    }
    said(&link, &Request::GiveBack { id: id(1), upto: Token::HIGHEST, wait: None }).await;
    said(&link, &Request::GiveBack { id: id(2), upto: Token::HIGHEST, wait: waiting(3) }).await;
    said(&link, &Request::Inspect).await;
    // This includes commands that a script tried with `pcall`.
    assert_eq!(server.command(&["ACL", "LOG"]), Value::Array(vec![]), "a command was refused");
}
