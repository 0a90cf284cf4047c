//! All forms of the mutex, and clients in two processes.

use std::time::Duration;

use leasehold::{ErrorKind, Leasehold, LostReason, Owner, Released};
use leasehold_testkit::{Quorum, wait_until};

use crate::child::Worker;
use crate::common::{
    LONG, MAX_LEASE, NAME, PROMPT, assert_busy, await_no_residue, client, five, granted, is_busy, join, taken, votes,
    waiters, within,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_with_and_without_a_timeout() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).try_lock().await.unwrap().expect("it is free");
    assert_busy(&b.mutex(NAME)).await;
    assert!(!b.mutex(NAME).try_lock_for(Duration::from_millis(300)).await.is_ok_and(|guard| guard.is_some()));
    let mutex = b.mutex(NAME);
    let patient = tokio::spawn(async move { mutex.try_lock_for(LONG).await });
    wait_until("it waits", LONG, || quorum.servers().iter().all(|server| waiters(server) == 1));
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    let next = within(PROMPT, "the lock", patient).await.unwrap().unwrap().expect("in time");
    drop(next);
    await_no_residue(quorum.servers(), PROMPT);
}

/// A dropped future leaves no place in a queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_gives_up_leaves_nothing() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    waiting.abort();
    wait_until("it has left", LONG, || quorum.servers().iter().all(|server| waiters(server) == 0));
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), PROMPT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_enters_again() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let mutex = a.mutex(NAME).owner(&Owner::new());
    let outer = mutex.lock().await.unwrap();
    let inner = within(PROMPT, "the same", mutex.lock()).await.unwrap();
    assert_eq!(inner.token(), outer.token());
    let waiting = join(&b, quorum.servers()).await;
    assert_eq!(outer.release().await.unwrap(), Released::Released);
    assert!(!waiting.is_finished() && inner.check().is_ok(), "the last guard releases it");
    let token = inner.token();
    assert_eq!(inner.release().await.unwrap(), Released::Released);
    assert!(granted(PROMPT, waiting).await.token() > token);
}

/// Three clients are served in the order in which they ask.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair() {
    let quorum = five().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(client(&quorum.url(), MAX_LEASE).await);
    }
    let mut guard = clients[0].mutex(NAME).fair().lock().await.unwrap();
    let mut waiting = Vec::new();
    for next in &clients[1..] {
        waiting.push(join(next, quorum.servers()).await);
    }
    for next in waiting {
        let token = guard.token();
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        guard = granted(LONG, next).await;
        assert!(guard.token() > token);
    }
    drop(guard);
    await_no_residue(quorum.servers(), PROMPT);
}

/// Nothing renews the lease, so it ends, and first at the holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fixed_lease() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let lease = Duration::from_millis(800);
    let guard = a.mutex(NAME).fixed_lease(lease).lock().await.unwrap();
    let waiting = join(&b, quorum.servers()).await;
    let next = granted(lease + PROMPT, waiting).await;
    assert!(!guard.is_valid(), "it ended here before it ended at the nodes");
    assert!(within(lease, "the loss", guard.lost()).await.reason().is_expiry());
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

/// The client keeps the lease, takes it again without a request, and releases it as soon as another client waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sticky() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let mutex = a.mutex(NAME).sticky(LONG);
    let mut token = None;
    for _ in 0..3 {
        let guard = mutex.lock().await.unwrap();
        assert!(Some(guard.token()) > token);
        token = Some(guard.token());
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    assert!(taken(quorum.servers()) >= 3, "it is kept");
    assert_busy(&b.mutex(NAME)).await;
    let next = within(LONG / 4, "the lock", b.mutex(NAME).lock()).await.unwrap();
    assert!(Some(next.token()) > token);
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

/// The client hands the lock over to its own waiters, and the tokens still grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_with_many_waiters() {
    let quorum = five().await;
    let (a, b) = (client(&quorum.url(), MAX_LEASE).await, client(&quorum.url(), MAX_LEASE).await);
    let mut tasks = Vec::new();
    let last = std::sync::Arc::new(std::sync::Mutex::new(0));
    for client in [&a, &b].into_iter().cycle().take(16) {
        let (mutex, last) = (client.mutex(NAME), std::sync::Arc::clone(&last));
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                let guard = mutex.lock().await.unwrap();
                let before = std::mem::replace(&mut *last.lock().unwrap(), guard.token().get());
                assert!(guard.token().get() > before, "{} after {before}", guard.token());
                assert_eq!(guard.release().await.unwrap(), Released::Released);
            }
        }));
    }
    for task in tasks {
        within(LONG, "its turns", task).await.unwrap();
    }
    await_no_residue(quorum.servers(), PROMPT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_and_inspected() {
    let quorum = five().await;
    let labelled = Leasehold::builder(&quorum.url()).lease(MAX_LEASE).holder("a, at work");
    let (a, b) = (labelled.connect().await.unwrap(), client(&quorum.url(), MAX_LEASE).await);
    let guard = a.mutex(NAME).lock().await.unwrap();
    let seen = b.mutex(NAME).inspect().await.unwrap();
    let holder = seen.holder().cloned().expect("held");
    assert_eq!((holder.token, holder.label.as_str(), seen.waiters), (guard.token(), "a, at work", 0));
    assert_eq!(b.names().await.unwrap(), [NAME]);
    let waiting = join(&b, quorum.servers()).await;
    b.mutex(NAME).revoke(&holder, Duration::from_millis(500)).await.unwrap();
    assert_eq!(within(PROMPT, "the loss", guard.lost()).await.reason(), LostReason::Revoked);
    assert!(guard.grace() > Duration::ZERO);
    drop(guard);
    assert!(granted(LONG, waiting).await.token() > holder.token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_releases() {
    let quorum = five().await;
    let a = client(&quorum.url(), MAX_LEASE).await;
    let guard = a.mutex(NAME).lock().await.unwrap();
    wait_until("five votes", LONG, || votes(quorum.servers(), guard.token()) == 5);
    drop(guard);
    assert!(within(LONG, "the end", a.close()).await.unconfirmed().is_empty());
    await_no_residue(quorum.servers(), PROMPT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_in_turns() {
    let quorum = five().await;
    let mut both = [Worker::start(&quorum.url()), Worker::start(&quorum.url())];
    both[0].command(&format!("lock {NAME} 5000"));
    let mut token: u64 = both[0].expect_line("held").parse().unwrap();
    for turn in 0..6 {
        let (holder, next) = (turn % 2, 1 - turn % 2);
        both[next].command(&format!("lock {NAME} 5000"));
        wait_until("it waits", LONG, || quorum.servers().iter().filter(|server| waiters(server) == 1).count() >= 3);
        both[holder].command(&format!("check {token}"));
        both[holder].expect_line("valid");
        both[holder].command(&format!("release {token}"));
        assert_eq!(both[holder].expect_line("released"), "Ok(Released)");
        let held: u64 = both[next].expect_line("held").parse().unwrap();
        assert!(held > token);
        token = held;
    }
}

#[cfg(feature = "blocking")]
#[test]
fn blocking_and_reentrant() {
    use leasehold::blocking;

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let quorum = runtime.block_on(five());
    let a = blocking::Leasehold::builder(&quorum.url()).lease(MAX_LEASE).connect().unwrap();
    let b = blocking::Leasehold::builder(&quorum.url()).lease(MAX_LEASE).connect().unwrap();
    let mutex = a.mutex(NAME).reentrant();
    let outer = mutex.lock().unwrap();
    let inner = mutex.lock().unwrap();
    assert_eq!(inner.token(), outer.token());
    wait_until("busy", LONG, || is_busy(b.mutex(NAME).try_lock()));
    assert_eq!(outer.release().unwrap(), Released::Released);
    assert!(!b.mutex(NAME).try_lock_for(Duration::from_millis(200)).is_ok_and(|guard| guard.is_some()));
    let token = inner.token();
    // The client comes back: if it closed now, a minority would not receive its releases.
    let waiting = std::thread::spawn(move || (b.mutex(NAME).lock().map(|guard| (guard.token(), guard.release())), b));
    wait_until("it waits", LONG, || quorum.servers().iter().all(|server| waiters(server) == 1));
    assert_eq!(inner.release().unwrap(), Released::Released);
    let (served, _b) = waiting.join().unwrap();
    let (next, freed) = served.unwrap();
    assert!(next > token);
    assert_eq!(freed.unwrap(), Released::Released);
    await_no_residue(quorum.servers(), PROMPT);
    quorum.servers()[..3].iter().for_each(|server| server.kill());
    assert_eq!(a.mutex(NAME).try_lock().map(drop).unwrap_err().kind(), ErrorKind::Quorum);
}

#[cfg(feature = "blocking")]
#[test]
fn a_program_without_a_runtime_begins_a_quorum() {
    use leasehold::blocking;

    let quorum = Quorum::builder(3).max_lease(MAX_LEASE).start();
    let client = blocking::Leasehold::builder(&quorum.url()).lease(MAX_LEASE).connect().unwrap();
    let error = client.mutex(NAME).try_lock().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum, "its nodes are in quarantine: {error}");
    blocking::quorum::begin(&quorum.url()).unwrap();
    let guard = client.mutex(NAME).lock().unwrap();
    let error = blocking::quorum::begin(&quorum.url()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
    blocking::quorum::force_begin(&quorum.url()).unwrap();
    assert_eq!(guard.release().unwrap(), Released::Released);
    quorum.server(1).kill();
    let error = blocking::quorum::begin(&quorum.url()).unwrap_err();
    assert!(error.to_string().contains(&quorum.server(1).port().to_string()), "{error}");
}
