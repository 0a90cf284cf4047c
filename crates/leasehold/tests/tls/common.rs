//! The common part of these tests.

use std::error::Error as _;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::fence::RedisFence;
use leasehold::{Error, ErrorKind, Leasehold, Result};
use leasehold_testkit::certificates::{Authority, Identity};
use leasehold_testkit::server::Clients;
use leasehold_testkit::{RedisServer, Value};
use tempfile::TempDir;

/// Longer than any step of these tests takes.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// The names of a server in these tests.
pub(crate) const HOSTS: [&str; 2] = ["localhost", "127.0.0.1"];

pub(crate) async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, work).await.unwrap_or_else(|_| panic!("timed out while waiting for {what}"))
}

/// Returns every text of an error.
pub(crate) fn all_of(error: &Error) -> String {
    let mut said = format!("{error} {error:?} {error:#?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    said
}

/// Returns the error of a lock's client, which a fence's client must return as well.
pub(crate) async fn refused(url: &str) -> Error {
    let lock = in_time("a word", Leasehold::connect(url)).await.expect_err(url);
    let fence = in_time("a word", RedisFence::connect(url)).await.expect_err(url);
    assert_eq!(lock.kind(), fence.kind(), "{lock}\n{fence}");
    assert_eq!(all_of(&lock), all_of(&fence));
    lock
}

#[track_caller]
pub(crate) fn assert_says(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is missing in: {error}");
    }
}

/// The files of a test.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file in the way of a rotation: a reader gets the old file or the new one.
    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let (whole, new) = (self.path(name), self.path("new"));
        std::fs::write(&new, content).unwrap();
        std::fs::rename(&new, &whole).unwrap();
        whole
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the parameters of a URL that name a client's certificate.
    pub(crate) fn show(&self, identity: &Identity) -> String {
        let certificate = self.put("client.pem", &identity.certificate);
        let key = self.put("client.key", &identity.key);
        format!("cert={}&key={}", certificate.display(), key.display())
    }
}

/// Returns a server with this identity, and its authority.
pub(crate) fn server(identity: impl FnOnce(&Authority) -> Identity, clients: Clients) -> (RedisServer, Authority) {
    let authority = Authority::new("Leasehold's tests");
    let identity = identity(&authority);
    (RedisServer::builder().tls(&authority, &identity, clients).start(), authority)
}

/// Closes every connection except the one that sends the command.
pub(crate) fn hang_up(server: &RedisServer) {
    let ended = server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).int().unwrap();
    let inboxes = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int().unwrap();
    assert!(ended + inboxes >= 1, "the server had no client");
}

/// Returns how many inboxes are attached.
pub(crate) fn inboxes(server: &RedisServer) -> usize {
    match server.command(&["PUBSUB", "CHANNELS", "lh1:inbox:*"]) {
        Value::Array(channels) => channels.len(),
        other => panic!("PUBSUB CHANNELS answers a list: {other:?}"),
    }
}

/// Makes a call that always gets an answer.
pub(crate) async fn try_lock(client: &Leasehold) -> Result<()> {
    in_time("an answer", client.mutex("probe").try_lock()).await.map(drop)
}

/// Waits until a disconnected client reports an error with this text. Earlier errors may report only silence or a
/// broken connection.
pub(crate) async fn trouble(client: &Leasehold, says: &str) -> Error {
    in_time(says, async {
        loop {
            match try_lock(client).await {
                Err(error) if error.to_string().contains(says) => break error,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    })
    .await
}
