//! The tests that only the store `file:` needs: many processes, a directory, and faults of both.
//!
//! (`conformance.rs` tests the faces on every store.) Tests that need a mount or a namespace start processes by
//! `unshare`, as root. If that is refused, they fail with a message.
#![cfg(all(feature = "file", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod arrivals;
mod buffer;
mod child;
mod conditions;
mod crowd;
mod database;
mod default;
mod directory;
mod disk;
mod histories;
mod layouts;
mod life;
mod revoked;
mod rows;
mod shares;
mod slow;
mod stored;
mod torn;
mod turn;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use leasehold::Leasehold;
use tempfile::TempDir;

/// The time limit of any expected event.
const LONG: Duration = Duration::from_secs(30);
/// The time limit of an immediate event, which may take seconds on a busy machine. It is shorter than the time to the
/// re-check of a [`slow`] client, which is due after 20 s at the earliest.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A directory for one test, and the URL of the store in it.
struct Store {
    directory: TempDir,
}

impl Store {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn url(&self) -> String {
        format!("file:{}", self.path().display())
    }

    async fn client(&self) -> Leasehold {
        Leasehold::connect(&self.url()).await.unwrap()
    }
}

async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, future).await {
        Ok(output) => output,
        Err(_) => panic!("in vain for {limit:?}: {what}"),
    }
}

/// Waits until `done`, for a state that causes no event.
async fn eventually(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(LONG, what, looking).await;
}
