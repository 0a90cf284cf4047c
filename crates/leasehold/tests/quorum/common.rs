//! Shared by the tests on real servers: five servers, clients, and each server's record of a lock.

use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use leasehold::seam::Script;
use leasehold::{ErrorKind, Guard, Leasehold, Mutex, Released, Result};
use leasehold_testkit::proxy::Requests;
use leasehold_testkit::server::Builder;
use leasehold_testkit::{Quorum, RedisServer, Value, wait_until};
use tokio::task::JoinHandle;

/// The promise: the lock of a dead holder is taken over within its lease and this time.
pub(crate) const TAKEOVER_SLACK: Duration = Duration::from_secs(1);
/// The promise: after the grace of a revocation the next waiter holds within this time.
pub(crate) const REVOKED_SLACK: Duration = Duration::from_secs(1);
/// The time of a few rounds on a busy machine, even if nodes do not answer: a node has 50 ms and a round trip for each.
pub(crate) const PROMPT: Duration = Duration::from_secs(1);
/// The bound of events whose time is not tested.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// The longest lease of these quorums.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(10);

/// The name that most tests lock, and the keys of its record, of its queue, and of the marker.
pub(crate) const NAME: &str = "stock";
const KEY: &str = "lq1:{stock}";
const QUEUE: &str = "lq1q:{stock}";
pub(crate) const MARKER: &str = "lq1:marker";

/// Starts five servers without persistence, which vote at once.
pub(crate) async fn five() -> Quorum {
    five_of(RedisServer::builder()).await
}

/// Starts five of these servers, which vote at once.
pub(crate) async fn five_of(server: Builder) -> Quorum {
    let quorum = Quorum::builder(5).each(server).max_lease(MAX_LEASE).start();
    leasehold::quorum::begin(&quorum.url()).await.expect("all servers are up");
    quorum
}

pub(crate) async fn client(url: &str, lease: Duration) -> Leasehold {
    Leasehold::builder(url).lease(lease).connect().await.expect("a majority is up")
}

/// Connects a client, and waits until it is connected to all of these servers: a majority is enough for a client to begin.
pub(crate) async fn client_at_all(url: &str, lease: Duration, servers: &[RedisServer]) -> Leasehold {
    let client = client(url, lease).await;
    let begun = Instant::now();
    loop {
        let guard = client.mutex(NAME).lease(lease).lock().await.unwrap();
        let is_at_all = votes(servers, guard.token()) == servers.len();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        await_no_residue(servers, LONG);
        if is_at_all {
            return client;
        }
        assert!(begun.elapsed() < LONG, "it is never connected to all servers");
    }
}

/// A vote that a server has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    pub(crate) token: u64,
    pub(crate) since_us: u64,
    pub(crate) end_us: u64,
}

/// Returns the vote in the record of a server, ended or not. See `part/open.lua` of a node.
pub(crate) fn vote(server: &RedisServer) -> Option<Vote> {
    let Value::Bulk(record) = server.command(&["GET", KEY]) else { return None };
    let record = String::from_utf8(record).expect("digits and a label");
    let at = if &record[5..6] == "C" { 198 } else { 102 };
    let number = |from: usize, to: usize| record[at + from..at + to].parse::<u64>().expect("digits");
    (&record[3..4] != "F").then(|| {
        let (since_us, length_ms) = (number(80, 96), number(96, 104));
        Vote { token: number(64, 80), since_us, end_us: since_us + length_ms * 1000 }
    })
}

/// Returns how many of these servers have voted for this token.
pub(crate) fn votes(servers: &[RedisServer], token: leasehold::Token) -> usize {
    servers.iter().filter(|server| vote(server).is_some_and(|vote| vote.token == token.get())).count()
}

/// Returns how many of these servers have a vote that has not ended.
pub(crate) fn taken(servers: &[RedisServer]) -> usize {
    servers.iter().filter(|server| vote(server).is_some_and(|vote| vote.end_us > server_us(server))).count()
}

/// Returns a server's clock.
pub(crate) fn server_us(server: &RedisServer) -> u64 {
    let Value::Array(time) = server.command(&["TIME"]) else { panic!("TIME answers two numbers") };
    let part = |at: usize| time[at].text().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    part(0) * 1_000_000 + part(1)
}

/// Returns the wall clock of the machine.
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
    u64::try_from(since.as_micros()).expect("and not yet the year 586,524")
}

/// Waits until no server has a vote or a waiter. `within` has to be far shorter than the leases.
#[track_caller]
pub(crate) fn await_no_residue(servers: &[RedisServer], within: Duration) {
    let begun = Instant::now();
    loop {
        let late = begun.elapsed() > within;
        let left: Vec<_> = servers.iter().map(|server| (vote(server), waiters(server))).collect();
        if left.iter().all(|left| *left == (None, 0)) {
            return;
        }
        assert!(!late, "after {within:?} there are votes and waiters left: {left:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns how many waiters a server has.
pub(crate) fn waiters(server: &RedisServer) -> i64 {
    match server.command(&["ZCARD", QUEUE]) {
        Value::Int(waiters) => waiters,
        other => panic!("ZCARD answers a number: {other:?}"),
    }
}

/// Locks in the background, and returns when the client waits at all of these servers.
pub(crate) async fn join(client: &Leasehold, servers: &[RedisServer]) -> JoinHandle<Result<Guard>> {
    let mutex = client.mutex(NAME).fair();
    let before: Vec<i64> = servers.iter().map(waiters).collect();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let joined = || servers.iter().zip(&before).all(|(server, before)| waiters(server) > *before);
    let begun = Instant::now();
    while !joined() {
        assert!(begun.elapsed() < LONG, "it never waits at all servers");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    waiting
}

/// Returns the output of the future, which must be ready within this time.
#[track_caller]
pub(crate) fn within<F: Future>(time: Duration, what: &str, future: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    let what = what.to_owned();
    async move {
        match tokio::time::timeout(time, future).await {
            Ok(output) => output,
            Err(_) => panic!("{what} did not come within {time:?} ({caller})"),
        }
    }
}

/// Returns the guard that a task waits for in the background.
pub(crate) async fn granted(within_time: Duration, waiting: JoinHandle<Result<Guard>>) -> Guard {
    within(within_time, "the lock", waiting).await.expect("the waiter did not panic").expect("a lock, not an error")
}

/// Returns whether the lock is held. If not, too few nodes have answered in time. That happens on a busy machine, is no
/// grant, and the caller has to ask again.
#[track_caller]
pub(crate) fn is_busy<G>(answer: Result<Option<G>>) -> bool {
    match answer {
        Ok(None) => true,
        Ok(Some(_)) => panic!("it was granted, although the lock is held"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
            false
        }
    }
}

/// Asserts that the lock is held.
#[track_caller]
pub(crate) fn assert_busy(mutex: &Mutex) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !is_busy(mutex.try_lock().await) {
            assert!(begun.elapsed() < LONG, "a majority never answers ({caller})");
        }
    }
}

/// Waits until all of these servers have voted for this token, and each vote counts for its holder: the vote of a filled
/// node counts from the next renewal on.
pub(crate) fn await_full_set(servers: &[RedisServer], token: leasehold::Token) {
    wait_until("the votes of all", LONG, || votes(servers, token) == servers.len());
    let ends = || servers.iter().map(|server| vote(server).map(|vote| vote.end_us));
    let before: Vec<_> = ends().collect();
    wait_until("a renewal at all", LONG, || ends().zip(&before).all(|(end, before)| end > *before));
}

/// Asserts that a guard is not lost during this time.
#[track_caller]
pub(crate) fn assert_kept(guard: &Guard, time: Duration) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        if let Ok(lost) = tokio::time::timeout(time, guard.lost()).await {
            panic!("lost after {:?} of {time:?}: {lost} ({caller})", begun.elapsed());
        }
        guard.check().expect("not lost");
    }
}

/// Waits until a guard is lost. Asserts that no check succeeds at a time at which another client can have a majority.
#[track_caller]
pub(crate) fn await_end_before(guard: &Guard, end_us: u64, clock_us: impl Fn() -> u64) {
    let begun = Instant::now();
    loop {
        // The clock is read before the check, so a delay of the machine cannot make the test fail.
        let before_us = clock_us();
        if guard.check().is_err() {
            return;
        }
        assert!(before_us < end_us, "valid {} µs after a majority could be another's", before_us - end_us);
        assert!(begun.elapsed() < LONG, "it never ends");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Asserts that an error names each of these servers.
#[track_caller]
pub(crate) fn assert_names(said: &str, servers: &[RedisServer], why: &str) {
    for server in servers {
        let named = format!("127.0.0.1:{} {why}", server.port());
        assert!(said.contains(&named), "{named:?} is not in: {said}");
    }
}

/// Selects the calls of a script.
pub(crate) fn script(script: Script) -> Requests {
    Requests::script(script.sha())
}
