//! Several independent servers.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::seam::Secrets;
use leasehold_testkit::{Quorum, RedisServer, Resp, Value};

/// Returns the nodes in a URL, and its other parameters.
fn parts(url: &str) -> (Vec<String>, Vec<String>) {
    let parameters = url.strip_prefix("quorum:?").expect("a quorum's URL").split('&').map(str::to_owned);
    let (nodes, rest): (Vec<_>, Vec<_>) = parameters.partition(|part| part.starts_with("node="));
    (nodes.iter().map(|node| node["node=".len()..].to_owned()).collect(), rest)
}

#[test]
fn servers_are_independent() {
    let quorum = Quorum::start(3);
    for (at, server) in quorum.servers().iter().enumerate() {
        let set = server.command(&["SET", "k", &at.to_string(), "NX"]);
        assert_eq!(set, Value::Status("OK".into()), "no other server has set it here");
    }
    quorum.server(1).restart();
    let kept = |at: usize| quorum.server(at).command(&["EXISTS", "k"]);
    assert_eq!([kept(0), kept(1), kept(2)], [1, 0, 1].map(Value::Int), "a crash concerns one server only");
}

#[test]
fn urls_name_the_servers_or_the_proxies() {
    let quorum = Quorum::builder(5)
        .each(RedisServer::builder().password("s3cret").appendonly("always"))
        .max_lease(Duration::from_secs(3))
        .start();
    let (nodes, parameters) = parts(&quorum.url());
    assert_eq!((nodes, parameters), (quorum.urls(), vec!["max_lease=3000ms".to_owned()]));
    let (by_proxy, parameters) = parts(&quorum.url_by_proxy());
    assert_eq!((by_proxy.len(), parameters.len()), (5, 1));
    for (url, proxy) in by_proxy.iter().zip(quorum.proxies()) {
        assert_eq!(*url, format!("redis://:s3cret@127.0.0.1:{}", proxy.port()));
    }
    let all: BTreeSet<String> = quorum.urls().into_iter().chain(by_proxy).collect();
    assert_eq!(all.len(), 10, "{all:?}");
    assert!(Secrets::of(&quorum.url()).in_url);
    assert_eq!(parts(&Quorum::start(3).url()).1, Vec::<String>::new(), "no longest lease unless one is set");
}

#[test]
fn each_proxy_leads_to_its_own_server() {
    let quorum = Quorum::start(3);
    for (at, (server, proxy)) in quorum.servers().iter().zip(quorum.proxies()).enumerate() {
        let set = Resp::connect(proxy.port()).command(&["SET", "at", &at.to_string()]);
        assert_eq!(set, Value::Status("OK".into()));
        assert_eq!(server.command(&["GET", "at"]), Value::from(&*at.to_string()));
    }
    let mut client = Resp::try_connect(quorum.proxy(2).port(), Duration::from_secs(5)).expect("it listens");
    // Our connection is open, and the earlier one is closed: a single open connection could be either.
    assert!(client.try_command(&["PING"]).is_ok());
    quorum.proxy(2).wait_seen("we alone are connected", Duration::from_secs(20), |seen| seen.open == 1);
    assert_eq!(quorum.proxy(2).cut_all(), 1, "only ours");
    assert!(client.try_command(&["PING"]).is_err());
}

/// The library parses the URL that the kit writes: whatever error it reports, it is not about the syntax.
#[tokio::test]
async fn the_library_reads_its_url() {
    let quorum = Quorum::builder(4).max_lease(Duration::from_millis(1_500)).start();
    for url in [quorum.url(), quorum.url_by_proxy()] {
        if let Err(error) = Leasehold::connect(&url).await {
            assert_ne!(error.kind(), leasehold::ErrorKind::Invalid, "{error}");
        }
    }
}
