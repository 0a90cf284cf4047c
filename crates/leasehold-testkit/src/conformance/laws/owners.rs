//! Owners: tasks of one owner hold together, and exclude everybody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::{LostReason, Owner, Revoked, blocking};
use tokio::sync::mpsc;

use crate::conformance::stage::{Stage, eventually, release, soon};

const ROUNDS: u64 = 25;
const OWNERS: usize = 4;
const TASKS: usize = 3;

/// A counter without an atomic update. The tasks of one owner do not exclude each other, and have a lock of their own
/// beside it.
pub(super) async fn owners_exclude_each_other(stage: &Stage) {
    let clients = [stage.client("a").await, stage.client("b").await];
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..OWNERS {
        let (owner, among) = (Owner::new(), Arc::new(tokio::sync::Mutex::new(())));
        for _ in 0..TASKS {
            let mutex = clients[number % 2].mutex(stage.name()).owner(&owner);
            let (among, counter) = (Arc::clone(&among), Arc::clone(&counter));
            tasks.push(tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let outer = mutex.lock().await.expect("granted");
                    let inner = mutex.lock().await.expect("it holds");
                    assert_eq!(inner.token(), outer.token(), "one grant, one token");
                    let entered = among.lock().await;
                    let seen = counter.load(Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    counter.store(seen + 1, Ordering::Relaxed);
                    drop(entered);
                    release(outer).await;
                    release(inner).await;
                }
            }));
        }
    }
    for task in tasks {
        soon("everybody is served", task).await.expect("no panic");
    }
    assert_eq!(counter.load(Ordering::SeqCst), (OWNERS * TASKS) as u64 * ROUNDS, "nobody overwrote anybody");
}

/// As before with threads, each of which is an owner.
pub(super) async fn threads_exclude_each_other(stage: &Stage) {
    let counter = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for number in 0..2 {
        let builder = blocking::Leasehold::builder(stage.url()).holder(format!("client {number}"));
        let client = tokio::task::spawn_blocking(|| builder.connect()).await.expect("no panic").expect("connected");
        stage.keep(client.clone());
        for depth in 0..OWNERS {
            let (mutex, counter) = (client.mutex(stage.name()).reentrant(), Arc::clone(&counter));
            threads.push(tokio::task::spawn_blocking(move || {
                for _ in 0..ROUNDS {
                    let outer = mutex.lock().expect("granted");
                    let inner: Vec<_> = (0..depth).map(|_| mutex.lock().expect("it holds")).collect();
                    assert!(inner.iter().all(|inner| inner.check() == Ok(outer.token())), "one grant, one token");
                    let seen = counter.load(Ordering::Relaxed);
                    std::thread::yield_now();
                    counter.store(seen + 1, Ordering::Relaxed);
                    drop(outer);
                    drop(inner);
                }
            }));
        }
    }
    for thread in threads {
        soon("everybody is served", thread).await.expect("no panic");
    }
    assert_eq!(counter.load(Ordering::SeqCst), 2 * OWNERS as u64 * ROUNDS, "nobody overwrote anybody");
}

pub(super) async fn re_entry_lengthens(stage: &Stage) {
    const SHORT: Duration = Duration::from_secs(3);
    const LONG: Duration = Duration::from_secs(60);
    let client = stage.client("a").await;
    let mutex = client.mutex(stage.name()).owner(&Owner::new());
    let outer = mutex.clone().lease(SHORT).lock().await.expect("granted");
    let inner = mutex.clone().lease(LONG).lock().await.expect("it holds");
    eventually("it is renewed to that", async || outer.remaining() > LONG / 2).await;
    assert!(stage.inspect(&client).await.holder().expect("held").remaining > LONG / 2);
    release(inner).await;
    assert!(outer.remaining() > LONG / 2, "and stays so");
    release(outer).await;
}

pub(super) async fn a_loss_is_told_to_threads(stage: &Stage) {
    let (witness, builder) = (stage.client("witness").await, blocking::Leasehold::builder(stage.url()));
    let client = tokio::task::spawn_blocking(|| builder.connect()).await.expect("no panic").expect("connected");
    stage.keep(client.clone());
    let mutex = client.mutex(stage.name());
    let guard = tokio::task::spawn_blocking(move || mutex.lock()).await.expect("no panic").expect("granted");
    let (tell, mut told) = mpsc::unbounded_channel();
    guard.on_lost(move |lost| tell.send(lost).expect("the test listens"));
    let guard = Arc::new(guard);
    let waits = Arc::clone(&guard);
    let waiting = tokio::task::spawn_blocking(move || waits.wait_lost(Duration::from_secs(3_600)));
    let seen = stage.inspect(&witness).await.holder().cloned().expect("held");
    let revoked = witness.mutex(stage.name()).revoke(&seen, Duration::from_secs(5)).await.expect("an answer");
    assert!(matches!(revoked, Revoked::Within(_)), "{revoked:?}");
    assert_eq!(
        soon("the waiting thread is notified", waiting).await.expect("no panic").map(|lost| lost.reason()),
        Some(LostReason::Revoked)
    );
    assert_eq!(soon("the callback is called", told.recv()).await.map(|lost| lost.reason()), Some(LostReason::Revoked));
    drop(guard);
    eventually("it is given back", async || stage.inspect(&witness).await.holder().is_none()).await;
}
