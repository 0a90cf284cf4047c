//! What tears a holder from its store, and not from its lease: nobody else may hold for as long as it believes to.

use std::time::Duration;

use leasehold::Leasehold;

use crate::child::Child;
use crate::{LONG, Store, within};

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);

/// A path that one process has lost (`chroot`, a parent that it may not read any more, a mount in its way) is still a store
/// to the others.
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
    // It notices.
    assert!(within(LONG, "an error", holder.mutex("y").try_lock()).await.is_err());
    for _ in 0..10 {
        assert!(other.mutex("x").try_lock().await.unwrap().is_none(), "the other one's guard: {guard:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(guard.is_valid());
    // And it comes back to what it had.
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(store.path(), &path).unwrap();
    let released = within(LONG, "its release", guard.release()).await.unwrap();
    assert_eq!(released, leasehold::Released::Released);
    assert!(within(LONG, "the other's turn", other.mutex("x").lock()).await.unwrap().is_valid());
}

/// Whoever cleans up in `live/` ends nobody's lease: a name that is missing is no death.
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
        assert!(other.mutex("x").inspect().await.unwrap().holder.is_some());
    }
    assert!(guard.is_valid());
    // Nobody is rung by a name that is missing: it looks.
    let waits = early.mutex("x");
    let waiting = tokio::spawn(async move { waits.lock().await });
    crate::eventually("it waits", async || late.mutex("x").inspect().await.unwrap().waiters == 1).await;
    assert_eq!(guard.release().await.unwrap(), leasehold::Released::Released);
    assert!(within(LONG, "its turn", waiting).await.unwrap().unwrap().is_valid());
}

/// Containers of systemd-nspawn and LXC are told another boot id than their host. That is no new boot: whoever holds lives.
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
    assert!(other.hears("refused Unsupported").contains("boot"));
    assert!(guard.is_valid());
    assert!(store.client().await.mutex("x").try_lock().await.unwrap().is_none(), "two would hold");
    // Where nobody lives nothing is in the way.
    assert_eq!(guard.release().await.unwrap(), leasehold::Released::Released);
    client.close().await;
    let mut other = Child::start_by(&store.url(), &contained);
    other.hears("ready");
    other.ask("try x", "locked");
    let refused = Leasehold::connect(&store.url()).await.unwrap_err();
    assert_eq!(refused.kind(), leasehold::ErrorKind::Unsupported, "{refused}");
    other.kill();
    assert!(store.client().await.mutex("x").try_lock().await.unwrap().is_some());
}
