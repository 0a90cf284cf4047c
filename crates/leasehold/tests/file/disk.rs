//! A full disk: new grants are refused, but releases work.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use leasehold::{ErrorKind, Leasehold, Released};
use tempfile::TempDir;

use crate::{LONG, eventually, within};

/// A small disk for one test.
struct Disk(TempDir);

impl Disk {
    fn new(size: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().to_str().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size},mode=700"), "leasehold", path])
            .status()
            .unwrap();
        assert!(mounted.success(), "these tests mount disks of their own: they run as root");
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Fills the disk.
    fn fill(&self) {
        let mut filler = fs::File::create(self.path().join("filler")).unwrap();
        let block = [0; 4096];
        while std::io::Write::write_all(&mut filler, &block).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

#[tokio::test]
async fn releases_work_on_a_full_disk() {
    let disk = Disk::new("8m");
    let url = format!("file:{}", disk.path().display());
    let (client, other) = (Leasehold::connect(&url).await.unwrap(), Leasehold::connect(&url).await.unwrap());
    let mut guards = Vec::new();
    for n in 0..100 {
        let mutex = client.mutex(format!("held {n}")).lease(Duration::from_secs(600));
        guards.push(mutex.lock().await.unwrap());
    }
    let mut permits = Vec::new();
    for _ in 0..100 {
        permits.push(client.semaphore("pool", 100).lease(Duration::from_secs(600)).acquire().await.unwrap());
    }
    let all = other.semaphore("pool", 100);
    let acquiring = tokio::spawn(async move { all.acquire_many(100).await });
    eventually("it waits", async || client.mutex("pool").inspect().await.unwrap().waiters == 1).await;
    let waits = other.mutex("held 0");
    let waiting = tokio::spawn(async move { waits.lock().await });
    eventually("it waits", async || client.mutex("held 0").inspect().await.unwrap().waiters == 1).await;
    let latch = client.latch("latch");
    latch.create(3).await.unwrap();
    latch.count_down_as("early").await.unwrap();
    let waits = other.condvar("condition");
    let guard = other.mutex("of the condition").lock().await.unwrap();
    let sleeping = tokio::spawn(async move { waits.wait(guard).await });
    eventually("it waits", async || client.mutex("condition").inspect().await.unwrap().waiters == 1).await;
    disk.fill();
    // New names can be locked while the log has room, and then no more.
    let mut taken = Vec::new();
    let refused = loop {
        match within(LONG, "an answer", client.mutex(format!("new {}", taken.len())).try_lock()).await {
            Ok(guard) => taken.push(guard.unwrap()),
            Err(error) => break error,
        }
        assert!(taken.len() < 10_000, "it is never full");
    };
    assert_eq!(refused.kind(), ErrorKind::Store, "{refused}");
    assert!(refused.to_string().contains("is full") && !refused.may_have_acted(), "{refused}");
    // A count-down adds a row, and a notification adds none.
    let refused = within(LONG, "an answer", latch.count_down()).await.unwrap_err();
    assert!(refused.to_string().contains("is full") && !refused.may_have_acted(), "{refused}");
    assert!(within(LONG, "an answer", client.condvar("condition").notify_one()).await.unwrap());
    // There may be no room for its lock.
    let _woken = within(LONG, "its end", sleeping).await.unwrap();
    let (held, new) = (guards.len(), taken.len());
    for guard in guards.into_iter().chain(taken) {
        assert_eq!(within(LONG, "an answer", guard.release()).await.unwrap(), Released::Released);
    }
    for permit in permits {
        assert_eq!(within(LONG, "an answer", permit.release()).await.unwrap(), Released::Released);
    }
    let permit = within(LONG, "its turn", acquiring).await.unwrap().unwrap();
    assert_eq!(permit.release().await.unwrap(), Released::Released);
    let handed = within(LONG, "the hand-over", waiting).await.unwrap().unwrap();
    assert_eq!(handed.release().await.unwrap(), Released::Released);
    println!("{held} held before, {new} taken after it was full, all given back");
    disk.empty();
    eventually("there is room again", async || client.mutex("later").try_lock().await.is_ok_and(|g| g.is_some())).await;
    // The refused count-down never counts.
    latch.count_down().await.unwrap();
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(latch.remaining().await.unwrap(), 1);
    client.close().await;
    // The removed ballast exists again.
    let _next = Leasehold::connect(&url).await.unwrap();
    assert!(disk.path().join("ballast").exists());
}

/// The reserve is for releases: a program that goes on with new locks must not use it up.
#[tokio::test]
async fn p27_new_locks_leave_the_reserve_to_releases() {
    let disk = Disk::new("8m");
    let client = Leasehold::connect(&format!("file:{}", disk.path().display())).await.unwrap();
    let mut held = Vec::new();
    for n in 0..300 {
        let mutex = client.mutex(format!("held {n}")).lease(Duration::from_secs(600));
        held.push(mutex.lock().await.unwrap());
    }
    disk.fill();
    let (mut taken, mut refused) = (Vec::new(), 0);
    for (at, guard) in held.into_iter().enumerate() {
        for n in 0..10 {
            // A long name uses up the room sooner.
            let name = format!("new {at} {n} {}", "x".repeat(200));
            match within(LONG, "an answer", client.mutex(name).lease(Duration::from_secs(600)).try_lock()).await {
                Ok(guard) => taken.push(guard.unwrap()),
                Err(error) => {
                    assert!(error.to_string().contains("is full") && !error.may_have_acted(), "{error}");
                    refused += 1;
                }
            }
        }
        assert_eq!(within(LONG, "an answer", guard.release()).await.unwrap(), Released::Released, "{at}");
    }
    for guard in taken {
        assert_eq!(within(LONG, "an answer", guard.release()).await.unwrap(), Released::Released);
    }
    assert!(refused > 0, "the disk was never full");
    disk.empty();
    eventually("there is room again", async || client.mutex("later").try_lock().await.is_ok_and(|g| g.is_some())).await;
}

#[tokio::test]
async fn no_store_is_created_on_a_full_disk() {
    let disk = Disk::new("1m");
    disk.fill();
    let url = format!("file:{}/locks", disk.path().display());
    let error = Leasehold::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    assert!(error.to_string().contains("full"), "{error}");
    disk.empty();
    let client = Leasehold::connect(&url).await.unwrap();
    assert!(client.mutex("x").try_lock().await.unwrap().is_some());
}
