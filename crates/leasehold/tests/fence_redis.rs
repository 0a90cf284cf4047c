//! The fence on a real Redis: foreign keys, refusals, and faults of the server and of the network.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed one is a failed test with a line number")]

use std::error::Error as _;
use std::time::{Duration, Instant};

use leasehold::fence::{Access, RedisFence, Stale};
use leasehold::seam::FENCE_RIGHTS;
use leasehold::{Error, ErrorKind, Token};
use leasehold_testkit::proxy::{Fault, FaultProxy, Requests};
use leasehold_testkit::{RedisServer, Value, free_port, wait_until};

/// Longer than every call here: a longer wait would never end.
const LONG: Duration = Duration::from_secs(30);

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

#[tokio::test]
async fn values_are_bytes_and_expiry_is_left_alone() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(fence.get("k", token(1)).await.unwrap(), None);
    for value in [&bytes[..], b""] {
        fence.set("k", token(1), value).await.unwrap();
        assert_eq!(fence.get("k", token(1)).await.unwrap().as_deref(), Some(value));
    }
    server.command(&["PEXPIRE", "k", "3600000"]);
    fence.set("k", token(1), "again").await.unwrap();
    assert!(server.command(&["PTTL", "k"]).int().unwrap() > 0);
    assert_eq!(server.command(&["PTTL", "lhf:{k}"]), Value::Int(-1));

    fence.remove("k", token(2)).await.unwrap();
    assert_eq!(fence.get("k", token(2)).await.unwrap(), None);
    let error = fence.set("k", token(1), "back").await.unwrap_err();
    assert!(Stale::behind(&error).is_some(), "the marks outlive the key: {error:?}");
}

#[tokio::test]
async fn marks_expire_only_when_asked_to() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    let ttl = |key: &str| server.command(&["PTTL", key]).int().unwrap();
    let day = fence.clone().forget_after(Duration::from_secs(86_400));
    day.enter("a", token(1), Access::Read).await.unwrap();
    assert!((86_390_000..=86_400_000).contains(&ttl("lhf:{a}")));
    fence.clone().forget_after(Duration::MAX).enter("b", token(1), Access::Write).await.unwrap();
    assert!(ttl("lhf:{b}") > 86_400_000);
    fence.clone().forget_after(Duration::from_nanos(1)).set("c", token(1), "").await.unwrap();
    assert_ne!(ttl("lhf:{c}"), -1, "a short time is not for ever");
    day.forget_after(Duration::ZERO).enter("a", token(1), Access::Read).await.unwrap();
    assert_eq!(ttl("lhf:{a}"), -1);
}

#[tokio::test]
async fn foreign_keys_are_refused_and_left_alone() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    // A newer layout is as foreign as any other text.
    let newer = format!("2 {0} {0} {0} {0}", "0".repeat(16));
    let longer = format!("1 {0} {0} {0} {0}", "0".repeat(17));
    for (key, command) in [
        ("hash", &["HSET", "lhf:{hash}", "a", "b"][..]),
        ("list", &["RPUSH", "lhf:{list}", "a"]),
        ("text", &["SET", "lhf:{text}", "hello"]),
        ("newer", &["SET", "lhf:{newer}", &newer]),
        ("longer", &["SET", "lhf:{longer}", &longer]),
    ] {
        server.command(command);
        let marks = format!("lhf:{{{key}}}");
        let before = server.command(&["DUMP", &marks]);
        let (entered, got, set, removed) = (
            fence.enter(key, token(1), Access::Write).await.unwrap_err(),
            fence.get(key, token(1)).await.unwrap_err(),
            fence.set(key, token(1), "x").await.unwrap_err(),
            fence.remove(key, token(1)).await.unwrap_err(),
        );
        for error in [entered, got, set, removed] {
            assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Foreign, false), "{key}: {error:?}");
            assert!(error.to_string().contains(&marks), "{error}");
        }
        assert_eq!(server.command(&["DUMP", &marks]), before);
        assert_eq!(server.command(&["EXISTS", key]), Value::Int(0));
    }

    server.command(&["HSET", "cart", "a", "b"]);
    assert_eq!(fence.get("cart", token(1)).await.unwrap_err().kind(), ErrorKind::Foreign);
    assert_eq!(fence.set("cart", token(1), "x").await.unwrap_err().kind(), ErrorKind::Foreign);
    assert_eq!(fence.remove("cart", token(1)).await.unwrap_err().kind(), ErrorKind::Foreign);
    assert_eq!(server.command(&["EXISTS", "lhf:{cart}"]), Value::Int(0), "a refusal raised the marks");
    fence.enter("cart", token(1), Access::Write).await.unwrap();
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_never_shown() {
    let server = RedisServer::builder().password("s3cret-of-the-server").start();
    let wrong = format!("redis://:s3cret-but-wrong@127.0.0.1:{}", server.port());
    let none = format!("redis://127.0.0.1:{}", server.port());
    for url in [&wrong, &none] {
        let error = RedisFence::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert_shows_no_secret(&error);
    }
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    fence.set("k", token(1), "v").await.unwrap();
    assert!(!format!("{fence:?}").contains("s3cret"));
}

#[tokio::test]
async fn a_bad_url_is_refused_and_never_shown() {
    for url in ["", "s3cret", "http://:s3cret@localhost", "redis://:s3cret@", "redis://:s3cret@localhost/x", "memory:"]
    {
        let error = RedisFence::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error:?}");
        assert_shows_no_secret(&error);
    }
    for url in ["redis+sentinel://:s3cret@localhost", "redis+cluster://:s3cret@localhost"] {
        let error = RedisFence::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{url}: {error:?}");
        assert_shows_no_secret(&error);
    }

    let nobody = free_port();
    let error = RedisFence::connect(&format!("redis://:s3cret@127.0.0.1:{}", nobody.number())).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Unreachable, false));
    assert_shows_no_secret(&error);
}

fn assert_shows_no_secret(error: &Error) {
    let cause = error.source().map_or(String::new(), ToString::to_string);
    let shown = format!("{error} {error:?} {cause}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn an_empty_key_is_refused() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    assert_eq!(fence.get("", token(1)).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_restarted_server_goes_on_with_its_marks() {
    let server = RedisServer::builder().appendonly("always").start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    fence.set("k", token(34), "v").await.unwrap();
    server.restart();
    // One call: the connection is gone, and the server has forgotten the script.
    let error = fence.set("k", token(33), "old").await.unwrap_err();
    assert!(Stale::behind(&error).is_some(), "{error:?}");
    assert_eq!(fence.get("k", token(34)).await.unwrap().as_deref(), Some(&b"v"[..]));

    server.kill();
    let error = fence.get("k", token(34)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
    server.restart();
    assert_eq!(fence.get("k", token(34)).await.unwrap().as_deref(), Some(&b"v"[..]));
}

#[tokio::test]
async fn a_frozen_server_does_not_hold_anybody_for_long() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    server.stop();
    let begun = Instant::now();
    let calls = (0..20).map(|n| {
        let fence = fence.clone();
        tokio::spawn(async move { fence.set(&format!("k{n}"), token(1), "v").await })
    });
    for call in calls.collect::<Vec<_>>() {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Unreachable, true), "{error:?}");
    }
    // Twenty attempts to connect, one after the other, would take 40 s.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    server.cont();
    fence.set("k", token(1), "v").await.unwrap();
}

#[tokio::test]
async fn a_replica_is_not_asked() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(&primary).start();
    let fence = RedisFence::connect(&replica.url()).await.unwrap();
    let error = fence.get("k", token(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Unreachable, false), "{error:?}");
    // The replica has the marks already, but its data must not be used.
    let fresh = RedisFence::connect(&primary.url()).await.unwrap();
    fresh.set("k", token(1), "v").await.unwrap();
    wait_until("the replica has the key", LONG, || replica.command(&["EXISTS", "k"]) == Value::Int(1));
    assert_eq!(fence.get("k", token(1)).await.unwrap_err().kind(), ErrorKind::Unreachable);
}

#[tokio::test]
async fn a_full_memory_changes_nothing() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    fence.set("k", token(1), "v").await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = fence.set("k", token(2), "w").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Store, false), "{error:?}");
    assert!(error.to_string().contains("memory"), "{error}");
    // A holder may always read the data for its decision.
    assert_eq!(fence.get("k", token(1)).await.unwrap().as_deref(), Some(&b"v"[..]));
    fence.enter("new", token(1), Access::Write).await.unwrap();
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    fence.set("k", token(1), "x").await.unwrap();
}

#[tokio::test]
async fn the_rights_that_are_named_are_enough_and_one_less_is_denied() {
    let server = RedisServer::start();
    let url = format!("redis://poor:pw@127.0.0.1:{}/1", server.port());
    let set_user = |rights: &[&str]| {
        let user = ["ACL", "SETUSER", "poor", "reset", "on", ">pw", "~mine*", "~lhf:{mine*"];
        assert_eq!(server.command(&[&user[..], rights].concat()), Value::Status("OK".into()));
    };
    let named: Vec<&str> = FENCE_RIGHTS.split(' ').collect();
    set_user(&named);
    everything(&url).await.unwrap();
    assert_eq!(server.command(&["ACL", "LOG"]), Value::Array(vec![]), "something was refused all the same");
    let fence = RedisFence::connect(&url).await.unwrap();
    let error = fence.set("yours", token(1), "v").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Denied, false), "{error:?}");
    assert!(error.to_string().contains("keys"), "{error}");

    for missing in &named {
        set_user(&named.iter().copied().filter(|right| right != missing).collect::<Vec<_>>());
        server.command(&["SCRIPT", "FLUSH"]);
        let error = everything(&url).await.expect_err(missing);
        assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Denied, false), "{missing}: {error:?}");
        for right in &named {
            assert!(error.to_string().contains(right), "{right} is not named: {error}");
        }
    }
}

async fn everything(url: &str) -> Result<(), Error> {
    let fence = RedisFence::connect(url).await?;
    fence.enter("mine", token(1), Access::Write).await?;
    // Marks that are kept for ever are read after they exist.
    fence.enter("mine", token(1), Access::Write).await?;
    fence.set("mine", token(1), "v").await?;
    fence.get("mine", token(1)).await?;
    fence.remove("mine", token(1)).await
}

#[tokio::test]
async fn a_prefix_goes_before_every_key() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&format!("{}?prefix=app:", server.url())).await.unwrap();
    fence.set("k", token(1), "v").await.unwrap();
    assert_eq!(server.command(&["GET", "app:k"]), Value::from("v"));
    assert_eq!(server.command(&["EXISTS", "lhf:{app:k}"]), Value::Int(1));
    // For every prefix, one key has one fence.
    let whole = RedisFence::connect(&server.url()).await.unwrap();
    assert!(Stale::behind(&whole.set("app:k", Token::NONE, "w").await.unwrap_err()).is_some());
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_repeated() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let fence = RedisFence::connect(&proxy.url()).await.unwrap();
    fence.set("k", token(33), "before").await.unwrap();
    let lost = proxy.inject(Fault::cut_at_reply(Requests::named("EVALSHA")).once());
    fence.set("k", token(33), "after").await.unwrap();
    assert_eq!((lost.hits(), proxy.seen().accepted), (1, 2));
    assert_eq!(fence.get("k", token(33)).await.unwrap().as_deref(), Some(&b"after"[..]));
}

/// The server still runs a request of a connection that its client has given up.
#[tokio::test]
async fn a_write_that_arrives_late_puts_nothing_back() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let fence = RedisFence::connect(&proxy.url()).await.unwrap();
    fence.set("k", token(33), "first").await.unwrap();

    let held = proxy.inject(Fault::hold(Requests::named("EVALSHA")).once());
    fence.set("k", token(33), "old").await.unwrap();
    assert_eq!(held.hits(), 1, "it went over a second connection");
    fence.set("k", token(33), "new").await.unwrap();
    let before = scripts_run(&server);
    held.lift();
    wait_until("the held write reaches the server", LONG, || scripts_run(&server) > before);
    assert_eq!(server.command(&["GET", "k"]), Value::from("new"));
}

/// A client that does not know the result of a write can end the write without another one.
#[tokio::test]
async fn to_enter_ends_a_write_that_is_still_on_its_way() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let fence = RedisFence::connect(&proxy.url()).await.unwrap();
    fence.set("k", token(33), "first").await.unwrap();

    let held = proxy.inject(Fault::hold(Requests::named("EVALSHA")).times(2));
    let error = fence.set("k", token(33), "late").await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_acted(), held.hits()), (ErrorKind::Unreachable, true, 2), "{error:?}");
    fence.enter("k", token(33), Access::Write).await.unwrap();
    assert_eq!(fence.get("k", token(33)).await.unwrap().as_deref(), Some(&b"first"[..]));
    let before = scripts_run(&server);
    held.lift();
    wait_until("both reach the server", LONG, || scripts_run(&server) >= before + 2);
    assert_eq!(server.command(&["GET", "k"]), Value::from("first"));
}

fn scripts_run(server: &RedisServer) -> u64 {
    let stats = server.command(&["INFO", "commandstats"]);
    let line = stats.text().and_then(|text| text.lines().find(|line| line.starts_with("cmdstat_evalsha:")));
    let calls = line.and_then(|line| line.split_once("calls=")).and_then(|(_, rest)| rest.split_once(','));
    calls.expect("scripts were run").0.parse().unwrap()
}

/// A write is carried out, its reply is lost, and a later holder enters before the repeat. Then only the repeat is stale.
#[tokio::test]
async fn a_refusal_after_a_lost_answer_admits_that_it_may_have_acted() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    let fence = RedisFence::connect(&proxy.url()).await.unwrap();
    fence.set("k", token(33), "before").await.unwrap();
    let lost = proxy.inject(Fault::cut_at_reply(Requests::named("EVALSHA")).once());
    let repeated = proxy.inject(Fault::hold(Requests::named("EVALSHA")).after(1).once());
    let write = tokio::spawn(async move { fence.set("k", token(33), "after").await });
    let awaited = tokio::task::spawn_blocking(move || {
        repeated.wait(1, LONG);
        repeated
    });
    let repeated = awaited.await.unwrap();

    let direct = RedisFence::connect(&server.url()).await.unwrap();
    assert_eq!(direct.get("k", token(34)).await.unwrap().as_deref(), Some(&b"after"[..]));
    repeated.lift();
    let error = write.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Lost, true), "{error:?}");
    assert_eq!(lost.hits(), 1);
}

/// The connection is gone, and the task that opens the next one is not polled any more, on another runtime.
#[test]
fn a_stalled_runtime_blocks_no_call_of_another() {
    let [gone, stands, ours] =
        [(); 3].map(|()| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    let server = RedisServer::start();
    let fence = gone.block_on(RedisFence::connect(&server.url())).unwrap();
    drop(gone);
    let other = fence.clone();
    let connecting = stands.spawn(async move { other.enter("a", token(1), Access::Read).await });
    stands.block_on(tokio::task::yield_now());
    for _ in 0..2 {
        ours.block_on(fence.enter("a", token(2), Access::Write)).unwrap();
    }
    // It may have timed out by now, but it must not enter.
    assert!(stands.block_on(connecting).unwrap().is_err());
}
