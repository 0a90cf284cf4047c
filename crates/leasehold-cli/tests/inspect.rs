//! Tests of `leasehold inspect` as a program.

use std::process::Output;
use std::time::Duration;

use leasehold::Leasehold;
use leasehold_testkit::{RedisServer, process};

fn leasehold(arguments: &[&str]) -> Output {
    let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_shows_the_holder() {
    let server = RedisServer::start();
    let url = server.url();
    let free = leasehold(&["inspect", "a lock", "--store", &url]);
    assert_eq!((text(&free.stdout), free.status.code()), ("a lock: free; nobody waits\n".into(), Some(0)));
    let client = Leasehold::builder(&url).holder("host/job").connect().await.unwrap();
    let guard = client.mutex("a lock").lock().await.unwrap();
    let held = text(&leasehold(&["inspect", "a lock", "--store", &url]).stdout);
    assert!(held.starts_with("a lock: held by host/job (grant "), "{held}");
    assert!(held.contains(&format!("token {};", guard.token())), "{held}");
    assert!(held.contains("; held since 20") && held.contains(" UTC ("), "{held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_shows_the_queue_in_order() {
    let server = RedisServer::start();
    let url = server.url();
    let client = |label: &'static str| Leasehold::builder(&url).holder(label).connect();
    let holder = client("host/job").await.unwrap();
    let _guard = holder.mutex("a").lock().await.unwrap();
    let mut waiting = Vec::new();
    for (label, wait) in [("host/b: x", Some(Duration::from_secs(40))), ("host/a", None)] {
        let mutex = client(label).await.unwrap().mutex("a");
        waiting.push(tokio::spawn(async move {
            match wait {
                Some(wait) => mutex.try_lock_for(wait).await,
                None => mutex.lock().await.map(Some),
            }
        }));
        let begun = std::time::Instant::now();
        while holder.mutex("a").inspect().await.unwrap().waiters < waiting.len() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{label} never waits");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let shown = text(&leasehold(&["inspect", "a", "--store", &url]).stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.len() == 3 && lines[0].ends_with(" s left; 2 waiters"), "{shown}");
    let (first, left) = lines[1].rsplit_once("; for another ").expect("it waits for some time");
    let left: f64 = left.strip_suffix(" s").expect("seconds").parse().expect("a number");
    assert!(first.starts_with("  waits: host/b: x (grant ") && (20.0..=40.0).contains(&left), "{shown}");
    assert!(lines[2].starts_with("  waits: host/a (grant ") && lines[2].ends_with(')'), "{shown}");
    let json = text(&leasehold(&["inspect", "a", "--json", "--store", &url]).stdout);
    let lock: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&lock["waiters"], &lock["holders"][0]), (&2.into(), &lock["holder"]), "{json}");
    let [first, second] = &lock["queue"].as_array().unwrap()[..] else { panic!("two wait: {json}") };
    assert_eq!((&first["label"], &first["mode"], &first["units"]), (&"host/b: x".into(), &"lock".into(), &1.into()));
    assert!(first["remaining_ms"].as_u64().is_some_and(|left| left > 20_000) && second["remaining_ms"].is_null());
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[test]
fn errors_name_the_mistake() {
    for (store, says) in [
        ("redis://:sentinel@127.0.0.1:1", "LEASEHOLD_STORE"),
        ("Memory:a", "inside each program"),
        ("file:here", "absolute"),
        ("127.0.0.1:1", "redis://HOST:PORT"),
        ("", "the URL is empty"),
    ] {
        let wrong = leasehold(&["inspect", "a", "--store", store]);
        assert_eq!(wrong.status.code(), Some(2), "{store}");
        assert!(text(&wrong.stderr).contains(says), "{}", text(&wrong.stderr));
        assert!(!text(&wrong.stderr).contains("sentinel"));
    }
    let from_the_environment = |url: &str| {
        let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["inspect", "a"]).env("LEASEHOLD_STORE", url).output().expect("it runs")
    };
    let nobody = from_the_environment("redis://:sentinel@127.0.0.1:1");
    assert_eq!(nobody.status.code(), Some(125));
    assert!(text(&nobody.stderr).contains("127.0.0.1:1"), "{}", text(&nobody.stderr));
    assert!(!text(&nobody.stderr).contains("sentinel"));
}

/// The nodes of a new quorum are in quarantine: nobody knows what they may have forgotten.
#[test]
fn the_holder_is_unknown_while_a_quorum_is_in_quarantine() {
    let quorum = leasehold_testkit::Quorum::start(3);
    let url = quorum.url();
    let seen = leasehold(&["inspect", "stock", "--store", &url]);
    let (shown, code) = (text(&seen.stdout), seen.status.code());
    let (head, nodes) = shown.split_once('\n').expect("lines");
    assert_eq!(
        (head, code),
        ("stock: unknown: too few nodes vote to tell whether it is held; no waiter is known", Some(125))
    );
    for (line, server) in nodes.lines().zip(quorum.servers()) {
        assert!(line.starts_with(&format!("  127.0.0.1:{}  no ", server.port())), "{shown}");
    }
    // A majority is enough to connect: the third node may not be connected yet.
    let resting = nodes.matches("no vote: in quarantine for another ").count();
    assert!(nodes.lines().count() == 3 && resting >= 2, "{shown}");
    let revoked = leasehold(&["revoke", "stock", "--store", &url]);
    assert_eq!((text(&revoked.stdout).as_str(), revoked.status.code()), ("", Some(125)), "{}", text(&revoked.stderr));
    let json = leasehold(&["inspect", "stock", "--json", "--store", &url]);
    assert!(text(&json.stdout).contains("\"state\":\"unknown\""), "{}", text(&json.stdout));
}
