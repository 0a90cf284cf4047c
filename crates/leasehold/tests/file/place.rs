//! The directory: whose it is, and on what.

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

fn says(error: &Error, kind: ErrorKind, what: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(what), "{error}");
    assert!(!error.may_have_acted());
}

/// By a command before it: a namespace in which something is mounted. Answers what the child says.
fn in_namespace(url: &str, prepare: &str) -> String {
    let script = format!("{prepare} && exec \"$0\" \"$@\"");
    let child = Child::start_by(url, &["unshare", "--mount", "--propagation", "private", "sh", "-c", &script]);
    child.hears("")
}

#[tokio::test]
async fn it_is_made_for_its_owner_alone() {
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

/// A bind of a socket has 108 bytes for its path, a directory has more.
#[tokio::test]
async fn a_long_path_does() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("x".repeat(200));
    let client = Leasehold::connect(&format!("file:{}", path.display())).await.unwrap();
    assert!(client.mutex("x").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn what_others_could_change_is_refused() {
    let parent = TempDir::new().unwrap();
    let path = parent.path().join("open");
    fs::create_dir(&path).unwrap();
    for mode in [0o770, 0o702, 0o777] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        says(&refused(&path).await, ErrorKind::Denied, "chmod go-w");
    }
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "nothing was made there");
    let other = parent.path().join("another's");
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::chown(&other, Some(4242), None).expect("these tests run as root");
    says(&refused(&other).await, ErrorKind::Denied, "belongs to user 4242");
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    says(&refused(&file).await, ErrorKind::Denied, "name a directory");
}

#[tokio::test]
async fn a_parent_that_is_missing_is_not_made() {
    let parent = TempDir::new().unwrap();
    says(&refused(parent.path().join("no/such")).await, ErrorKind::Denied, "make the directory that it is to be in");
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn one_that_cannot_be_made_says_why() {
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

/// Another host may see it, whose locks, sockets and clock are its own.
#[test]
fn a_file_system_that_is_not_this_hosts_alone_is_refused() {
    let (store, source) = (Store::new(), TempDir::new().unwrap());
    let mount = format!("bindfs --no-allow-other {} {}", source.path().display(), store.path().display());
    let said = in_namespace(&store.url(), &mount);
    assert!(said.starts_with("refused Unsupported") && said.contains("FUSE"), "{said}");
    assert_eq!(fs::read_dir(source.path()).unwrap().count(), 0, "nothing was made there");
}

/// Its clock of leases would be another one.
#[tokio::test]
async fn another_time_namespace_is_refused() {
    let store = Store::new();
    let client = store.client().await;
    let unshare = ["unshare", "--time", "--boottime", "1000", "--fork", "--kill-child"];
    let other = Child::start_by(&store.url(), &unshare);
    let said = other.hears("refused");
    assert!(said.starts_with("Unsupported") && said.contains("time namespace"), "{said}");
    client.close().await;
}
