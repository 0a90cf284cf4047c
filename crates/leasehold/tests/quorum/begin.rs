//! `quorum begin`: the inspection of all nodes, the refusals, and `--force`.

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

/// Starts and initializes three servers that save nothing by themselves.
async fn three() -> Quorum {
    let servers = Quorum::builder(3).max_lease(MAX_LEASE).start();
    quorum::begin(&servers.url()).await.expect("no lock is held");
    servers
}

/// Saves the state of a server, which is known to forget. After a restart the server has this state.
fn save(server: &RedisServer) {
    assert_eq!(server.command(&["SAVE"]), Value::Status("OK".into()));
}

/// Acquires the lock at all of these servers.
async fn held(servers: &Quorum, label: &str) -> (Leasehold, Guard) {
    let builder = Leasehold::builder(&servers.url()).lease(MAX_LEASE).holder(label);
    let client = builder.connect().await.unwrap();
    let guard = client.mutex(NAME).lock().await.unwrap();
    let all = servers.servers();
    wait_until("the votes of all", LONG, || votes(all, guard.token()) == all.len());
    (client, guard)
}

async fn refused(url: &str) -> Error {
    let error = within(LONG, "an answer", quorum::begin(url)).await.expect_err("there may be a holder");
    println!("{error}");
    error
}

/// Returns the error that a new client gets without a majority.
async fn majority_error(url: &str) -> String {
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

/// A holds the lock. Two of three nodes restart empty, and are in quarantine. An operator initializes the quorum. B is
/// granted while A holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_refuses_a_quorum_with_a_holder() {
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
    guard.check().expect("no marker was written");
    // An operator insists.
    quorum::force_begin(&servers.url()).await.unwrap();
    let second = within(LONG, "the lock", b.mutex(NAME).lock()).await.unwrap();
    assert!(guard.is_valid() && second.is_valid(), "the refusal prevents exactly this");
}

/// A saved record can be inspected, whether or not its node votes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_inspects_nodes_in_quarantine() {
    let servers = three().await;
    let (_a, guard) = held(&servers, "host/job").await;
    servers.servers().iter().for_each(save);
    servers.servers().iter().for_each(RedisServer::restart);
    // A has greeted some nodes already, and these have a new marker. The others have the marker of their previous run.
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

/// A record exists for a minute after the end of its lease. It has no holder then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_ignores_records_without_a_holder() {
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

/// Another prefix means another quorum.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_inspects_only_its_prefix() {
    let servers = three().await;
    let (_a, _guard) = held(&servers, "host/job").await;
    let below = |prefix: &str| format!("{}&prefix={prefix}", servers.url());
    quorum::begin(&below("other:")).await.expect("there is no holder");
    let there = Leasehold::connect(&below("other:")).await.unwrap();
    let guard = there.mutex("theirs").lock().await.unwrap();
    let error = refused(&below("other:")).await;
    assert!(error.to_string().contains("\"theirs\"") && !error.to_string().contains(NAME), "{error}");
    let error = refused(&servers.url()).await;
    assert!(error.to_string().contains(NAME) && !error.to_string().contains("theirs"), "{error}");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_counts_all_holders_and_names_a_few() {
    let servers = three().await;
    let client = client(&servers.url(), MAX_LEASE).await;
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(client.mutex(format!("lock-{number:02}")).lock().await.unwrap());
    }
    wait_until("all nodes know the holders", LONG, || {
        servers.servers().iter().all(|server| server.command(&["DBSIZE"]) == Value::Int(31))
    });
    let said = refused(&servers.url()).await.to_string();
    assert!(said.contains("\"lock-00\"") && said.contains("\"lock-09\"") && !said.contains("lock-10"), "{said}");
    assert!(said.contains("; and 20 more;"), "{said}");
}

/// Makes one of three nodes know a waiter for a name without a holder.
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
async fn begin_refuses_a_quorum_with_a_waiter() {
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
    assert_eq!(granted(&voters, 0), None, "its marker was not written");
    store.begin(Begin::Forced).await.unwrap();
    assert_eq!(granted(&voters, 0), Some(()));
}

/// Returns whether a node votes.
fn granted(voters: &Voters, node: usize) -> Option<()> {
    voters.nodes[node].marker().filter(|marker| marker.rests_until_us == 0).map(drop)
}

/// A name or a label with control characters must not control the terminal that shows the error.
#[tokio::test]
async fn begin_escapes_control_characters() {
    let voters = voters(3);
    let (_, store) = Shy::quorum(&voters, Real::world());
    let client = client_of(&voters).await;
    let _guard = client.mutex("a \"b\"").lock().await.unwrap();
    let error = store.begin(Begin::Asked).await.expect_err("held");
    assert!(error.to_string().contains("\"a \\\"b\\\"\" is held by "), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_right_to_inspect_gets_advice() {
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
    assert!(majority_error(&servers.url()).await.contains("0 of 3 nodes vote"), "no marker was written");
    quorum::force_begin(&url).await.unwrap();
    drop(client(&servers.url(), MAX_LEASE).await.mutex(NAME).lock().await.unwrap());
}

/// The holder of an unreadable record is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_refuses_an_unreadable_record() {
    let servers = three().await;
    for (put, says) in [("something", "did not write"), ("lq2HN-", "layout 2")] {
        servers.server(1).command(&["SET", "lq1:{foo}", put]);
        let error = refused(&servers.url()).await;
        assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
        assert!(error.to_string().contains("lq1:{foo}") && error.to_string().contains(says), "{error}");
    }
    // The error comes before any marker is written.
    servers.server(1).command(&["DEL", "lq1:{foo}"]);
    servers.server(2).command(&["RPUSH", "list", "1"]);
    servers.server(2).command(&["RENAME", "list", MARKER]);
    servers.server(0).command(&["DEL", MARKER]);
    let error = refused(&servers.url()).await;
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert_eq!(servers.server(0).command(&["EXISTS", MARKER]), Value::Int(0), "its marker was not written");
}

/// 100,000 names that were used within the last minute, and as many keys of another program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_inspects_a_node_with_many_records() {
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
    println!("inspected in {:?}", begun.elapsed());
    let guard = client.mutex("n77777").lock().await.unwrap();
    let begun = Instant::now();
    let error = refused(&servers.url()).await;
    println!("refused after {:?}", begun.elapsed());
    assert!(error.to_string().contains("\"n77777\" is held by "), "{error}");
    drop(guard);
}

/// An endless inspection is given up, and no marker is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_inspection_has_a_bound() {
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
    assert!(error.to_string().contains("node-1:6379: no reply within 5 s"), "{error}");
    nodes[1].be(Silent::Never);
    voters.nodes[1].be(Mood::Dead);
    timeout(LONG, store.begin(Begin::Asked)).await.expect("an answer").expect_err("it is dead");
    assert!((0..3).all(|node| granted(&voters, node).is_none()), "a marker was written");
    voters.nodes[1].be(Mood::Answers);
    store.begin(Begin::Asked).await.unwrap();
    assert!((0..3).all(|node| granted(&voters, node).is_some()));
}

/// The error names a holder although the inspection of another node does not end: the answer is certain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_names_a_holder_before_all_nodes_are_inspected() {
    let voters = voters(3);
    let (nodes, store) = Shy::quorum(&voters, Hasty::world());
    a_waiter(&voters, "host/job");
    nodes[0].be(Silent::Names);
    let begun = Instant::now();
    let error = timeout(LONG, store.begin(Begin::Asked)).await.expect("an answer").expect_err("there is a waiter");
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// There is no holder, and a node remembers a token that is ahead of the clocks of the others. The others have forgotten
/// it, and would vote for a smaller token: then a fence would accept a late write of the previous holder after a write of
/// the next holder.
#[tokio::test]
async fn begin_waits_until_all_clocks_have_passed_every_token() {
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
    println!("initialized after {:?}", begun.elapsed());
    voters.nodes[1].be(Mood::Dead);
    let next = client_of(&voters).await.mutex(NAME).lock().await.unwrap();
    assert!(next.token() > token, "{} behind {token}", next.token());
    // The clock is further from the true time than allowed, so waiting does not help.
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

/// The nodes that grant a lease between the inspection and the marker know it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_after_the_inspection_is_kept() {
    let servers = three().await;
    let (a, b) = (client(&servers.url(), MAX_LEASE).await, client(&servers.url(), MAX_LEASE).await);
    let telling = |quorum: &Quorum, at: usize| quorum.proxy(at).inject(Fault::hold(script(Script::NodeBegin)));
    let held: Vec<_> = (0..3).map(|at| telling(&servers, at)).collect();
    let url = servers.url_by_proxy();
    let beginning = tokio::spawn(async move { quorum::begin(&url).await });
    held.iter().for_each(|held| held.wait(1, LONG));
    let guard = a.mutex(NAME).lock().await.unwrap();
    held.iter().for_each(leasehold_testkit::proxy::Injected::lift);
    within(LONG, "the end", beginning).await.unwrap().expect("there was no holder during the inspection");
    assert_busy(&b.mutex(NAME)).await;
    guard.check().expect("it holds");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// A node is inspected, then A acquires the lock there, and then the node is emptied. If its marker were written now, the
/// node would vote at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_emptied_after_the_inspection_is_not_initialized() {
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
    let error = within(LONG, "the end", beginning).await.unwrap().expect_err("the node may have voted");
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{} was emptied", servers.proxy(1).port())), "{error}");
    drop(guard);
}

/// Advice to initialize a quorum that was in use would cause two holders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_advice_to_begin_a_quorum_that_was_in_use() {
    let servers = three().await;
    let (a, _guard) = held(&servers, "host/job").await;
    let waiting = join(&client(&servers.url(), MAX_LEASE).await, servers.servers()).await;
    servers.servers()[..2].iter().for_each(RedisServer::restart);
    // One node votes.
    let said = majority_error(&servers.url()).await;
    assert!(!said.contains("begin") && said.contains("; wait: a majority votes in "), "{said}");
    assert_names(&said, &servers.servers()[..2], "is in quarantine for ");
    // No node votes, and a client remembers that they did.
    servers.server(2).restart();
    let begun = Instant::now();
    let said = loop {
        let tried = a.mutex(NAME).try_lock().await;
        let said = tried.map(|guard| guard.map(drop)).map_err(|error| error.to_string());
        match said {
            Err(said) if said.matches("is in quarantine for ").count() == 3 => break said,
            said => assert!(begun.elapsed() < LONG, "they are never in quarantine: {said:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(!said.contains("begin") && said.contains("it was restarted or emptied"), "{said}");
    waiting.abort();
}

/// A marker of another run shows the earlier use to new clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_advice_to_begin_nodes_that_restarted_with_their_files() {
    let servers = three().await;
    servers.servers().iter().for_each(save);
    servers.servers().iter().for_each(RedisServer::restart);
    for greeted in ["first", "later"] {
        let said = majority_error(&servers.url()).await;
        assert!(!said.contains("begin") && said.contains("; wait: a majority votes in "), "{greeted}: {said}");
        assert_names(&said, servers.servers(), "is in quarantine for ");
        assert_eq!(said.matches("it was restarted or emptied").count(), 3, "{greeted}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice_to_begin_a_new_quorum() {
    let servers = Quorum::builder(3).max_lease(MAX_LEASE).start();
    for greeted in ["first", "later"] {
        let said = majority_error(&servers.url()).await;
        assert!(said.contains("if this quorum was never used, run `leasehold quorum begin`"), "{greeted}: {said}");
        assert_eq!(said.matches("it is new, or was emptied").count(), 3, "{greeted}: {said}");
    }
    // It cannot be initialized while one of the nodes is unreachable.
    servers.server(1).kill();
    let said = majority_error(&servers.url()).await;
    assert!(!said.contains("begin"), "{said}");
}
