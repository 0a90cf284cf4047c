//! The beginning of a quorum: who is asked first, what is refused, and what an operator can do all the same.

use std::time::{Duration, Instant};

use leasehold::seam::node::Begin;
use leasehold::seam::{Real, Script};
use leasehold::{Error, ErrorKind, Guard, Leasehold, Released, quorum};
use leasehold_spec::node::{Ask, Request, Said, Wait};
use leasehold_spec::{GrantId, Order, SessionId, Token};
use leasehold_testkit::proxy::Fault;
use leasehold_testkit::voters::{Mood, Voters};
use leasehold_testkit::{Quorum, RedisServer, Value, wait_until};
use tokio::time::timeout;

use crate::common::{LONG, MARKER, MAX_LEASE, NAME, assert_busy, assert_names, client, join, script, votes, within};
use crate::played::{MAX_LEASE_MS, voters};
use crate::shy::{Hasty, Shy, Silent};

/// Three servers, begun. They keep nothing by themselves.
async fn three() -> Quorum {
    let servers = Quorum::builder(3).max_lease(MAX_LEASE).start();
    quorum::begin(&servers.url()).await.expect("nobody holds");
    servers
}

/// It comes back with what it knows now, and is known to forget.
fn save(server: &RedisServer) {
    assert_eq!(server.command(&["SAVE"]), Value::Status("OK".into()));
}

/// Somebody who holds, at all of these.
async fn held(servers: &Quorum, label: &str) -> (Leasehold, Guard) {
    let builder = Leasehold::builder(&servers.url()).lease(MAX_LEASE).holder(label);
    let client = builder.connect().await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    let all = servers.servers();
    wait_until("the votes of all", LONG, || votes(all, guard.token()) == all.len());
    (client, guard)
}

async fn refused(url: &str) -> Error {
    let error = within(LONG, "an answer", quorum::begin(url)).await.expect_err("somebody may hold");
    println!("{error}");
    error
}

/// What a program that has just come is told while nobody has a majority.
async fn told(url: &str) -> String {
    let begun = Instant::now();
    loop {
        let client = client(url, MAX_LEASE).await;
        let error = client.mutex(NAME).try_lock().await.map(drop).expect_err("no majority votes");
        assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
        let said = error.to_string();
        if !said.contains("is being connected") {
            println!("{said}");
            return said;
        }
        assert!(begun.elapsed() < LONG, "it is never connected to all of them: {said}");
    }
}

/// A holds. Two of three nodes restart empty, and rest. An operator begins the quorum, and B is granted beside A.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_somebody_holds_is_not_begun() {
    let servers = three().await;
    let (_a, guard) = held(&servers, "host/job").await;
    servers.servers()[..2].iter().for_each(RedisServer::restart);
    let error = refused(&servers.url()).await;
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.is_retryable() && !error.may_have_acted());
    let third = format!("\"{NAME}\" is held by host/job (127.0.0.1:{})", servers.server(2).port());
    assert!(said.contains(&third) && said.contains("--force"), "{third:?} is not in: {said}");
    let b = client(&servers.url(), MAX_LEASE).await;
    assert!(!b.mutex(NAME).try_lock().await.is_ok_and(|guard| guard.is_some()), "two holders");
    guard.check().expect("it was told to nobody");
    // Whoever knows better, or thinks so.
    quorum::force_begin(&servers.url()).await.unwrap();
    let second = within(LONG, "the lock", b.mutex(NAME).lock()).await.unwrap();
    assert!(guard.is_valid() && second.is_valid(), "that is what it is refused for");
}

/// Records that a node has saved are there to be read, whether or not it votes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_rest_are_asked_as_well() {
    let servers = three().await;
    let (_a, guard) = held(&servers, "host/job").await;
    servers.servers().iter().for_each(save);
    servers.servers().iter().for_each(RedisServer::restart);
    // Some are greeted by A already, and have another marker; some are not, and have the one of the run before.
    let error = refused(&servers.url()).await;
    assert_eq!(error.kind(), ErrorKind::InUse);
    servers.servers().iter().for_each(|server| drop(server.command(&["DEL", MARKER])));
    let error = refused(&servers.url()).await;
    assert_eq!(error.kind(), ErrorKind::InUse);
    for server in servers.servers() {
        assert!(error.to_string().contains(&server.port().to_string()), "{error}");
    }
    drop(guard);
}

/// A record outlives its lease by a minute: nobody has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_only_remembered_does_not_count() {
    let servers = three().await;
    let client = client(&servers.url(), MAX_LEASE).await;
    let released = client.mutex("released").lock().await.unwrap();
    assert_eq!(released.release().await.unwrap(), Released::Released);
    let ended = client.mutex(NAME).fixed_lease(Duration::from_millis(300)).lock().await.unwrap();
    within(LONG, "the end", ended.lost()).await;
    let begun = Instant::now();
    while let Err(error) = quorum::begin(&servers.url()).await {
        assert_eq!(error.kind(), ErrorKind::InUse, "the release of a node that is slow: {error}");
        assert!(begun.elapsed() < LONG, "{error}");
    }
    for key in ["lq1:{released}", "lq1:{stock}"] {
        let remembers = |server: &RedisServer| server.command(&["EXISTS", key]) == Value::Int(1);
        assert!(servers.servers().iter().any(remembers), "there is no record at {key}");
    }
}

/// Below another prefix is another quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_below_the_prefix_counts() {
    let servers = three().await;
    let (_a, _guard) = held(&servers, "host/job").await;
    let below = |prefix: &str| format!("{}&prefix={prefix}", servers.url());
    quorum::begin(&below("other:")).await.expect("nobody holds there");
    let there = Leasehold::connect(&below("other:")).await.unwrap();
    let guard = there.mutex("theirs").lock().await.unwrap();
    let error = refused(&below("other:")).await;
    assert!(error.to_string().contains("\"theirs\"") && !error.to_string().contains(NAME), "{error}");
    let error = refused(&servers.url()).await;
    assert!(error.to_string().contains(NAME) && !error.to_string().contains("theirs"), "{error}");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_holders_are_counted_and_a_few_are_named() {
    let servers = three().await;
    let client = client(&servers.url(), MAX_LEASE).await;
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(client.mutex(format!("lock-{number:02}")).lock().await.unwrap());
    }
    wait_until("all nodes know them", LONG, || {
        servers.servers().iter().all(|server| server.command(&["DBSIZE"]) == Value::Int(31))
    });
    let said = refused(&servers.url()).await.to_string();
    assert!(said.contains("\"lock-00\"") && said.contains("\"lock-09\"") && !said.contains("lock-10"), "{said}");
    assert!(said.contains("; and 20 more;"), "{said}");
}

/// A name that nobody holds, and for which somebody waits: at one of three nodes.
fn a_waiter(voters: &Voters, label: &str) {
    let node = &voters.nodes[1];
    let ask = |session, lease_ms, wait| {
        let id = GrantId { session: SessionId(session), counter: 1, nonce: 1 };
        let token = Token::new(node.clock_us()).unwrap();
        let not_after_us = node.clock_us() + 2_000_000;
        let ask = Ask { id, token, range: 1, lease_ms, not_after_us, wait, label: label.into() };
        node.ask("wanted", &Request::Ask(ask)).said
    };
    assert!(matches!(ask(1, 1, None), Said::Granted { .. }));
    let waits = ask(2, 1_000, Some(Wait { ticket: 1, order: Order::Relaxed }));
    assert!(matches!(waits, Said::Refused { .. }), "{waits:?}");
    wait_until("the lease is over", LONG, || {
        let grant = node.record("wanted").grant;
        grant.is_none_or(|grant| grant.end_us() <= node.clock_us())
    });
}

#[tokio::test]
async fn a_waiter_is_enough_for_a_refusal() {
    let voters = voters(3);
    let (_, store) = Shy::quorum(&voters, Real::world());
    for lost in ["begun", "emptied at the others"] {
        if lost != "begun" {
            voters.nodes[0].restart_empty();
            voters.nodes[2].restart_empty();
        } else {
            a_waiter(&voters, "host/job");
        }
        let error = store.begin(Begin::Asked).await.expect_err(lost);
        assert_eq!(error.kind(), ErrorKind::InUse, "{lost}: {error}");
        let said = error.to_string();
        assert!(said.contains("\"wanted\" has 1 waiter (node-1:6379)"), "{lost}: {said}");
    }
    assert_eq!(granted(&voters, 0), None, "it was told nothing");
    store.begin(Begin::Forced).await.unwrap();
    assert_eq!(granted(&voters, 0), Some(()));
}

/// Whether a node votes.
fn granted(voters: &Voters, node: usize) -> Option<()> {
    voters.nodes[node].marker().filter(|marker| marker.rests_until_us == 0).map(drop)
}

/// A name or a label that somebody wrote by hand gives no orders to the terminal that shows the error.
#[tokio::test]
async fn a_label_is_shown_without_what_a_terminal_obeys() {
    let voters = voters(3);
    let (_, store) = Shy::quorum(&voters, Real::world());
    let client = client_of(&voters).await;
    let _guard = client.mutex("a \"b\"").lock().await.unwrap();
    let error = store.begin(Begin::Asked).await.expect_err("held");
    assert!(error.to_string().contains("\"a \\\"b\\\"\" is held by "), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_look_is_told_what_to_do() {
    let servers = Quorum::builder(3).max_lease(MAX_LEASE).start();
    for server in servers.servers() {
        let may = ["ACL", "SETUSER", "worker", "reset", "on", ">secret", "~*", "&*", "+@all", "-scan"];
        assert_eq!(server.command(&may), Value::Status("OK".into()));
    }
    let url = servers.url().replace("redis://", "redis://worker:secret@");
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    for part in ["lacks +scan", "ACL SETUSER", "--force", "127.0.0.1:"] {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
    assert!(told(&servers.url()).await.contains("0 of 3 nodes vote"), "none was told");
    quorum::force_begin(&url).await.unwrap();
    drop(client(&servers.url(), MAX_LEASE).await.mutex(NAME).lock().await.unwrap());
}

/// Nobody can say whose it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_may_be_held() {
    let servers = three().await;
    for (put, says) in [("something", "did not write"), ("lq2HN-", "layout 2")] {
        servers.server(1).command(&["SET", "lq1:{foo}", put]);
        let error = refused(&servers.url()).await;
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        assert!(error.to_string().contains("lq1:{foo}") && error.to_string().contains(says), "{error}");
    }
    // Before any node is told, as it would be at the marker's place.
    servers.server(1).command(&["DEL", "lq1:{foo}"]);
    servers.server(2).command(&["RPUSH", "list", "1"]);
    servers.server(2).command(&["RENAME", "list", MARKER]);
    servers.server(0).command(&["DEL", MARKER]);
    let error = refused(&servers.url()).await;
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert_eq!(servers.server(0).command(&["EXISTS", MARKER]), Value::Int(0), "it was told nothing");
}

/// 100,000 names that were used within the last minute, and as many keys of somebody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_many_records_is_looked_through() {
    let servers = three().await;
    let client = client(&servers.url(), MAX_LEASE).await;
    let released = client.mutex(NAME).lock().await.unwrap();
    assert_eq!(released.release().await.unwrap(), Released::Released);
    // The release returned after two nodes had released, and the third may be this one.
    let state = || servers.server(0).command(&["GETRANGE", "lq1:{stock}", "3", "3"]);
    wait_until("the release on the first node", LONG, || state() == Value::Bulk(b"F".to_vec()));
    let copy = "local record = redis.call('GET', 'lq1:{stock}') \
                for at = 1, 100000 do redis.call('SET', 'lq1:{n' .. at .. '}', record, 'PX', 600000) \
                redis.call('SET', 'theirs' .. at, '') end";
    assert_eq!(servers.server(0).command(&["EVAL", copy, "0"]), Value::Nil);
    let begun = Instant::now();
    within(LONG, "an answer", quorum::begin(&servers.url())).await.unwrap();
    println!("looked through in {:?}", begun.elapsed());
    let guard = client.mutex("n77777").lock().await.unwrap();
    let begun = Instant::now();
    let error = refused(&servers.url()).await;
    println!("refused after {:?}", begun.elapsed());
    assert!(error.to_string().contains("\"n77777\" is held by "), "{error}");
    drop(guard);
}

/// Whatever has no end is given up, and no node is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looking_has_a_bound() {
    let voters = voters(3);
    let (nodes, store) = Shy::quorum(&voters, Hasty::world());
    voters.nodes.iter().for_each(|node| node.flush());
    nodes[1].be(Silent::Names);
    let error = timeout(LONG, store.begin(Begin::Asked)).await.expect("an answer").expect_err("no end");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let said = error.to_string();
    assert!(said.contains("node-1:6379: too many keys to read within 60 s") && said.contains("--force"), "{said}");
    nodes[1].be(Silent::Ping);
    let error = timeout(LONG, store.begin(Begin::Asked)).await.expect("an answer").expect_err("no answer");
    assert!(error.to_string().contains("node-1:6379 accepts connections but does not reply"), "{error}");
    nodes[1].be(Silent::Never);
    voters.nodes[1].be(Mood::Dead);
    timeout(LONG, store.begin(Begin::Asked)).await.expect("an answer").expect_err("it is dead");
    assert!((0..3).all(|node| granted(&voters, node).is_none()), "some was told");
    voters.nodes[1].be(Mood::Answers);
    store.begin(Begin::Asked).await.unwrap();
    assert!((0..3).all(|node| granted(&voters, node).is_some()));
}

/// One that holds is named although another node has no end: the answer is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_named_before_all_are_looked_through() {
    let voters = voters(3);
    let (nodes, store) = Shy::quorum(&voters, Hasty::world());
    a_waiter(&voters, "host/job");
    nodes[0].be(Silent::Names);
    let begun = Instant::now();
    let error = timeout(LONG, store.begin(Begin::Asked)).await.expect("an answer").expect_err("somebody waits");
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// Nobody holds, and a node remembers a token that is ahead of the others' clocks. They have forgotten it, and would vote
/// for a smaller one: a late write of the holder before would pass a fence behind the next holder's.
#[tokio::test]
async fn nodes_begin_when_their_clocks_have_passed_every_token() {
    const AHEAD: Duration = Duration::from_millis(700);
    let voters = voters(3);
    let (_, store) = Shy::quorum(&voters, Real::world());
    let ahead_us = i64::try_from(AHEAD.as_micros()).unwrap();
    voters.nodes.iter().for_each(|node| node.set_clock(ahead_us));
    let client = client_of(&voters).await;
    let first = client.mutex(NAME).lock().await.unwrap();
    let token = first.token();
    assert_eq!(first.release().await.unwrap(), Released::Released);
    assert!(client.close().await.unconfirmed().is_empty());
    voters.nodes.iter().for_each(|node| node.set_clock(-ahead_us));
    voters.nodes[0].restart_empty();
    voters.nodes[2].restart_empty();
    let begun = Instant::now();
    store.begin(Begin::Asked).await.unwrap();
    println!("begun after {:?}", begun.elapsed());
    voters.nodes[1].be(Mood::Dead);
    let next = client_of(&voters).await.mutex(NAME).lock().await.unwrap();
    assert!(next.token() > token, "{} behind {token}", next.token());
    // Further than any clock may be from the true time: then nothing is right by waiting.
    voters.nodes[1].be(Mood::Answers);
    voters.nodes[1].set_clock(-60_000_000);
    let gone = next.release().await.unwrap();
    assert_eq!(gone, Released::Released);
    let error = store.begin(Begin::Asked).await.expect_err("a clock was set back");
    println!("{error}");
    assert!(error.to_string().contains("node-1:6379") && error.to_string().contains("--force"), "{error}");
    store.begin(Begin::Forced).await.unwrap();
}

async fn client_of(voters: &Voters) -> Leasehold {
    let builder = Leasehold::builder("").lease(Duration::from_millis(MAX_LEASE_MS));
    builder.connect_to(voters.store(), Real::world()).await.unwrap()
}

/// What is granted between the question and the marker is known by those that granted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_behind_the_question_is_kept() {
    let servers = three().await;
    let (a, b) = (client(&servers.url(), MAX_LEASE).await, client(&servers.url(), MAX_LEASE).await);
    let telling = |quorum: &Quorum, at: usize| quorum.proxy(at).inject(Fault::hold(script(Script::NodeBegin)));
    let held: Vec<_> = (0..3).map(|at| telling(&servers, at)).collect();
    let url = servers.url_by_proxy();
    let beginning = tokio::spawn(async move { quorum::begin(&url).await });
    held.iter().for_each(|held| held.wait(1, LONG));
    let guard = a.mutex(NAME).lock().await.unwrap();
    held.iter().for_each(leasehold_testkit::proxy::Injected::lift);
    within(LONG, "the end", beginning).await.unwrap().expect("nobody held when it asked");
    assert_busy(&b.mutex(NAME)).await;
    guard.check().expect("it holds");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// A holds at a node that is asked before A does. The node is emptied, and would vote at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_emptied_behind_the_question_does_not_begin() {
    let servers = three().await;
    let a = client(&servers.url(), MAX_LEASE).await;
    let telling = Fault::hold(script(Script::NodeBegin));
    let held = servers.proxy(1).inject(telling);
    let url = servers.url_by_proxy();
    let beginning = tokio::spawn(async move { quorum::begin(&url).await });
    held.wait(1, LONG);
    let guard = a.mutex(NAME).lock().await.unwrap();
    servers.server(1).command(&["FLUSHALL"]);
    held.lift();
    let error = within(LONG, "the end", beginning).await.unwrap().expect_err("it may have voted for somebody");
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{} was emptied", servers.proxy(1).port())), "{error}");
    drop(guard);
}

/// Whoever is told to begin a quorum that was in use makes two holders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_was_in_use_is_not_said_to_be_new() {
    let servers = three().await;
    let (a, _guard) = held(&servers, "host/job").await;
    let waiting = join(&client(&servers.url(), MAX_LEASE).await, servers.servers()).await;
    servers.servers()[..2].iter().for_each(RedisServer::restart);
    // One node votes.
    let said = told(&servers.url()).await;
    assert!(!said.contains("begin") && said.contains("; wait: a majority votes in "), "{said}");
    assert_names(&said, &servers.servers()[..2], "is in quarantine for ");
    // None does, and a client remembers that they did.
    servers.server(2).restart();
    let begun = Instant::now();
    let said = loop {
        let tried = a.mutex(NAME).try_lock().await;
        let said = tried.map(|guard| guard.map(drop)).map_err(|error| error.to_string());
        match said {
            Err(said) if said.matches("is in quarantine for ").count() == 3 => break said,
            said => assert!(begun.elapsed() < LONG, "they never rest: {said:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(!said.contains("begin") && said.contains("it was restarted or emptied"), "{said}");
    waiting.abort();
}

/// A marker of another run says so to those who were not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_restart_with_their_files_are_not_said_to_be_new() {
    let servers = three().await;
    servers.servers().iter().for_each(save);
    servers.servers().iter().for_each(RedisServer::restart);
    for greeted in ["first", "later"] {
        let said = told(&servers.url()).await;
        assert!(!said.contains("begin") && said.contains("; wait: a majority votes in "), "{greeted}: {said}");
        assert_names(&said, servers.servers(), "is in quarantine for ");
        assert_eq!(said.matches("it was restarted or emptied").count(), 3, "{greeted}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quorum_that_is_new_is_said_to_be_begun() {
    let servers = Quorum::builder(3).max_lease(MAX_LEASE).start();
    for greeted in ["first", "later"] {
        let said = told(&servers.url()).await;
        assert!(said.contains("if this quorum was never used, run `leasehold quorum begin`"), "{greeted}: {said}");
        assert_eq!(said.matches("it is new, or was emptied").count(), 3, "{greeted}: {said}");
    }
    // It cannot be begun while one of them is away.
    servers.server(1).kill();
    let said = told(&servers.url()).await;
    assert!(!said.contains("begin"), "{said}");
}
