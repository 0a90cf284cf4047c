//! What the URL of an embedded store means. (What the faces do on it, and that its clients exclude each other, is in
//! `conformance.rs`, as for every store. The last test is about work, and needs no server.)

use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Leasehold};

#[tokio::test]
async fn a_store_without_a_name_is_this_clients_own() {
    let (a, b) = (Leasehold::connect("memory:").await.unwrap(), Leasehold::connect("memory:").await.unwrap());
    let held = a.mutex("x").lock().await.unwrap();
    assert!(a.clone().mutex("x").try_lock().await.unwrap().is_none(), "a clone is the same client");
    let other = b.mutex("x").try_lock().await.unwrap().expect("another store");
    drop((held, other));
}

#[tokio::test]
async fn a_store_with_a_name_is_shared_by_those_who_name_it() {
    let connect = async |url| Leasehold::connect(url).await.unwrap();
    let (a, b, c) = (connect("memory:one").await, connect("memory:one").await, connect("memory:One").await);
    let held = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(c.mutex("x").try_lock().await.unwrap().is_some(), "case counts");
    drop(held);
}

#[tokio::test]
async fn a_url_that_names_no_store_is_refused_and_not_repeated() {
    for url in ["", "memory", "postgres://x", "redis", "http://s3cret@x", "s3cret"] {
        let error = Leasehold::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains("memory:NAME"), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }
}

/// Work that does not await cannot be dropped, and is no less lost.
#[tokio::test]
async fn work_that_blocks_beyond_its_lease_is_lost() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let mutex = leasehold.mutex("a").fixed_lease(Duration::from_millis(150));
    let blocked = mutex.run(async |_| std::thread::sleep(Duration::from_millis(150))).await;
    assert_eq!(blocked.unwrap_err().kind(), ErrorKind::Lost);
}

/// The thread does not sleep out its tick when the last answer has come.
#[tokio::test]
async fn closing_ends_with_the_last_answer() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let guards = [leasehold.mutex("a").lock().await.unwrap(), leasehold.mutex("b").lock().await.unwrap()];
    let begun = Instant::now();
    assert!(leasehold.close().await.unconfirmed().is_empty());
    // A tick is 250 ms; without it this takes one or two.
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    drop(guards);
}
