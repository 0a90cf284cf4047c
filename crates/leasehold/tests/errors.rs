//! Each error says which operation failed, and on which lock.
#![cfg(all(feature = "redis", feature = "blocking"))]

use std::time::Duration;

use leasehold::fence::RedisFence;
use leasehold::{Error, ErrorKind, Leasehold, Operation, blocking, quorum};

/// A port that nothing listens on.
const NOBODY: &str = "redis://127.0.0.1:1";

fn check(error: &Error, operation: Operation, name: Option<&str>, shown: &str) {
    assert_eq!((error.operation(), error.name()), (Some(operation), name), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(shown) && text.ends_with(error.reason()), "{text}");
    assert_eq!(name.map_or(0, |name| text.matches(name).count()), usize::from(name.is_some()), "named once: {text}");
    let debug = format!("{error:?}");
    assert!(debug.contains(&format!("operation: {operation:?}")), "{debug}");
    assert_eq!(debug.contains("name: "), name.is_some(), "{debug}");
}

#[tokio::test]
async fn every_call_of_a_lock_names_itself_and_the_lock() {
    let client = Leasehold::connect("memory:").await.unwrap();
    let mutex = client.mutex("stock:42");
    let guard = mutex.lock().await.unwrap();
    let holder = mutex.inspect().await.unwrap().holder().cloned().unwrap();
    let waiting = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.lock().await }
    });
    tokio::task::yield_now().await;
    let too_long = mutex.revoke(&holder, Duration::from_secs(6)).await.unwrap_err();
    check(&too_long, Operation::Revoke, Some("stock:42"), "cannot revoke \"stock:42\": a grace of 6s");
    let too_short = mutex.clone().lease(Duration::from_millis(1)).lock().await.unwrap_err();
    check(&too_short, Operation::Lock, Some("stock:42"), "cannot lock \"stock:42\": a lease of 1ms");

    let others = client.clone();
    client.close().await;
    // One error for all waiters of a local queue: each of them gets its own copy.
    let closed = waiting.await.unwrap().unwrap_err();
    check(&closed, Operation::Lock, Some("stock:42"), "cannot lock \"stock:42\": this client was closed");
    for (error, operation, shown) in [
        (mutex.try_lock().await.unwrap_err(), Operation::Lock, "cannot lock \"stock:42\": "),
        (mutex.run(async |_| ()).await.unwrap_err(), Operation::Lock, "cannot lock \"stock:42\": "),
        (mutex.inspect().await.unwrap_err(), Operation::Inspect, "cannot inspect \"stock:42\": "),
        (mutex.revoke(&holder, Duration::ZERO).await.unwrap_err(), Operation::Revoke, "cannot revoke \"stock:42\": "),
    ] {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
        check(&error, operation, Some("stock:42"), shown);
    }
    check(&others.names().await.unwrap_err(), Operation::Names, None, "cannot list the names: this client");
    drop(guard);
}

#[tokio::test]
async fn an_invalid_name_is_not_repeated() {
    let client = Leasehold::connect("memory:").await.unwrap();
    let mutex = client.mutex("");
    check(&mutex.lock().await.unwrap_err(), Operation::Lock, None, "cannot lock: the name is empty");
    check(&mutex.inspect().await.unwrap_err(), Operation::Inspect, None, "cannot inspect: the name is empty");
}

#[tokio::test]
async fn an_error_of_connecting_names_no_lock() {
    let unreachable = Leasehold::connect(NOBODY).await.unwrap_err();
    check(&unreachable, Operation::Connect, None, "");
    check(&Leasehold::connect("nonsense").await.unwrap_err(), Operation::Connect, None, "");
    check(&RedisFence::connect(NOBODY).await.map(drop).unwrap_err(), Operation::Connect, None, "");
    check(&quorum::begin(NOBODY).await.unwrap_err(), Operation::Begin, None, "expected a URL");
}

#[test]
fn an_error_for_a_thread_says_the_same() {
    check(&blocking::Leasehold::connect("nonsense").unwrap_err(), Operation::Connect, None, "");
    check(&blocking::quorum::begin(NOBODY).unwrap_err(), Operation::Begin, None, "expected a URL");
    let client = blocking::Leasehold::connect("memory:").unwrap();
    let short = client.mutex("stock:42").lease(Duration::ZERO).lock().unwrap_err();
    check(&short, Operation::Lock, Some("stock:42"), "cannot lock \"stock:42\": ");
}
