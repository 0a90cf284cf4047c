//! P27: the turn, and a process that is stopped in its turn.

use std::fs::File;
use std::time::Duration;

use leasehold::{ErrorKind, Leasehold};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;

use crate::child::Child;
use crate::{LONG, Store, within};

/// Stops a process within a transaction: repeats to stop it at any point, until it has the turn.
fn stop_in_turn(store: &Store, child: &Child) {
    let lock = File::open(store.path().join("lock")).unwrap();
    for _ in 0..10_000 {
        child.signal(Signal::STOP);
        // The process is stopped soon after the signal, when the kernel reports it.
        std::thread::sleep(Duration::from_millis(5));
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => flock(&lock, FlockOperation::Unlock).unwrap(),
            Err(_) => return,
        }
        child.signal(Signal::CONT);
        std::thread::yield_now();
    }
    panic!("it never had the turn");
}

#[tokio::test(flavor = "multi_thread")]
async fn p27_a_process_that_is_stopped_in_its_turn_is_named() {
    let store = Store::new();
    let client = store.client().await;
    let mut child = Child::start(&store.url());
    child.ask("spin y", "spinning");
    stop_in_turn(&store, &child);
    let named = |error: &leasehold::Error| {
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.to_string().contains(&format!("process {} has held", child.id())), "{error}");
    };
    // A request without a reply names it, a request that is not sent any more, and connecting.
    named(&within(LONG, "an answer", client.mutex("x").try_lock()).await.unwrap_err());
    named(&within(LONG, "an answer", client.mutex("x").try_lock()).await.unwrap_err());
    named(&within(LONG, "an answer", Leasehold::connect(&store.url())).await.unwrap_err());
    child.signal(Signal::CONT);
    let guard = within(LONG, "an answer", client.mutex("x").lock()).await.unwrap();
    assert!(guard.is_valid());
}

/// While another process has the turn, nothing is changed: neither by connected clients, nor by new ones.
#[tokio::test(flavor = "multi_thread")]
async fn p27_nothing_changes_out_of_turn() {
    let store = Store::new();
    let client = store.client().await;
    let held = client.mutex("y").lock().await.unwrap();
    let contents = || ["leasehold.db", "leasehold.db-wal"].map(|file| std::fs::read(store.path().join(file)).unwrap());
    let turn = File::open(store.path().join("lock")).unwrap();
    flock(&turn, FlockOperation::LockExclusive).unwrap();
    let before = contents();
    let asked = within(LONG, "an answer", client.mutex("x").try_lock()).await;
    assert_eq!(asked.unwrap_err().kind(), ErrorKind::Unreachable);
    let came = within(LONG, "an answer", Leasehold::connect(&store.url())).await;
    assert_eq!(came.unwrap_err().kind(), ErrorKind::Unreachable);
    drop(held);
    assert!(contents() == before, "somebody wrote");
    flock(&turn, FlockOperation::Unlock).unwrap();
    assert!(within(LONG, "the lock", client.mutex("x").lock()).await.unwrap().is_valid());
}

/// However often a client reconnects while it waits, one thread waits.
#[tokio::test(flavor = "multi_thread")]
async fn p27_reconnecting_leaves_no_threads() {
    let store = Store::new();
    let client = store.client().await;
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let lock = File::open(store.path().join("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let mut counts = Vec::new();
    for _ in 0..5 {
        assert!(within(LONG, "an answer", client.mutex("x").try_lock()).await.is_err());
        counts.push(threads());
    }
    flock(&lock, FlockOperation::Unlock).unwrap();
    let guard = within(LONG, "the lock", client.mutex("x").lock()).await.unwrap();
    assert!(guard.is_valid());
    // Other tests in this process start and end threads, too, but not one for each attempt.
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    println!("threads: {counts:?}");
    assert!(most - least < 60, "{counts:?}");
}

/// Somebody removes the directory under live clients: none of them continues with files that nobody else finds.
#[tokio::test(flavor = "multi_thread")]
async fn p27_a_directory_that_is_removed_leaves_no_two_populations() {
    let store = Store::new();
    let early = store.client().await;
    let held = early.mutex("x").lease(Duration::from_secs(2)).lock().await.unwrap();
    std::fs::remove_dir_all(store.path()).unwrap();
    let late = store.client().await;
    let guard = late.mutex("x").lock().await.unwrap();
    assert!(guard.token() > held.token(), "tokens grow over that, too");
    // The first client sends a request, finds that its open files are not the store any more, and opens the new one.
    let mut busy = 0;
    while busy < 3 {
        match within(LONG, "an answer", early.mutex("x").try_lock()).await {
            Ok(None) => busy += 1,
            Ok(Some(_)) => panic!("two hold"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Its lease is 2 s long.
    let lost = within(Duration::from_secs(10), "its loss", held.lost()).await;
    assert!(matches!(lost.reason(), leasehold::LostReason::Superseded | leasehold::LostReason::Forgotten), "{lost:?}");
    assert!(guard.is_valid());
    drop(guard);
    let again = within(LONG, "its turn", early.mutex("x").lock()).await.unwrap();
    assert!(again.is_valid());
}
