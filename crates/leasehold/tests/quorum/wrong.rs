//! Wrong configurations.

use std::time::Duration;

use leasehold::{Error, ErrorKind, Leasehold, Released};
use leasehold_testkit::{Quorum, RedisServer};

use crate::common::{LONG, MAX_LEASE, NAME, client, five, within};

async fn refused(url: &str) -> Error {
    let connecting = Leasehold::builder(url).lease(Duration::from_secs(5)).connect();
    within(LONG, "an answer", connecting).await.map(drop).expect_err("a quorum of another kind")
}

/// Returns the URL of these nodes.
fn of(nodes: &[String], max_lease: Duration) -> String {
    let nodes: Vec<String> = nodes.iter().map(|node| format!("node={node}")).collect();
    format!("quorum:?{}&max_lease={}ms", nodes.join("&"), max_lease.as_millis())
}

/// The addresses differ, and the run IDs are the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_for_a_quorum_of_four() {
    let servers = Quorum::start(2);
    let mut nodes = servers.urls();
    nodes.extend(servers.urls().iter().map(|url| url.replace("127.0.0.1", "localhost")));
    let error = refused(&of(&nodes, MAX_LEASE)).await;
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_names_both(&error, servers.servers());
}

/// If the other nodes are a majority, this does not matter: the server has one vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_for_a_quorum_of_three() {
    let servers = Quorum::start(2);
    let mut nodes = servers.urls();
    nodes.push(nodes[0].replace("127.0.0.1", "localhost"));
    let url = of(&nodes, MAX_LEASE);
    // The order in which the client greets the two names and the other server is not determined.
    let connecting = Leasehold::builder(&url).lease(Duration::from_secs(5)).connect();
    match within(LONG, "an answer", connecting).await {
        Ok(client) => {
            servers.server(1).kill();
            let error = within(LONG, "an answer", client.mutex(NAME).try_lock()).await.expect_err("it has one vote");
            println!("{error}");
            assert_eq!(error.kind(), ErrorKind::Quorum);
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert_names_both(&error, &servers.servers()[..1]);
        }
    }
}

#[track_caller]
fn assert_names_both(error: &Error, servers: &[RedisServer]) {
    let said = error.to_string();
    let is_told = |server: &RedisServer| {
        ["127.0.0.1", "localhost"].iter().all(|host| said.contains(&format!("{host}:{}", server.port())))
    };
    assert!(servers.iter().any(is_told) && said.contains("the same server"), "{said}");
}

/// The majorities of two quorums of different sizes may be disjoint.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_count_of_nodes_or_another_longest_lease() {
    let quorum = five().await;
    let urls = quorum.urls();
    for (url, says) in [
        (of(&urls[..3], MAX_LEASE), "one of 3 nodes"),
        (of(&urls[..4], MAX_LEASE), "one of 4 nodes"),
        (of(&urls, 2 * MAX_LEASE), "at most 20s"),
        (quorum.url().split("&max_lease").next().unwrap().to_owned(), "at most 1m"),
    ] {
        let error = refused(&url).await;
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let said = error.to_string();
        assert!(said.contains(says) && said.contains("5 nodes") && said.contains("at most 10s"), "{said}");
    }
    // Clients that agree are not affected.
    let guard = client(&quorum.url(), MAX_LEASE).await.mutex(NAME).lock().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_beyond_the_longest() {
    let quorum = five().await;
    let client = client(&quorum.url(), MAX_LEASE).await;
    let longer = MAX_LEASE + Duration::from_millis(1);
    for mutex in [client.mutex(NAME).lease(longer), client.mutex(NAME).fixed_lease(longer)] {
        for error in [mutex.lock().await.map(drop).unwrap_err(), mutex.try_lock().await.map(drop).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            let said = error.to_string();
            assert!(
                said.contains("a lease of 10s 1ms is") && said.contains("10s:") && said.contains("max_lease"),
                "{said}"
            );
            assert!(!error.may_have_acted());
        }
    }
    drop(client.mutex(NAME).lease(MAX_LEASE).lock().await.unwrap());
}

/// Without a lease in the settings the lease is the longest lease, if that is shorter than 30 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_lease_is_no_longer_than_the_longest() {
    let quorum = five().await;
    let client = Leasehold::connect(&quorum.url()).await.unwrap();
    let mutex = client.mutex(NAME);
    for mutex in [mutex.clone(), mutex.fair()] {
        let guard = mutex.lock().await.unwrap();
        assert!(guard.remaining() <= MAX_LEASE && guard.remaining() > MAX_LEASE / 2, "{:?}", guard.remaining());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    let mutex = client.mutex(NAME);
    assert_eq!(mutex.run(async |guard| guard.remaining() <= MAX_LEASE).await.ok(), Some(true));
    let holds = mutex.max_hold(Duration::from_secs(20)).lock().await.unwrap();
    assert_eq!(holds.release().await.unwrap(), Released::Released);
    // A lease in the settings of the mutex or of the client is refused.
    let error =
        self::client(&quorum.url(), Duration::from_secs(30)).await.mutex(NAME).lock().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// If a failed `begin` had initialized some nodes, they would grant leases. The next `begin`, with a corrected URL, would
/// make the nodes forget them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn begin_initializes_all_nodes_or_none() {
    let quorum = Quorum::builder(5).each(RedisServer::builder().password("s3same")).max_lease(MAX_LEASE).start();
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("redis://{}", mute.local_addr().unwrap());
    for (fifth, kind, says) in [
        (quorum.urls()[4].replace("s3same", "hunter2"), ErrorKind::Denied, "refuses"),
        (silent, ErrorKind::Unreachable, "no reply within 5 s"),
    ] {
        let mut nodes = quorum.urls();
        nodes[4] = fifth;
        let begun = within(LONG, "an answer", leasehold::quorum::begin(&of(&nodes, MAX_LEASE))).await;
        let error = begun.expect_err("begin fails at one of five nodes");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says) && error.to_string().contains("127.0.0.1:"), "{error}");
        let client = client(&quorum.url(), MAX_LEASE).await;
        let error = client.mutex(NAME).try_lock().await.map(drop).expect_err("no node was initialized");
        assert!(error.to_string().contains("0 of 5 nodes vote"), "{error}");
    }
    leasehold::quorum::begin(&quorum.url()).await.unwrap();
}

/// Four of five nodes are enough. The error names the fifth node when it matters, and never its password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_for_one_node() {
    let quorum = Quorum::builder(5).each(RedisServer::builder().password("s3same")).max_lease(MAX_LEASE).start();
    leasehold::quorum::begin(&quorum.url()).await.unwrap();
    let mut nodes = quorum.urls();
    nodes[1] = nodes[1].replace("s3same", "hunter2");
    let client = client(&of(&nodes, MAX_LEASE), MAX_LEASE).await;
    let guard = client.mutex(NAME).lock().await.unwrap();
    assert_eq!(client.mutex(NAME).inspect().await.unwrap().holder().expect("held").token, guard.token());
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    quorum.server(3).kill();
    quorum.server(4).kill();
    let error = within(LONG, "an answer", client.mutex(NAME).try_lock()).await.expect_err("two are left");
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::Quorum);
    let said = format!("{error:?}");
    let node = format!("127.0.0.1:{}", quorum.server(1).port());
    assert!(said.contains(&format!("the Redis at {node} refuses the user or the password")), "{said}");
    assert!(!said.contains("s3same") && !said.contains("hunter2"), "{said}");
    // If the password is wrong for all nodes, the error says so.
    quorum.servers()[3..].iter().for_each(RedisServer::restart);
    let error = refused(&quorum.url().replace("s3same", "hunter2")).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}
