//! The inbox of a client of a real Redis, which moves to the connection of the callers and back (P17).
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use leasehold::seam::RIGHTS;
use leasehold::{Leasehold, Released};
use leasehold_testkit::{RedisServer, wait_until};
use tokio::runtime::{Builder, Runtime};

/// Longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(20);
/// More than enough hand-overs to move the inbox.
const HAND_OVERS: usize = 200;

/// Returns the connections that are subscribed to an inbox.
fn subscribed(server: &RedisServer) -> BTreeSet<String> {
    let list = server.command(&["CLIENT", "LIST"]);
    let is_subscribed = |line: &&str| line.contains(" sub=1 ");
    let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    list.text().unwrap().lines().filter(is_subscribed).map(id).collect()
}

/// Locks and unlocks again and again, until this many hand-overs were made or `is_over`.
async fn alternate(client: &Leasehold, mut is_over: impl FnMut(usize) -> bool) {
    let mutex = client.mutex("name").lease(Duration::from_secs(30)).fair();
    for nth in 0.. {
        if is_over(nth) {
            return;
        }
        let guard = mutex.lock().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

/// Lets two clients alternate until both inboxes have moved. A busy machine can make them come back, and move again later.
async fn move_both(server: &RedisServer, a: &Leasehold, b: &Leasehold, before: &BTreeSet<String>) {
    let is_moved = |nth: usize| {
        let now = (nth % 50 == 49).then(|| subscribed(server));
        now.is_some_and(|now| now.len() == 2 && now.is_disjoint(before))
    };
    let moving = async { tokio::join!(alternate(a, is_moved), alternate(b, is_moved)) };
    tokio::time::timeout(LONG, moving).await.expect("both inboxes move");
}

/// If nothing is granted for 5 s, the inbox returns, so an idle program is not checked every 0.1 s.
#[tokio::test]
async fn both_inboxes_move_and_return_when_nothing_is_granted() {
    let server = RedisServer::start();
    let (a, b) = (Leasehold::connect(&server.url()).await.unwrap(), Leasehold::connect(&server.url()).await.unwrap());
    let before = subscribed(&server);
    assert_eq!(before.len(), 2);
    move_both(&server, &a, &b, &before).await;
    let back = move || wait_until("they are back", LONG, || subscribed(&server) == before);
    tokio::task::spawn_blocking(back).await.unwrap();
}

/// Returns how often a user was refused this command for want of the right.
fn refusals(server: &RedisServer, command: &str) -> u64 {
    let statistics = server.command(&["INFO", "commandstats"]);
    let of_command = format!("cmdstat_{command}:");
    let line = statistics.text().unwrap().lines().find(|line| line.starts_with(&of_command)).unwrap_or_default();
    let count = line.split(',').find_map(|field| field.strip_prefix("rejected_calls="));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_user_without_the_right_to_unsubscribe_locks_as_before() {
    let server = RedisServer::start();
    let rights: Vec<&str> = RIGHTS.split(' ').filter(|right| !right.is_empty()).collect();
    let user = [&["ACL", "SETUSER", "worker", "reset", "on", ">hunter2", "~lh1:*", "&lh1:inbox:*"], &rights[..]];
    assert_eq!(server.command(&user.concat()).text(), Some("OK"));
    let url = format!("redis://worker:hunter2@127.0.0.1:{}", server.port());
    let (a, b) = (Leasehold::connect(&url).await.unwrap(), Leasehold::connect(&url).await.unwrap());
    let before = subscribed(&server);
    tokio::join!(alternate(&a, |nth| nth == HAND_OVERS), alternate(&b, |nth| nth == HAND_OVERS));
    assert!(refusals(&server, "unsubscribe") > 0, "an inbox has moved, and could not be detached");
    wait_until("the inboxes have come back", LONG, || subscribed(&server) == before);
    tokio::join!(alternate(&a, |nth| nth == HAND_OVERS), alternate(&b, |nth| nth == HAND_OVERS));
    assert_eq!(subscribed(&server), before);
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a client on a runtime of its own. When the inbox of the client has moved, `then` goes on with the client, and may
/// block that runtime.
fn with_inbox_at_its_lane<T: Send + 'static, F: Future<Output = T>>(
    server: &RedisServer,
    other: &Leasehold,
    ours: &Runtime,
    then: impl FnOnce(Leasehold) -> F + Send + 'static,
) -> JoinHandle<T> {
    let url = server.url();
    let (say, hear) = mpsc::channel();
    let client = thread::spawn(move || {
        runtime().block_on(async {
            let client = Leasehold::connect(&url).await.unwrap();
            alternate(&client, |nth| nth == HAND_OVERS).await;
            say.send(()).unwrap();
            then(client).await
        })
    });
    ours.block_on(alternate(other, |_| hear.try_recv().is_ok()));
    client
}

/// A client waits, and its runtime blocks. Then the client is granted the lock. It holds it for longer than a claim.
#[test]
fn a_client_whose_runtime_blocks_keeps_what_it_was_granted() {
    let (server, ours) = (RedisServer::start(), runtime());
    let other = ours.block_on(Leasehold::connect(&server.url())).unwrap();
    let held = ours.block_on(other.mutex("held").lock()).unwrap();
    let (go_on, wait) = mpsc::channel::<()>();
    let (say, hear) = mpsc::channel();
    let client = with_inbox_at_its_lane(&server, &other, &ours, move |client| async move {
        let (mutex, waiting) = (client.mutex("held"), client.mutex("held"));
        let locking = tokio::spawn(async move { waiting.lock().await });
        while mutex.inspect().await.unwrap().waiters == 0 {
            tokio::task::yield_now().await;
        }
        say.send(()).unwrap();
        wait.recv().unwrap();
        locking.await.unwrap().unwrap().token()
    });
    hear.recv().unwrap();
    let (holder, later) = ours.block_on(async {
        assert_eq!(held.release().await.unwrap(), Released::Released);
        let holder = other.mutex("held").inspect().await.unwrap().holders.remove(0);
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        (holder, other.mutex("held").inspect().await.unwrap().holders)
    });
    assert_eq!(later.first().expect("it has renewed its claim").token, holder.token);
    go_on.send(()).unwrap();
    assert_eq!(client.join().unwrap(), holder.token);
}

/// A client holds a lock, and its runtime blocks. The lease is revoked, and the inbox returns for the sake of a caller on
/// another runtime. The message still lies where nobody reads it.
#[test]
fn a_client_whose_runtime_blocks_learns_of_a_revocation_if_its_inbox_returns_for_another_reason() {
    let (server, ours) = (RedisServer::start(), runtime());
    let other = ours.block_on(Leasehold::connect(&server.url())).unwrap();
    let _busy = ours.block_on(other.mutex("busy").lock()).unwrap();
    let (say, hear) = mpsc::channel();
    let client = with_inbox_at_its_lane(&server, &other, &ours, move |client| async move {
        let guard = client.mutex("held").lock().await.unwrap();
        say.send(client.clone()).unwrap();
        wait_until("it is revoked", LONG, || !guard.is_valid());
        Instant::now()
    });
    let theirs = hear.recv().unwrap();
    let (is_revoked, begin) = mpsc::channel();
    let elsewhere = thread::spawn(move || {
        begin.recv().unwrap();
        let waiting = async { tokio::time::timeout(Duration::from_secs(8), theirs.mutex("busy").lock()).await };
        assert!(runtime().block_on(waiting).is_err());
    });
    let second = ours.block_on(async {
        let mutex = other.mutex("held");
        let holder = mutex.inspect().await.unwrap().holders.remove(0);
        mutex.revoke(&holder, Duration::from_secs(5)).await.unwrap();
        is_revoked.send(()).unwrap();
        let _second = mutex.lock().await.unwrap();
        Instant::now()
    });
    assert!(client.join().unwrap() <= second, "two clients hold");
    elsewhere.join().unwrap();
}

/// A client holds a lock, and its runtime blocks. The lease is revoked.
#[test]
fn a_client_whose_runtime_blocks_learns_of_a_revocation() {
    let (server, ours) = (RedisServer::start(), runtime());
    let other = ours.block_on(Leasehold::connect(&server.url())).unwrap();
    let (say, hear) = mpsc::channel();
    let client = with_inbox_at_its_lane(&server, &other, &ours, move |client| async move {
        let guard = client.mutex("held").lock().await.unwrap();
        say.send(()).unwrap();
        wait_until("it is revoked", Duration::from_secs(4), || !guard.is_valid());
    });
    hear.recv().unwrap();
    ours.block_on(async {
        let mutex = other.mutex("held");
        let holder = mutex.inspect().await.unwrap().holders.remove(0);
        mutex.revoke(&holder, Duration::from_secs(5)).await.unwrap();
    });
    client.join().unwrap();
}
