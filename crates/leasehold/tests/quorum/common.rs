//! What the tests on real servers share: five of them, clients, and what each server has of a lock.

use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use leasehold::seam::Script;
use leasehold::{ErrorKind, Guard, Leasehold, Mutex, Released, Result};
use leasehold_testkit::proxy::Requests;
use leasehold_testkit::server::Builder;
use leasehold_testkit::{Quorum, RedisServer, Value, wait_until};
use tokio::task::JoinHandle;

/// The promise: a dead holder's lock is taken over within its lease and this.
pub(crate) const TAKEOVER_SLACK: Duration = Duration::from_secs(1);
/// The promise: when the grace of a revocation is over, the next waiter holds within this.
pub(crate) const REVOKED_SLACK: Duration = Duration::from_secs(1);
/// What a few rounds may take on a busy machine, whoever does not answer: a node has 50 ms and the way for each of them.
pub(crate) const PROMPT: Duration = Duration::from_secs(1);
/// For what must happen, and whose time is not the point.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// The longest lease of these quorums.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(10);

/// The name that most tests lock, and the keys of its record, of its queue, and of the marker.
pub(crate) const NAME: &str = "stock";
const KEY: &str = "lq1:{stock}";
const QUEUE: &str = "lq1q:{stock}";
pub(crate) const MARKER: &str = "lq1:marker";

/// Five servers without persistence that vote at once.
pub(crate) async fn five() -> Quorum {
    five_of(RedisServer::builder()).await
}

/// Five of these, that vote at once.
pub(crate) async fn five_of(server: Builder) -> Quorum {
    let quorum = Quorum::builder(5).each(server).max_lease(MAX_LEASE).start();
    leasehold::quorum::begin(&quorum.url()).await.expect("all are there");
    quorum
}

pub(crate) async fn client(url: &str, lease: Duration) -> Leasehold {
    Leasehold::builder(url).lease(lease).connect().await.expect("a majority is there")
}

/// The same, connected to all of these: a majority is enough for a client to begin.
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
        assert!(begun.elapsed() < LONG, "it is never connected to all of them");
    }
}

/// A vote that a server has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    pub(crate) token: u64,
    pub(crate) since_us: u64,
    pub(crate) end_us: u64,
}

/// Whose vote a server has, as its record says, ended or not. See `part/open.lua` of a node.
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

/// How many of these have given their vote for this token.
pub(crate) fn votes(servers: &[RedisServer], token: leasehold::Token) -> usize {
    servers.iter().filter(|server| vote(server).is_some_and(|vote| vote.token == token.get())).count()
}

/// How many of these have given a vote that lasts still.
pub(crate) fn taken(servers: &[RedisServer]) -> usize {
    servers.iter().filter(|server| vote(server).is_some_and(|vote| vote.end_us > server_us(server))).count()
}

/// A server's clock.
pub(crate) fn server_us(server: &RedisServer) -> u64 {
    let Value::Array(time) = server.command(&["TIME"]) else { panic!("TIME answers two numbers") };
    let part = |at: usize| time[at].text().and_then(|text| text.parse::<u64>().ok()).expect("a number");
    part(0) * 1_000_000 + part(1)
}

/// The machine's wall clock.
pub(crate) fn wall_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is later than 1970");
    u64::try_from(since.as_micros()).expect("and not yet the year 586,524")
}

/// Waits until no server has a vote or a waiter left. Long before the leases end by themselves, given `within` it.
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

/// How many wait at a server.
pub(crate) fn waiters(server: &RedisServer) -> i64 {
    match server.command(&["ZCARD", QUEUE]) {
        Value::Int(waiters) => waiters,
        other => panic!("ZCARD answers a number: {other:?}"),
    }
}

/// Locks in the background, and returns when this one waits at so many of the servers.
pub(crate) async fn join(client: &Leasehold, servers: &[RedisServer]) -> JoinHandle<Result<Guard>> {
    let mutex = client.mutex(NAME).fair();
    let before: Vec<i64> = servers.iter().map(waiters).collect();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let joined = || servers.iter().zip(&before).all(|(server, before)| waiters(server) > *before);
    let begun = Instant::now();
    while !joined() {
        assert!(begun.elapsed() < LONG, "it never waits at all of them");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    waiting
}

/// The future's output, which must come within this time.
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

/// The guard that somebody waits for in the background.
pub(crate) async fn granted(within_time: Duration, waiting: JoinHandle<Result<Guard>>) -> Guard {
    within(within_time, "the lock", waiting).await.expect("the waiter did not panic").expect("a lock, not an error")
}

/// Whether this says that somebody has it. If not, too few nodes have answered in time: on a busy machine that comes, is no
/// grant, and is to be asked again.
#[track_caller]
pub(crate) fn is_busy<G>(answer: Result<Option<G>>) -> bool {
    match answer {
        Ok(None) => true,
        Ok(Some(_)) => panic!("it is granted, and somebody has it"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
            false
        }
    }
}

/// Asserts that somebody has it.
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

/// Waits until all of these have given their vote for this token, and each of these votes counts for its holder: one that a
/// node was filled with counts from the next renewal on.
pub(crate) fn await_full_set(servers: &[RedisServer], token: leasehold::Token) {
    wait_until("the votes of all", LONG, || votes(servers, token) == servers.len());
    let ends = || servers.iter().map(|server| vote(server).map(|vote| vote.end_us));
    let before: Vec<_> = ends().collect();
    wait_until("a renewal at all", LONG, || ends().zip(&before).all(|(end, before)| end > *before));
}

/// Asserts that a guard is not lost for so long.
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

/// Waits until a guard is lost, and asserts that no check of it says yes at a moment at which a majority can be another's.
#[track_caller]
pub(crate) fn await_end_before(guard: &Guard, end_us: u64, clock_us: impl Fn() -> u64) {
    let begun = Instant::now();
    loop {
        // Read before the check: however long the machine keeps us waiting, that is made later.
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

/// Calls of this script.
pub(crate) fn script(script: Script) -> Requests {
    Requests::script(script.sha())
}
