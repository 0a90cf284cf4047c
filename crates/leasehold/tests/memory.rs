//! The faces on the embedded store, where nothing can be blamed on a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{ErrorKind, Leasehold, Lost, Released, Revoked};

const MS: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_lock_is_taken_and_given_back() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let mutex = leasehold.mutex("a");
    let first = mutex.lock().await.unwrap();
    assert!(first.is_valid() && first.remaining() > Duration::from_secs(29));
    assert!(mutex.try_lock().await.unwrap().is_none());
    let seen = mutex.inspect().await.unwrap();
    assert_eq!(seen.holder.unwrap().token, first.token());
    let token = first.token();
    assert_eq!(first.release().await.unwrap(), Released::Released);
    let second = mutex.try_lock().await.unwrap().expect("free");
    assert!(second.token() > token);
    drop(second);
    assert!(mutex.try_lock_for(Duration::from_secs(1)).await.unwrap().is_some(), "a dropped guard gives back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_of_many_clients_never_meet() {
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let leasehold = Leasehold::connect("memory:meet").await.unwrap();
        for _ in 0..8 {
            let (mutex, inside) = (leasehold.mutex("one"), Arc::clone(&inside));
            tasks.push(tokio::spawn(async move {
                let mut last = 0;
                for _ in 0..50 {
                    let guard = mutex.lock().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                    tokio::task::yield_now().await;
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    assert!(guard.check().unwrap().get() > last, "tokens rise");
                    last = guard.token().get();
                    assert_eq!(guard.release().await.unwrap(), Released::Released);
                }
            }));
        }
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(30), task).await.expect("nobody starves").unwrap();
    }
}

#[tokio::test]
async fn waiting_ends_when_it_was_to() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let mutex = leasehold.mutex("a");
    let guard = mutex.lock().await.unwrap();
    let begun = Instant::now();
    assert!(mutex.try_lock_for(120 * MS).await.unwrap().is_none());
    assert!(begun.elapsed() >= 120 * MS, "{:?}", begun.elapsed());
    // The leave goes out in the background.
    while mutex.inspect().await.unwrap().waiters > 0 {
        assert!(begun.elapsed() < Duration::from_secs(10), "it left the queue");
        tokio::task::yield_now().await;
    }
    drop(guard);
}

#[tokio::test]
async fn a_fixed_lease_ends_and_says_so() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let guard = leasehold.mutex("a").fixed_lease(150 * MS).lock().await.unwrap();
    let begun = Instant::now();
    assert_eq!(tokio::time::timeout(Duration::from_secs(2), guard.lost()).await.unwrap(), Lost::Expired);
    assert!(begun.elapsed() > 100 * MS, "{:?}", begun.elapsed());
    assert_eq!(guard.check(), Err(Lost::Expired));
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn a_lease_is_renewed_and_max_hold_ends_it() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let guard = leasehold.mutex("a").lease(150 * MS).max_hold(600 * MS).lock().await.unwrap();
    let begun = Instant::now();
    tokio::time::timeout(Duration::from_secs(3), guard.lost()).await.unwrap();
    assert!(begun.elapsed() > 500 * MS, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_crashed_holder_is_followed_within_its_lease() {
    let leasehold = Leasehold::connect("memory:crash").await.unwrap();
    let other = Leasehold::connect("memory:crash").await.unwrap();
    // The nearest thing to a crash in one process: a lease that nobody renews or gives back.
    let guard = leasehold.mutex("a").fixed_lease(300 * MS).lock().await.unwrap();
    std::mem::forget(guard);
    let begun = Instant::now();
    let next = other.mutex("a").lock().await.unwrap();
    assert!(begun.elapsed() < 1300 * MS, "{:?}", begun.elapsed());
    drop(next);
}

#[tokio::test]
async fn a_revoked_holder_is_told_and_the_next_one_follows() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let mutex = leasehold.mutex("a");
    let guard = mutex.lock().await.unwrap();
    let holder = mutex.inspect().await.unwrap().holder.unwrap();
    let revoked = mutex.revoke(&holder, Duration::from_millis(400)).await.unwrap();
    assert!(matches!(revoked, Revoked::Within(left) if left <= 400 * MS));
    assert_eq!(tokio::time::timeout(100 * MS, guard.lost()).await.unwrap(), Lost::Revoked);
    let next = tokio::time::timeout(Duration::from_secs(2), mutex.lock()).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(mutex.revoke(&holder, Duration::ZERO).await.unwrap(), Revoked::NotHeld, "a later holder is not touched");
    assert!(next.is_valid());
}

#[tokio::test]
async fn the_closure_is_dropped_when_the_lease_is_lost() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    let mutex = leasehold.mutex("a").fixed_lease(150 * MS);
    let lost = mutex.run(async |_| tokio::time::sleep(Duration::from_secs(60)).await).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    // Work that does not await cannot be dropped, and is no less lost.
    let blocking = mutex.run(async |_| std::thread::sleep(Duration::from_millis(150))).await;
    assert_eq!(blocking.unwrap_err().kind(), ErrorKind::Lost);
    assert!(leasehold.mutex("b").run(async |guard| guard.token().get() > 0).await.unwrap());
}

#[tokio::test]
async fn closing_tells_everybody() {
    let leasehold = Leasehold::connect("memory:close").await.unwrap();
    let other = Leasehold::connect("memory:close").await.unwrap();
    let guard = leasehold.mutex("a").lock().await.unwrap();
    let (waiter, lost) = (leasehold.mutex("a"), guard.lost());
    let waiter = tokio::spawn(async move { waiter.lock().await.map(drop).unwrap_err().kind() });
    while other.mutex("a").inspect().await.unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    let again = leasehold.clone();
    assert!(leasehold.close().await.unconfirmed().is_empty());
    assert_eq!(waiter.await.unwrap(), ErrorKind::Closed);
    assert_eq!(lost.await, Lost::Closed);
    assert_eq!(again.mutex("a").try_lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(other.mutex("a").try_lock().await.unwrap().is_some(), "given back");
}

#[tokio::test]
async fn bad_input_is_told() {
    let leasehold = Leasehold::connect("memory:").await.unwrap();
    for name in ["", "a\nb", &"x".repeat(256)] {
        assert_eq!(leasehold.mutex(name).lock().await.unwrap_err().kind(), ErrorKind::Invalid, "{name}");
    }
    for lease in [Duration::ZERO, 99 * MS, Duration::from_secs(86_401), Duration::MAX] {
        assert_eq!(leasehold.mutex("a").lease(lease).lock().await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    for url in ["", "memory", "postgres://x", "redis", "http://s3cret@x"] {
        let error = Leasehold::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }
}
