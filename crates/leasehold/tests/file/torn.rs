//! Faults that separate a holder from its store but not from its lease: nobody else may hold while the holder believes
//! to hold.

use std::time::Duration;

use leasehold::Leasehold;
use rustix::process::{Pid, Signal, kill_process};

use crate::child::Child;
use crate::{LONG, Store, within};

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);

/// One process cannot reach the path any more (`chroot`, a parent that it may not read, a mount over it), but the
/// others can.
#[tokio::test]
async fn p26_a_holder_that_has_lost_the_path_lives() {
    let store = Store::new();
    let paths = tempfile::tempdir().unwrap();
    let path = paths.path().join("path");
    std::os::unix::fs::symlink(store.path(), &path).unwrap();
    let holder = Leasehold::connect(&format!("file:{}", path.display())).await.unwrap();
    let guard = holder.mutex("x").lease(LEASE).lock().await.unwrap();
    let other = store.client().await;
    assert!(other.mutex("x").try_lock().await.unwrap().is_none());
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "in its way").unwrap();
    // The holder notices.
    assert!(within(LONG, "an error", holder.mutex("y").try_lock()).await.is_err());
    for _ in 0..10 {
        assert!(other.mutex("x").try_lock().await.unwrap().is_none(), "the other one's guard: {guard:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(guard.is_valid());
    // It comes back, and still holds.
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(store.path(), &path).unwrap();
    let released = within(LONG, "its release", guard.release()).await.unwrap();
    assert_eq!(released, leasehold::Released::Released);
    assert!(within(LONG, "the other's turn", other.mutex("x").lock()).await.unwrap().is_valid());
}

/// Somebody removes the files in `live/`. No lease ends: a missing name does not show a death.
#[tokio::test]
async fn p26_a_holder_whose_socket_was_removed_lives() {
    let store = Store::new();
    let holder = store.client().await;
    let guard = holder.mutex("x").lease(LEASE).lock().await.unwrap();
    let early = store.client().await;
    for name in std::fs::read_dir(store.path().join("live")).unwrap() {
        std::fs::remove_file(name.unwrap().path()).unwrap();
    }
    let late = store.client().await;
    for other in [&early, &late] {
        assert!(other.mutex("x").try_lock().await.unwrap().is_none(), "the other one's guard: {guard:?}");
        assert!(other.mutex("x").inspect().await.unwrap().holder().is_some());
    }
    assert!(guard.is_valid());
    // Without its name no bell rings, so the client re-checks.
    let waits = early.mutex("x");
    let waiting = tokio::spawn(async move { waits.lock().await });
    crate::eventually("it waits", async || late.mutex("x").inspect().await.unwrap().waiters == 1).await;
    assert_eq!(guard.release().await.unwrap(), leasehold::Released::Released);
    assert!(within(LONG, "its turn", waiting).await.unwrap().unwrap().is_valid());
}

/// Somebody removes the bells of waiters. Without its bell a waiter is passed over. At its re-check it learns that it may
/// have missed a notification, and wakes up. A waiter of a latch comes back, and finds it open.
#[tokio::test]
async fn p43_a_waiter_whose_socket_was_removed_wakes_up() {
    let store = Store::new();
    let (client, other) = (store.client().await, store.client().await);
    client.latch("l").create(1).await.unwrap();
    let waits = client.clone();
    let latch = tokio::spawn(async move { waits.latch("l").wait().await });
    let waits = client.clone();
    let guard = client.mutex("m").lock().await.unwrap();
    let condition = tokio::spawn(async move { waits.condvar("c").wait(guard).await });
    for name in ["c", "l"] {
        crate::eventually("it waits", async || other.mutex(name).inspect().await.unwrap().waiters == 1).await;
    }
    for name in std::fs::read_dir(store.path().join("live")).unwrap() {
        std::fs::remove_file(name.unwrap().path()).unwrap();
    }
    assert!(!other.condvar("c").notify_one().await.unwrap(), "it cannot be reached");
    other.latch("l").count_down().await.unwrap();
    let _guard = within(LONG, "it wakes up", condition).await.unwrap().unwrap();
    within(LONG, "it is open", latch).await.unwrap().unwrap();
}

/// The command has inherited the life that existed at its start. A new life would end with the client.
#[tokio::test]
async fn p26_a_command_keeps_the_lock_over_a_removed_name_and_a_new_link() {
    let store = Store::new();
    let mut holder = Child::start(&store.url());
    holder.ask(&format!("lock x {}", LEASE.as_secs()), "locked");
    let command = Pid::from_raw(holder.ask("command", "command").parse().unwrap()).unwrap();
    std::fs::remove_dir_all(store.path().join("live")).unwrap();
    // The holder notices, opens the store again, and attaches.
    std::fs::remove_file(store.path().join("lock")).unwrap();
    crate::eventually("it has attached again", async || {
        holder.ask("attached", "attached");
        std::fs::read_dir(store.path().join("live")).is_ok_and(|names| names.count() > 0)
    })
    .await;
    holder.kill();
    let other = store.client().await;
    for _ in 0..10 {
        assert!(other.mutex("x").try_lock().await.unwrap().is_none(), "the command lives");
    }
    kill_process(command, Signal::KILL).unwrap();
}

/// Containers of systemd-nspawn and LXC have another boot ID than their host. That is no new boot: the holders live.
#[tokio::test]
async fn p27_another_boot_id_voids_nothing_of_the_living() {
    let store = Store::new();
    let client = store.client().await;
    let guard = client.mutex("x").lease(LEASE).lock().await.unwrap();
    let id = store.path().join("boot_id");
    std::fs::write(&id, "00000000-1111-2222-3333-444444444444\n").unwrap();
    let mount = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;
    let contained = ["unshare", "--mount", "sh", "-c", mount, &id.display().to_string()];
    let other = Child::start_by(&store.url(), &contained);
    assert!(other.reads("refused Unsupported").contains("boot"));
    assert!(guard.is_valid());
    assert!(store.client().await.mutex("x").try_lock().await.unwrap().is_none(), "two would hold");
    // If no session lives, the new boot ID counts.
    assert_eq!(guard.release().await.unwrap(), leasehold::Released::Released);
    client.close().await;
    let mut other = Child::start_by(&store.url(), &contained);
    other.reads("ready");
    other.ask("try x", "locked");
    let refused = Leasehold::connect(&store.url()).await.unwrap_err();
    assert_eq!(refused.kind(), leasehold::ErrorKind::Unsupported, "{refused}");
    other.kill();
    assert!(store.client().await.mutex("x").try_lock().await.unwrap().is_some());
}
