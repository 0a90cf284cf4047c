//! The caller's runtime stands still, or is gone.

use std::thread;
use std::time::Duration;

use leasehold::Released;
use tokio::runtime::{Builder, Runtime};

use crate::common::{Bench, LONG, NAME, PROMPT, assert_kept, await_waiters, granted, join, lock, renew, within};

/// Work that computes and never yields: on the runtime alone, nothing would renew.
#[test]
fn blocked_for_two_leases() {
    let (bench, lease) = (Bench::new(), Duration::from_secs(1));
    let rest = Runtime::new().unwrap();
    let other = rest.block_on(bench.beside(lease));
    let (waiting, blocked) = Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = bench.through(lease).await;
        let guard = client.mutex(NAME).lock().await.unwrap();
        let waiting = rest.block_on_elsewhere(&other);
        let renewals = bench.calls(renew).len();
        thread::sleep(2 * lease + lease / 2);
        guard.check().expect("kept");
        assert!(!waiting.is_finished(), "nobody else has it");
        let renewals = bench.calls(renew).len() - renewals;
        assert!(renewals >= 4, "renewed each third: {renewals}");
        assert_eq!(guard.release().await.unwrap(), Released::Released);
        (waiting, renewals)
    });
    assert!(blocked >= 4);
    drop(rest.block_on(granted(PROMPT, waiting)));
}

/// Joins the queue on this runtime, from within another one.
trait Elsewhere {
    fn block_on_elsewhere(
        &self,
        client: &leasehold::Leasehold,
    ) -> tokio::task::JoinHandle<leasehold::Result<leasehold::Guard>>;
}

impl Elsewhere for Runtime {
    fn block_on_elsewhere(
        &self,
        client: &leasehold::Leasehold,
    ) -> tokio::task::JoinHandle<leasehold::Result<leasehold::Guard>> {
        thread::scope(|scope| scope.spawn(|| self.block_on(join(client, NAME, 1))).join().unwrap())
    }
}

/// A waiter whose runtime is blocked is granted, and keeps what it was granted until it comes to look.
#[test]
fn blocked_while_its_waiter_is_granted() {
    let (bench, lease) = (Bench::new(), Duration::from_secs(1));
    let rest = Runtime::new().unwrap();
    let other = rest.block_on(bench.beside(lease));
    let theirs = rest.block_on(other.mutex(NAME).lock()).unwrap();
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = bench.through(lease).await;
        let waiting = join(&client, NAME, 1).await;
        thread::scope(|scope| {
            scope.spawn(|| assert_eq!(rest.block_on(theirs.release()).unwrap(), Released::Released));
        });
        thread::sleep(2 * lease);
        let guard = granted(PROMPT, waiting).await;
        assert_kept(&guard, lease).await;
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    });
}

#[test]
fn guard_that_outlives_its_runtime() {
    let (bench, lease) = (Bench::new(), Duration::from_secs(1));
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let client = first.block_on(bench.through(lease));
    let guard = first.block_on(client.mutex(NAME).lock()).unwrap();
    drop(first);
    second.block_on(async {
        let other = bench.beside(lease).await;
        assert_kept(&guard, 2 * lease).await;
        let waiting = join(&other, NAME, 1).await;
        assert!(!waiting.is_finished());
        // In a thread that has no runtime at all.
        thread::spawn(move || drop(guard)).join().unwrap();
        drop(granted(PROMPT, waiting).await);
    });
    drop(client);
}

/// The client goes on with another runtime, and so do its waiters.
#[test]
fn client_that_outlives_its_runtime() {
    let (bench, lease) = (Bench::new(), Duration::from_secs(30));
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let client = first.block_on(bench.through(lease));
    let other = second.block_on(bench.beside(lease));
    let theirs = second.block_on(other.mutex(NAME).lock()).unwrap();
    let abandoned = first.block_on(join(&client, NAME, 1));
    drop(first);
    second.block_on(async {
        // The future that waited is gone with its runtime, and has left the queue.
        assert!(within(PROMPT, "its end", abandoned).await.unwrap_err().is_cancelled());
        within(PROMPT, "it leaves", await_waiters(&other, NAME, 0)).await;
        let waiting = join(&client, NAME, 1).await;
        assert_eq!(theirs.release().await.unwrap(), Released::Released);
        let guard = granted(PROMPT, waiting).await;
        assert_eq!(within(PROMPT, "an answer", guard.release()).await.unwrap(), Released::Released);
        let guard = granted(PROMPT, lock(&client, "b")).await;
        drop(guard);
        assert!(within(LONG, "the end", client.close()).await.unconfirmed().is_empty());
    });
}
