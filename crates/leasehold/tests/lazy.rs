//! `Builder::lazy`: a service that starts before its store.

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Leasehold, Released};
use leasehold_testkit::{Quorum, RedisServer, free_port};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(20);

async fn lazy(url: &str) -> leasehold::Result<Leasehold> {
    Leasehold::builder(url).lazy().connect().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_client_waits_for_its_store() {
    let server = RedisServer::start();
    server.kill();
    let url = server.url();
    assert_eq!(Leasehold::connect(&url).await.unwrap_err().kind(), ErrorKind::Unreachable, "without it");
    let client = lazy(&url).await.unwrap();
    let mutex = client.mutex("a");
    assert_eq!(mutex.try_lock().await.unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(mutex.inspect().await.unwrap_err().kind(), ErrorKind::Unreachable);
    let waits = mutex.clone();
    let waiting = tokio::spawn(async move { waits.lock().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "lock waits");
    server.restart();
    let guard = timeout(LONG, waiting).await.expect("the store is there").unwrap().unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let guard = mutex.try_lock().await.unwrap().expect("it is free");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(client.close().await.unconfirmed().is_empty());
}

/// A `try_lock` right behind `connect` must not fail only because the connection is not there yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_client_is_connected_if_its_store_is_there() {
    let server = RedisServer::start();
    for _ in 0..20 {
        let client = lazy(&server.url()).await.unwrap();
        let guard = client.mutex("a").try_lock().await.unwrap().expect("it is free");
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_client_waits_for_a_majority() {
    let quorum = Quorum::builder(3).max_lease(Duration::from_secs(2)).start();
    leasehold::quorum::begin(&quorum.url()).await.unwrap();
    quorum.servers().iter().for_each(RedisServer::kill);
    let client = lazy(&quorum.url()).await.unwrap();
    assert_eq!(client.mutex("a").try_lock().await.unwrap_err().kind(), ErrorKind::Quorum);
    quorum.servers().iter().for_each(RedisServer::restart);
    // The nodes were emptied, and begin with a quarantine.
    leasehold::quorum::begin(&quorum.url()).await.unwrap();
    let guard = timeout(LONG, client.mutex("a").lock()).await.expect("a majority is there").unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Waiting does not repair these errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanent_error_fails_a_lazy_connect() {
    let server = RedisServer::builder().password("secret").start();
    let wrong = format!("redis://:wrong@127.0.0.1:{}", server.port());
    assert_eq!(lazy(&wrong).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(lazy("redis://").await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(lazy("redis://127.0.0.1?password_file=/nowhere").await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// A client that never connected has no grant to return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_client_that_never_connected_closes_at_once() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{}", port.number());
    let client = lazy(&url).await.unwrap();
    let mutex = client.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let dropped = tokio::spawn({
        let mutex = client.mutex("b");
        async move { mutex.lock().await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    dropped.abort();
    let begun = Instant::now();
    assert!(client.close().await.unconfirmed().is_empty());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(
        timeout(LONG, waiting).await.expect("it gets the error").unwrap().unwrap_err().kind(),
        ErrorKind::Closed
    );
}

/// The store accepts connections and never replies. The bound is 5 s, and half a second for a busy machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_connect_to_a_silent_store_ends_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", listener.local_addr().unwrap().port());
    let begun = Instant::now();
    let client = lazy(&url).await.unwrap();
    assert!(begun.elapsed() <= Duration::from_millis(5_500), "{:?}", begun.elapsed());
    let error = client.mutex("a").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}
