//! The common part of these tests: a server behind a proxy, clients of both, and the slacks.

use std::future::Future;
use std::time::{Duration, Instant};

use leasehold::seam::Script;
use leasehold::{Guard, Leasehold, Result};
use leasehold_testkit::proxy::{Command, Requests};
use leasehold_testkit::{FaultProxy, RedisServer, Value};
use tokio::task::JoinHandle;

/// The guarantee: a dead holder's lock is taken over within its lease and this slack.
pub(crate) const TAKEOVER_SLACK: Duration = Duration::from_secs(1);
/// The guarantee: when the grace of a revocation is over, the next waiter holds within this slack.
pub(crate) const REVOKED_SLACK: Duration = Duration::from_secs(1);
/// The guarantee: a frozen waiter costs the next one a claim and this slack.
pub(crate) const CLAIM_SLACK: Duration = Duration::from_millis(500);
/// The time of a handful of round trips on a busy machine. Less than a claim, and less than every re-check that it is
/// compared with.
pub(crate) const PROMPT: Duration = Duration::from_millis(800);
/// For events that must happen, if their time does not matter.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// The shortest claim.
pub(crate) const CLAIM: Duration = Duration::from_millis(leasehold_spec::limits::CLAIM_MIN_MS);
/// The maximum delay after which a request of ours can still be executed.
pub(crate) const LATE: Duration = Duration::from_millis(leasehold_spec::limits::NOT_AFTER_MAX_MS);

/// The name that most tests lock, and the key of its record.
pub(crate) const NAME: &str = "stock";
pub(crate) const KEY: &str = "lh1:{stock}";

/// A server behind a proxy.
pub(crate) struct Harness {
    pub(crate) server: RedisServer,
    pub(crate) proxy: FaultProxy,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(RedisServer::start())
    }

    pub(crate) fn with(server: RedisServer) -> Self {
        let proxy = FaultProxy::start(server.port());
        Self { server, proxy }
    }

    /// Connects a client through the proxy, which can break its connections.
    pub(crate) async fn through(&self, lease: Duration) -> Leasehold {
        client(&self.proxy.url(), lease).await
    }

    /// Connects a client past the proxy.
    pub(crate) async fn beside(&self, lease: Duration) -> Leasehold {
        client(&self.server.url(), lease).await
    }

    /// Returns the connection of the one session behind the proxy: the connection with its inbox.
    pub(crate) fn home(&self) -> u64 {
        self.proxy.commands().iter().rfind(|command| command.name == "SUBSCRIBE").expect("an inbox").connection
    }

    /// Returns the calls of one script that came through the proxy.
    pub(crate) fn calls(&self, script: Script) -> Vec<Command> {
        let is_call = |command: &Command| command.name == "EVALSHA" && command.argument(0) == Some(script.sha());
        self.proxy.commands().into_iter().filter(is_call).collect()
    }
}

pub(crate) async fn client(url: &str, lease: Duration) -> Leasehold {
    Leasehold::builder(url).lease(lease).connect().await.unwrap()
}

/// Sets the memory after which the server is full; 0 is no limit.
pub(crate) fn set_memory(server: &RedisServer, bytes: &str) {
    assert_eq!(server.command(&["CONFIG", "SET", "maxmemory", bytes]), Value::Status("OK".into()));
}

/// Locks in the background, with an entry of its own, although others of that client may wait.
pub(crate) fn lock(client: &Leasehold, name: &str) -> JoinHandle<Result<Guard>> {
    let mutex = client.mutex(name).fair();
    tokio::spawn(async move { mutex.lock().await })
}

/// Locks in the background, and returns when the store has `waiters` for the name, this one last.
pub(crate) async fn join(client: &Leasehold, name: &str, waiters: usize) -> JoinHandle<Result<Guard>> {
    let waiting = lock(client, name);
    await_waiters(client, name, waiters).await;
    waiting
}

/// Waits until the queue has this number of waiters.
pub(crate) async fn await_waiters(client: &Leasehold, name: &str, waiters: usize) {
    let begun = Instant::now();
    loop {
        let late = begun.elapsed() > LONG;
        let there = client.mutex(name).inspect().await.map(|seen| seen.waiters);
        if matches!(there, Ok(there) if there == waiters) {
            return;
        }
        assert!(!late, "after {LONG:?} there are not {waiters} waiters of {name}: {there:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Awaits the future, whose output must come within this time.
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

/// Returns the guard of a waiter in the background.
pub(crate) async fn granted(within_time: Duration, waiting: JoinHandle<Result<Guard>>) -> Guard {
    within(within_time, "the lock", waiting).await.expect("the waiter did not panic").expect("a lock, not an error")
}

/// Returns the guard of the first of these waiters that is granted the lock.
pub(crate) async fn first_granted(within_time: Duration, waiting: &mut Vec<JoinHandle<Result<Guard>>>) -> Guard {
    let at = within(within_time, "one of the locks", async {
        loop {
            if let Some(at) = waiting.iter().position(JoinHandle::is_finished) {
                break at;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    let at = at.await;
    granted(within_time, waiting.remove(at)).await
}

/// Asserts that a guard reports no more time than the server has for it.
pub(crate) async fn assert_within_server(guard: &Guard, observer: &Leasehold) {
    let (asked, believed) = (Instant::now(), guard.remaining());
    let holder = observer.mutex(guard.name()).inspect().await.unwrap().holder().cloned();
    let left = holder.filter(|holder| holder.token == guard.token()).map_or(Duration::ZERO, |holder| holder.remaining);
    // The server's reply was true at some moment since the request.
    let most = left + asked.elapsed();
    assert!(believed <= most, "the guard reports {believed:?}, and the server has {most:?} at most");
}

/// Asserts that a guard is not lost during this time.
pub(crate) async fn assert_kept(guard: &Guard, time: Duration) {
    let lost = tokio::time::timeout(time, guard.lost()).await;
    assert!(lost.is_err(), "lost: {:?}", lost.ok());
    guard.check().expect("not lost");
}

/// Matches calls of this script.
pub(crate) fn script(script: Script) -> Requests {
    Requests::script(script.sha())
}

/// Returns how many inboxes are attached to the server.
pub(crate) fn inboxes(server: &RedisServer) -> usize {
    match server.command(&["PUBSUB", "CHANNELS", "lh1:inbox:*"]) {
        Value::Array(channels) => channels.len(),
        other => panic!("PUBSUB CHANNELS answers a list: {other:?}"),
    }
}
