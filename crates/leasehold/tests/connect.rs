//! The requests that a client sends while it connects: how many round trips, and in which order (P11).
#![cfg(feature = "redis")]

use std::time::Duration;

use leasehold::seam::Family;
use leasehold::{Leasehold, Released};
use leasehold_testkit::proxy::{Fault, Requests, Seen};
use leasehold_testkit::{FaultProxy, RedisServer, Value};

/// Longer than any step of these tests takes.
const LONG: Duration = Duration::from_secs(20);

fn server_behind_proxy() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.port());
    (server, proxy)
}

fn counts(seen: &Seen, names: &[&str]) -> Vec<u64> {
    names.iter().map(|name| seen.count(name)).collect()
}

/// Three round trips, with both connections made at once. Requests behind a held request were sent in the same round
/// trip.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_round_trips() {
    let (server, proxy) = server_behind_proxy();
    drop(Leasehold::connect(&server.url()).await.unwrap());
    let who = proxy.inject(Fault::hold(Requests::named("ROLE")));
    let time = proxy.inject(Fault::hold(Requests::named("TIME")));
    let url = proxy.url();
    let connecting = tokio::spawn(async move { Leasehold::connect(&url).await });
    let all = ["HELLO", "ROLE", "INFO", "EVALSHA", "SCRIPT", "TIME", "SUBSCRIBE", "PUBLISH"];
    proxy.wait_seen("both connections ask for the server's identity", LONG, |seen| {
        counts(seen, &all) == [2, 2, 2, 2, 0, 0, 0, 0]
    });
    who.lift();
    proxy.wait_seen("the inbox is proved", LONG, |seen| counts(seen, &all) == [2, 2, 2, 2, 0, 1, 1, 1]);
    assert!(!connecting.is_finished());
    time.lift();
    let client = connecting.await.unwrap().unwrap();
    assert_eq!(client.mutex("stock").lock().await.unwrap().release().await.unwrap(), Released::Released);
    let commands = proxy.commands();
    let home = commands.iter().find(|command| command.name == "SUBSCRIBE").unwrap().connection;
    let on_it = commands.iter().filter(|command| command.connection == home).map(|command| command.name.as_str());
    let order: Vec<&str> = on_it.take(7).collect();
    assert_eq!(order, ["HELLO", "ROLE", "INFO", "EVALSHA", "TIME", "SUBSCRIBE", "PUBLISH"]);
}

/// A server without our scripts gets them before the first lock. A server that has them does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_scripts_are_loaded_before_the_first_lock() {
    let (server, proxy) = server_behind_proxy();
    let scripts = Family::Locks.scripts().count() as u64 + 1;
    let connect = || Leasehold::builder(&proxy.url()).one_connection().connect();
    for round in 1..=2 {
        let client = connect().await.unwrap();
        assert_eq!(proxy.seen().count("SCRIPT"), round * scripts);
        assert_eq!(connect().await.unwrap().close().await.unconfirmed(), [""; 0]);
        assert_eq!(proxy.seen().count("SCRIPT"), round * scripts, "the server has the scripts");
        drop(client.mutex("stock").lock().await.unwrap());
        client.close().await;
        assert_eq!(proxy.seen().count("EVAL"), 0, "a script was missing");
        assert_eq!(server.command(&["SCRIPT", "FLUSH"]), Value::Status("OK".into()));
    }
}

/// A program with `one_connection` has one connection: all requests use it, and no other is opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_is_enough() {
    let (server, proxy) = server_behind_proxy();
    let one = || Leasehold::builder(&proxy.url()).one_connection().lease(Duration::from_secs(1)).connect();
    let (holder, waiter) = (one().await.unwrap(), one().await.unwrap());
    let guard = holder.mutex("stock").lock().await.unwrap();
    let mutex = waiter.mutex("stock");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    while holder.mutex("stock").inspect().await.unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert_eq!((proxy.seen().accepted, proxy.seen().open), (2, 2));
    assert!(holder.close().await.unconfirmed().is_empty() && waiter.close().await.unconfirmed().is_empty());
    proxy.wait_seen("they are gone", LONG, |seen| seen.open == 0);
    assert_eq!(proxy.seen().accepted, 2);
    drop(server);
}
