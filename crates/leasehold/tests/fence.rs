//! P22 on the fence in memory and on a real Redis: both are held to the rule as it is told, not as it is coded.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed one is a failed test with a line number")]

use std::error::Error as _;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::fence::{Access, Fenced, Gate, RedisFence, Stale};
use leasehold::{Error, ErrorKind, Token};
use leasehold_testkit::{RedisServer, Value};

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// Somebody enters, and reads or writes. What is written is the number of the step.
#[derive(Clone, Copy, Debug)]
struct Step {
    token: Token,
    access: Access,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Refused,
    Wrote,
    Read(usize),
}

const UNTOUCHED: usize = 9;

/// Every schedule of four steps with three tokens, of which two are apart by 1 where doubles begin to round.
fn schedules() -> impl Iterator<Item = [Step; 4]> {
    let step = |n: usize| Step {
        token: token([10, (1 << 53) - 2, (1 << 53) - 1][n / 2]),
        access: [Access::Read, Access::Write][n % 2],
    };
    (0..6_usize.pow(4)).map(move |n| [step(n / 216), step(n / 36 % 6), step(n / 6 % 6), step(n % 6)])
}

/// The rule as P22 tells it, over the whole history of who was let in.
fn by_the_rule(schedule: &[Step]) -> Vec<Seen> {
    let mut entered: Vec<(usize, Step)> = Vec::new();
    let mut seen = Vec::new();
    for (number, &next) in schedule.iter().enumerate() {
        let may_enter = entered.iter().all(|(_, earlier)| match (next.access, earlier.access) {
            (Access::Read, Access::Read) => true,
            (Access::Read, Access::Write) | (Access::Write, _) => earlier.token <= next.token,
        });
        if may_enter {
            entered.push((number, next));
        }
        let written = || entered.iter().rev().find(|(_, s)| s.access == Access::Write).map_or(UNTOUCHED, |(n, _)| *n);
        seen.push(match (may_enter, next.access) {
            (false, _) => Seen::Refused,
            (true, Access::Write) => Seen::Wrote,
            (true, Access::Read) => Seen::Read(written()),
        });
    }
    seen
}

/// Carries the steps out in memory.
fn in_memory(schedule: &[Step]) -> Vec<Seen> {
    let data = Fenced::new(UNTOUCHED);
    let steps = schedule.iter().enumerate().map(|(number, step)| {
        let before = data.gate();
        let seen = match step.access {
            Access::Read => data.read(step.token).map(|data| Seen::Read(*data)),
            Access::Write => data.write(step.token).map(|mut data| {
                *data = number;
                Seen::Wrote
            }),
        };
        seen.unwrap_or_else(|stale| {
            assert!(stale.token == step.token && stale.mark > step.token && stale.access == step.access, "{stale:?}");
            assert_eq!(data.gate(), before, "a refusal changed the marks: {schedule:?}");
            Seen::Refused
        })
    });
    steps.collect()
}

/// Carries the steps out on a key of their own; `alone` enters first, in a call that does nothing else.
async fn in_redis(fence: &RedisFence, key: &str, schedule: &[Step], alone: bool) -> Vec<Seen> {
    fence.set(key, Token::NONE, UNTOUCHED.to_string()).await.unwrap();
    let mut seen = Vec::new();
    for (number, step) in schedule.iter().enumerate() {
        if alone {
            let entered = fence.enter(key, step.token, step.access).await;
            seen.push(unless_stale(entered.map(|()| Seen::Wrote), step));
            continue;
        }
        let done = match step.access {
            Access::Read => fence.get(key, step.token).await.map(|value| Seen::Read(number_in(value))),
            Access::Write => fence.set(key, step.token, number.to_string()).await.map(|()| Seen::Wrote),
        };
        seen.push(unless_stale(done, step));
    }
    seen
}

fn unless_stale(done: Result<Seen, Error>, step: &Step) -> Seen {
    done.unwrap_or_else(|error| {
        let stale = Stale::behind(&error).unwrap_or_else(|| panic!("{error:?}"));
        assert!(stale.token == step.token && stale.mark > step.token && stale.access == step.access, "{stale:?}");
        assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Lost, false));
        Seen::Refused
    })
}

fn number_in(value: Option<Vec<u8>>) -> usize {
    String::from_utf8(value.expect("the key is there")).unwrap().parse().unwrap()
}

#[test]
fn every_schedule_in_memory_goes_by_the_rule() {
    for schedule in schedules() {
        assert_eq!(in_memory(&schedule), by_the_rule(&schedule), "{schedule:?}");
    }
}

#[tokio::test]
async fn every_schedule_in_redis_goes_by_the_rule() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    for (number, schedule) in schedules().enumerate() {
        let expected = by_the_rule(&schedule);
        let seen = in_redis(&fence, &format!("data:{number}"), &schedule, false).await;
        assert_eq!(seen, expected, "{schedule:?}");
        let entered: Vec<_> = expected.iter().map(|seen| *seen != Seen::Refused).collect();
        let seen = in_redis(&fence, &format!("alone:{number}"), &schedule, true).await;
        assert_eq!(seen.iter().map(|seen| *seen != Seen::Refused).collect::<Vec<_>>(), entered, "{schedule:?}");
    }
}

/// The schedule that a check of writes alone lets through: A reads, B reads, A writes.
#[tokio::test]
async fn a_later_read_shuts_an_earlier_writer_out() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    let (a, b) = (token(33), token(34));

    let stock = Fenced::new(5);
    let (seen_by_a, seen_by_b) = (*stock.read(a).unwrap(), *stock.read(b).unwrap());
    assert_eq!(
        stock.write(a).map(|mut left| *left = seen_by_a - 1),
        Err(Stale { token: a, mark: b, access: Access::Write })
    );
    stock.write(b).map(|mut left| *left = seen_by_b - 1).unwrap();
    assert_eq!(stock.into_inner(), 4);

    fence.set("stock", Token::NONE, "5").await.unwrap();
    let (seen_by_a, seen_by_b) = (fence.get("stock", a).await.unwrap(), fence.get("stock", b).await.unwrap());
    assert_eq!((number_in(seen_by_a), number_in(seen_by_b)), (5, 5));
    let error = fence.set("stock", a, "4").await.unwrap_err();
    assert_eq!(Stale::behind(&error), Some(&Stale { token: a, mark: b, access: Access::Write }));
    assert!(error.to_string().contains("take the lock again"), "{error}");
    fence.set("stock", b, "4").await.unwrap();
    // To everybody else it is an ordinary key.
    assert_eq!(server.command(&["GET", "stock"]), Value::from("4"));
}

/// Whoever checks before locking the data lets an older token write after a newer one.
#[test]
fn check_and_write_are_one_step() {
    const EACH: u64 = 20_000;
    const THREADS: u64 = 4;
    let next = std::sync::atomic::AtomicU64::new(1);
    let log = Fenced::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let token = token(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
                    if let Ok(mut log) = log.write(token) {
                        log.push(token);
                    }
                }
            });
        }
    });
    let log = log.into_inner();
    assert!(log.is_sorted(), "an older token wrote after a newer one");
    assert_eq!(log.last(), Some(&token(EACH * THREADS)));
}

#[test]
fn marks_are_kept_with_the_data() {
    let mut gate = Gate::new();
    gate.enter(token(5), Access::Write).unwrap();
    gate.enter(token(7), Access::Read).unwrap();
    assert_eq!((gate.writers(), gate.all()), (token(5), token(7)));
    assert_eq!(Gate::restore(gate.writers(), gate.all()), gate);
    let data = Fenced::behind(gate, ());
    assert!(data.write(token(6)).is_err());
    assert!(data.read(token(6)).is_ok());
    assert!(data.read(token(4)).is_err());
    // Marks that contradict each other are taken as the stricter of the two.
    assert_eq!(Gate::restore(token(7), token(5)).all(), token(7));
}

#[test]
fn a_panic_poisons_nothing() {
    let data = Fenced::new(1);
    let panicked = thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let mut data = data.write(token(1)).unwrap();
            *data = 2;
            panic!("as the test wants it");
        });
        panics.join()
    });
    assert!(panicked.is_err());
    assert_eq!(*data.read(token(1)).unwrap(), 2);
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
    // A newer layout is as foreign as a stranger's text.
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
    let error = RedisFence::connect("rediss://:s3cret@localhost").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_shows_no_secret(&error);

    let nobody = leasehold_testkit::free_port();
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
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
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
    // Marks that the replica has already do not make its data an answer.
    let fresh = RedisFence::connect(&primary.url()).await.unwrap();
    fresh.set("k", token(1), "v").await.unwrap();
    let soon = Duration::from_secs(30);
    leasehold_testkit::wait_until("the replica has the key", soon, || {
        replica.command(&["EXISTS", "k"]) == Value::Int(1)
    });
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
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    fence.set("k", token(1), "x").await.unwrap();
}

#[tokio::test]
async fn a_missing_right_is_denied() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "poor", "on", ">pw", "~mine*", "~lhf:{mine*", "+@all", "-set"]);
    let url = format!("redis://poor:pw@127.0.0.1:{}", server.port());
    let fence = RedisFence::connect(&url).await.unwrap();
    for key in ["mine", "yours"] {
        let error = fence.set(key, token(1), "v").await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Denied, false), "{key}: {error:?}");
    }
}
