//! P22 on the fence in memory and on a real Redis: the tests compare both with the rule as it is written, not as it is
//! coded.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed one is a failed test with a line number")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use leasehold::fence::{Access, Fenced, Gate, RedisFence, Stale};
use leasehold::{Error, ErrorKind, Token};
use leasehold_testkit::{RedisServer, Value};

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// A holder enters, and reads or writes. A write writes the number of the step.
#[derive(Clone, Copy, Debug)]
struct Step {
    token: Token,
    access: Access,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Refused,
    Wrote,
    Read(usize),
}

const UNTOUCHED: usize = 9;

/// Every schedule of four steps with three tokens. Two of them differ by 1, near the limit of exact doubles.
fn schedules() -> impl Iterator<Item = [Step; 4]> {
    let step = |n: usize| Step {
        token: token([10, (1 << 53) - 2, (1 << 53) - 1][n / 2]),
        access: [Access::Read, Access::Write][n % 2],
    };
    (0..6_usize.pow(4)).map(move |n| [step(n / 216), step(n / 36 % 6), step(n / 6 % 6), step(n % 6)])
}

/// The rule of P22, over the history of all admitted steps.
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

/// Carries the steps out on a new key.
async fn in_redis(fence: &RedisFence, key: &str, schedule: &[Step]) -> Vec<Seen> {
    fence.set(key, Token::NONE, UNTOUCHED.to_string()).await.unwrap();
    let mut seen = Vec::new();
    for (number, step) in schedule.iter().enumerate() {
        let done = match step.access {
            Access::Read => fence.get(key, step.token).await.map(|value| Seen::Read(number_in(value))),
            Access::Write => fence.set(key, step.token, number.to_string()).await.map(|()| Seen::Wrote),
        };
        seen.push(unless_stale(done, step));
    }
    seen
}

/// Enters, and does nothing. Returns whether it was admitted.
async fn let_in(fence: &RedisFence, key: &str, schedule: &[Step]) -> Vec<bool> {
    let mut seen = Vec::new();
    for step in schedule {
        let entered = fence.enter(key, step.token, step.access).await.map(|()| Seen::Wrote);
        seen.push(unless_stale(entered, step) != Seen::Refused);
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
fn every_schedule_in_memory_follows_the_rule() {
    for schedule in schedules() {
        assert_eq!(in_memory(&schedule), by_the_rule(&schedule), "{schedule:?}");
    }
}

#[tokio::test]
async fn every_schedule_in_redis_follows_the_rule() {
    let server = RedisServer::start();
    let fence = RedisFence::connect(&server.url()).await.unwrap();
    for (number, schedule) in schedules().enumerate() {
        let expected = by_the_rule(&schedule);
        assert_eq!(in_redis(&fence, &format!("data:{number}"), &schedule).await, expected, "{schedule:?}");
        let expected: Vec<_> = expected.iter().map(|seen| *seen != Seen::Refused).collect();
        assert_eq!(let_in(&fence, &format!("alone:{number}"), &schedule).await, expected, "{schedule:?}");
    }
}

/// The schedule that a fence admits if it checks only writes: A reads, B reads, A writes.
#[tokio::test]
async fn a_later_read_excludes_an_earlier_writer() {
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
    assert!(error.to_string().contains("lock again"), "{error}");
    fence.set("stock", b, "4").await.unwrap();
    // Other programs see an ordinary key.
    assert_eq!(server.command(&["GET", "stock"]), Value::from("4"));
}

/// A fence that checks before it locks the data lets an older token write after a newer one.
#[test]
fn check_and_write_are_one_step() {
    const EACH: u64 = 20_000;
    const THREADS: u64 = 4;
    let next = AtomicU64::new(1);
    let log = Fenced::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let token = token(next.fetch_add(1, Ordering::Relaxed));
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
    // If marks contradict each other, the stricter one counts.
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

/// A program may use locks on another executor, where they work.
#[test]
fn without_a_tokio_runtime_it_is_refused_and_does_not_panic() {
    let mut connecting = std::pin::pin!(RedisFence::connect("redis://127.0.0.1:1"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = connecting.as_mut().poll(&mut context) else {
        panic!("it does not answer at once")
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}
