//! The directory: its owner, its content and its file system.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use leasehold::{Error, ErrorKind, Leasehold};
use tempfile::TempDir;

use crate::Store;
use crate::child::Child;

async fn refused(path: impl AsRef<Path>) -> Error {
    Leasehold::connect(&format!("file:{}", path.as_ref().display())).await.unwrap_err()
}

fn assert_error(error: &Error, kind: ErrorKind, what: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(what), "{error}");
    assert!(!error.may_have_acted());
}

/// Starts a child in a namespace that a command has prepared with a mount. Returns its line.
fn in_namespace(url: &str, prepare: &str) -> String {
    let script = format!("{prepare} && exec \"$0\" \"$@\"");
    let child = Child::start_by(url, &["unshare", "--mount", "--propagation", "private", "sh", "-c", &script]);
    child.reads("")
}

#[tokio::test]
async fn a_new_directory_is_private() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("locks");
    let url = format!("file://{}", path.display());
    let client = Leasehold::connect(&url).await.unwrap();
    let guard = client.mutex("x").lock().await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("live")), 0o700);
    for file in ["leasehold.db", "leasehold.db-wal", "leasehold.db-shm", "lock", "ballast"] {
        assert_eq!(mode(&path.join(file)), 0o600, "{file}");
    }
    drop(guard);
}

#[tokio::test]
async fn two_names_of_one_directory_are_one_store() {
    let store = Store::new();
    let link = TempDir::new().unwrap();
    symlink(store.path(), link.path().join("link")).unwrap();
    let one = store.client().await;
    let two = Leasehold::connect(&format!("file:{}/link", link.path().display())).await.unwrap();
    let guard = one.mutex("x").lock().await.unwrap();
    assert!(two.mutex("x").try_lock().await.unwrap().is_none());
    drop(guard);
}

/// The address of a socket has 108 bytes for a path, and a directory may have a longer one.
#[tokio::test]
async fn a_long_path_works() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("x".repeat(200));
    let client = Leasehold::connect(&format!("file:{}", path.display())).await.unwrap();
    assert!(client.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_directory_that_others_can_change_is_refused() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("open");
    fs::create_dir(&path).unwrap();
    for mode in [0o770, 0o702, 0o777] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_error(&refused(&path).await, ErrorKind::Denied, "chmod go-w");
    }
    // Like /tmp: the advice must not be to change its permissions.
    fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
    assert_error(&refused(&path).await, ErrorKind::Denied, "use a directory of its own, for example file:");
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing was made there");
    let other = parent.path().join("another's");
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::chown(&other, Some(4242), None).expect("these tests run as root");
    assert_error(&refused(&other).await, ErrorKind::Denied, "belongs to user 4242");
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    assert_error(&refused(&file).await, ErrorKind::Denied, "use a directory");
}

/// Returns the content of a directory: names, and the text of files.
fn all(path: &Path) -> Vec<(String, String)> {
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap_or_default())
    };
    let mut all: Vec<_> = fs::read_dir(path).unwrap().map(|entry| read(entry.unwrap())).collect();
    all.sort();
    all
}

#[tokio::test]
async fn foreign_files_are_left_alone() {
    let note_of_another = format!("{:<63}\n", "4711 of nobody's");
    for (name, text) in [
        ("lock", "data\n"),
        ("lock", &note_of_another),
        ("lock", &"x".repeat(1000)),
        ("data", ""),
        ("ballast", "mine"),
        ("leasehold.db-wal", "mine"),
        (".hidden", "mine"),
    ] {
        let store = Store::new();
        fs::write(store.path().join(name), text).unwrap();
        let before = all(store.path());
        let error = refused(store.path()).await;
        assert_error(&error, ErrorKind::Foreign, "is not empty and is not a store of Leasehold");
        assert_error(&error, ErrorKind::Foreign, &format!("for example {}/locks", store.url()));
        assert_eq!(all(store.path()), before, "{name}");
    }
    let store = Store::new();
    fs::create_dir(store.path().join("lock")).unwrap();
    refused(store.path()).await;
    assert_eq!(all(store.path()).len(), 1);
}

#[tokio::test]
async fn a_lock_file_that_is_not_ours_is_left_alone_beside_a_database_that_is() {
    let store = Store::new();
    store.client().await.close().await;
    fs::write(store.path().join("lock"), "mine").unwrap();
    assert_error(&refused(store.path()).await, ErrorKind::Foreign, "not a store of Leasehold");
    assert_eq!(fs::read_to_string(store.path().join("lock")).unwrap(), "mine");
}

/// Its creator was killed at any point, or is still at work, or the power failed.
#[tokio::test]
async fn an_incomplete_store_is_completed() {
    let other = Store::new();
    other.client().await.close().await;
    let note = fs::read(other.path().join("lock")).unwrap();
    let parts: [(&str, &[u8]); 4] = [("lock", &note), ("live", b""), ("leasehold.db", b""), ("ballast", b"")];
    for lock in [&note[..], b"", &[0; 64]] {
        for made in 1..=parts.len() {
            let store = Store::new();
            for (name, bytes) in &parts[..made] {
                match *name {
                    "lock" => fs::write(store.path().join(name), lock).unwrap(),
                    "live" => fs::create_dir(store.path().join(name)).unwrap(),
                    _ => fs::write(store.path().join(name), bytes).unwrap(),
                }
            }
            assert!(store.client().await.mutex("x").try_lock().await.unwrap().is_some(), "{made} parts");
        }
    }
}

#[tokio::test]
async fn other_files_beside_a_store_are_ignored() {
    let store = Store::new();
    // The directory of a new disk.
    fs::create_dir(store.path().join("lost+found")).unwrap();
    store.client().await.close().await;
    fs::write(store.path().join("data"), "theirs").unwrap();
    assert!(store.client().await.mutex("x").try_lock().await.unwrap().is_some());
    assert_eq!(fs::read_to_string(store.path().join("data")).unwrap(), "theirs");
}

/// Each process finds the files that the others have created so far.
#[test]
fn processes_that_create_one_store_at_once_share_it() {
    for _ in 0..4 {
        let store = Store::new();
        let url = format!("{}/locks", store.url());
        let children: Vec<Child> = (0..8).map(|_| Child::start_by(&url, &["env"])).collect();
        for child in &children {
            child.reads("ready");
        }
    }
}

#[tokio::test]
async fn a_missing_parent_is_not_created() {
    let parent = TempDir::new().unwrap();
    assert_error(&refused(parent.path().join("no/such")).await, ErrorKind::Denied, "create its parent directory first");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn an_error_says_why_a_directory_cannot_be_created() {
    let store = Store::new();
    let path = store.path().display();
    let url = format!("{}/locks", store.url());
    let said = in_namespace(&url, &format!("mount --bind {path} {path} && mount -o remount,bind,ro {path}"));
    assert!(said.starts_with("refused Denied") && said.contains("cannot be made"), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let store = Store::new();
    let path = store.path().display();
    let said = in_namespace(&store.url(), &format!("mount --bind {path} {path} && mount -o remount,bind,ro {path}"));
    assert!(said.starts_with("refused Denied"), "{said}");
    assert!(said.contains("Read-only file system"), "{said}");
}

/// Another host may see it, with other locks, sockets and another clock.
#[test]
fn a_file_system_that_is_not_this_hosts_alone_is_refused() {
    let (store, source) = (Store::new(), TempDir::new().unwrap());
    let mount = format!("bindfs --no-allow-other {} {}", source.path().display(), store.path().display());
    let said = in_namespace(&store.url(), &mount);
    assert!(said.starts_with("refused Unsupported") && said.contains("FUSE"), "{said}");
    assert_eq!(fs::read_dir(source.path()).unwrap().count(), 0, "nothing was made there");
}

/// It would have another clock of leases.
#[tokio::test]
async fn another_time_namespace_is_refused() {
    let store = Store::new();
    let client = store.client().await;
    let unshare = ["unshare", "--time", "--boottime", "1000", "--fork", "--kill-child"];
    let other = Child::start_by(&store.url(), &unshare);
    let said = other.reads("refused");
    assert!(said.starts_with("Unsupported") && said.contains("time namespace"), "{said}");
    client.close().await;
}
