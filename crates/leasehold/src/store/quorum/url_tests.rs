use super::*;
use crate::error::ErrorKind;
use crate::store::redis::Target;

fn read(rest: &str) -> QuorumUrl {
    QuorumUrl::parse(rest).unwrap_or_else(|error| panic!("{rest}: {error}"))
}

#[track_caller]
fn refused(rest: &str) -> String {
    let Err(error) = QuorumUrl::parse(rest) else { panic!("{rest} was accepted") };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{rest}: {error}");
    let said = format!("{error:?}");
    assert!(!said.contains("hunter2"), "{rest}: {said}");
    error.to_string()
}

/// Returns a URL with three nodes and these parameters.
fn three(more: &str) -> String {
    format!("?node=redis://a&node=redis://b:7000&node=redis://c{more}")
}

fn of(nodes: &[Target]) -> Vec<String> {
    nodes.iter().map(ToString::to_string).collect()
}

#[test]
fn nodes_and_charter() {
    let url = read(&three(""));
    assert_eq!(of(&url.nodes), ["a:6379", "b:7000", "c:6379"]);
    assert_eq!(url.charter, Charter { nodes: 3, max_lease_ms: QUORUM_LEASE_MAX_MS });
    let url = read(&three("&max_lease=2m&prefix=app%3A"));
    assert_eq!(url.charter, Charter { nodes: 3, max_lease_ms: 120_000 });
    assert!(url.nodes.iter().all(|node| node.prefix == "app:"));
    // The order does not matter, and an empty parameter is ignored.
    let url = read("?max_lease=5000ms&node=redis://a&&prefix=p&node=redis://b&node=redis://c&node=redis://d&");
    assert_eq!((url.charter.nodes, url.charter.max_lease_ms, url.nodes[3].prefix.as_str()), (4, 5_000, "p"));
    let url = read(&three("")).below("tenant:").unwrap_or_else(|error| panic!("{error}"));
    assert!(url.nodes.iter().all(|node| node.prefix == "tenant:") && url.charter.nodes == 3);
}

#[test]
fn three_to_nine_nodes() {
    let nodes = |count: usize| {
        let nodes = (0..count).map(|at| format!("node=redis://n{at}")).collect::<Vec<_>>();
        format!("?{}", nodes.join("&"))
    };
    for count in 3..=9 {
        assert_eq!(read(&nodes(count)).charter.nodes, count);
    }
    for count in [0, 1, 2, 10] {
        let said = refused(&nodes(count));
        assert!(said.contains("3 to 9") && said.contains("quorum:?node=redis://A&"), "{said}");
    }
    assert!(refused("?node=redis://a").contains("in quotes in a shell"));
}

/// A node with parameters of its own: with an encoded '&', or encoded as a whole.
#[test]
fn a_node_in_both_ways() {
    let as_it_is = "redis://me@a?prefix=p%26password_file=/run/a";
    let encoded = "redis%3A%2F%2Fme%40a%3Fprefix%3Dp%26password_file%3D%2Frun%2Fa";
    for node in [as_it_is, encoded, "Redis%3a//me@a?prefix=p%26password_file=/run/a"] {
        let url = read(&format!("?node=redis://b?password_env=B&node={node}&node=redis://c"));
        let target = &url.nodes[1];
        assert_eq!((target.prefix.as_str(), target.user.as_deref()), ("p", Some("me")), "{node}");
        assert!(target.password.is_some() && url.nodes[0].password.is_some() && url.nodes[2].password.is_none());
    }
}

/// A URL that works alone also works as a node, even if its password has special characters.
#[test]
fn a_node_url_means_the_same_as_alone() {
    for url in ["redis://me:p%40s%2Fs%25%23@a:7000/3", "redis://:p%26q@a", "redis://:%2526@a", "redis://:a+b@a"] {
        let alone = Target::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        let encoded: String = form_urlencoded::byte_serialize(url.as_bytes()).collect();
        for node in [url, &encoded] {
            let within = &read(&format!("?node={node}&node=redis://b&node=redis://c")).nodes[0];
            assert!(within.password == alone.password && within.password.is_some(), "{node}");
            assert_eq!((&within.address, &within.user, within.db), (&alone.address, &alone.user, alone.db), "{node}");
        }
    }
}

#[test]
fn max_lease_is_a_duration() {
    for (said, ms) in [
        ("1s", 1_000),
        ("1000ms", 1_000),
        ("60s", 60_000),
        ("1m", 60_000),
        ("24h", 86_400_000),
        ("1m30s", 90_000),
        ("1.5s", 1_500),
    ] {
        assert_eq!(read(&three(&format!("&max_lease={said}"))).charter.max_lease_ms, ms, "{said}");
    }
    for said in [
        "",
        "60",
        "s",
        "999ms",
        "0s",
        "25h",
        "1.0005s",
        "1ns1s",
        "m30s",
        "-1s",
        "1s-",
        "30s1m1d",
        "99999999999999999999h",
    ] {
        let told = refused(&three(&format!("&max_lease={said}")));
        assert!(told.contains("such as 500ms, 30s, 1m30s or 2h") && told.contains("1 s to 24 h"), "{said}: {told}");
    }
    for said in ["18446744073709551615h", "60sec0ds", "hunter2"] {
        refused(&three(&format!("&max_lease={said}")));
    }
}

#[test]
fn a_server_has_one_vote() {
    for (more, says) in [
        ("&node=redis://a", "nodes 1 and 4"),
        ("&node=redis://A:6379/1", "nodes 1 and 4"),
        ("&node=redis://B:7000?prefix=x", "nodes 2 and 4"),
        ("&node=redis://:hunter2@c", "nodes 3 and 4"),
    ] {
        assert!(refused(&three(more)).contains(says), "{more}");
    }
    assert_eq!(read(&three("&node=redis://b:7001")).charter.nodes, 4, "another server of that host");
}

#[test]
fn one_prefix() {
    let twice = refused("?node=redis://a&node=redis://b?prefix=x&node=redis://c&prefix=y");
    assert!(twice.contains("node 2") && twice.contains("keep one"), "{twice}");
    assert!(refused(&three("&prefix=x&prefix=y")).contains("twice"));
    assert!(refused(&three("&prefix=%7Bx")).contains("brace"));
    assert!(read(&three("&prefix=x")).below("y").is_err_and(|error| error.to_string().contains("keep one")));
    assert_eq!(read(&three("&prefix=a%40")).nodes[0].prefix, "a@");
}

#[test]
fn refusals_say_what_to_do_and_no_secret() {
    for (rest, says) in [
        (String::new(), "has no node"),
        ("//host?node=redis://a".into(), "has no node"),
        ("node=redis://:hunter2@a".into(), "has no node"),
        (three("&node=memory:hunter2"), "redis://"),
        (three("&node=hunter2"), "redis://"),
        (three("&node="), "redis://"),
        (three("&node=quorum:?node=redis://:hunter2@d"), "redis://"),
        (three("&node=redis://:hunter2@d/x"), "node 4"),
        (three("&node=redis://hunter2@d"), "node 4"),
        (three("&node=redis://d?password=hunter2"), "node 4"),
        (three("&node=redis://d?prefix=hunter2%26prefix=hunter2"), "node 4"),
        (three("&node=redis://:hunter2@d#x"), "%23"),
        (three("&prefix=a#hunter2"), "%23"),
        (three("&speed=hunter2"), "speed"),
        (three("&speed"), "speed"),
        (three("?cert=/x&key=/hunter2"), "%26key="),
        (three("?password_file=/x&ca=/hunter2"), "%26"),
        (three("&max_lease=60s&max_lease=60s"), "twice"),
        // A password with an '&' or a '?'.
        (three("&node=redis://me:1&hunter2@d"), "%26"),
        (three("&node=redis://me:1&prefix=hunter2@d"), "%26"),
        (three("&node=redis://me:1&max_lease=hunter2@d"), "%26"),
        (three("&node=redis://me:1?hunter2&node=redis://x@d"), "%3F"),
        (three("&node=redis://me:1?hunter2=&node=redis%3A%2F%2Fx%3Ay%40d"), "%3F"),
        (three("&node=redis://me:1@d?hunter2&node=redis://x@d"), "%3F"),
        (three("&hunter2=1&node=redis://u:p@d"), "unknown parameter"),
        (three("&node=redis%3A%2F%2F%3Ahunter2%40d%2Fx"), "node 4"),
        (three("&node=redis%3A%2F%2F%ff"), "redis://"),
    ] {
        let said = refused(&rest);
        assert!(said.contains(says), "{rest}: {said}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn nodes_with_tls() {
    let url = read("?node=rediss://a?ca=/ca.pem%26cert=/c%26key=/k&node=rediss://b&node=redis://c");
    let has_identity = |node: &Target| node.tls.as_ref().map(|tls| tls.identity.is_some());
    assert_eq!(url.nodes.iter().map(has_identity).collect::<Vec<_>>(), [Some(true), Some(false), None]);
}
