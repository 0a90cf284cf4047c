//! The store of one host: a directory, and no server.
//!
//! ```text
//!   PATH/  leasehold.db   the record of each name: `step`, carried out in a transaction
//!          lock           the turn (P27)
//!          live/          two sockets for each session: whether it listens, and whether it lives (P26)
//!          ballast        reserved space for a full disk
//! ```
//!
//! A file that many processes change has three problems that a server does not have:
//!
//! - Which process changes it next? With SQLite alone, a process that finds the file busy retries after a while,
//!   perhaps for ever. So processes queue in the kernel (`turn.rs`). Inside a client, thousands of acquires delay
//!   nothing else (`backlog.rs`).
//! - How does a waiter notice its grant? The releaser rings a socket beside the file, and the waiter reads the file
//!   (`live.rs`, `site.rs`).
//! - What if a holder dies? Only in this store the kernel knows that immediately, so nobody waits for the end of a lease
//!   (`sentry.rs`).
//!
//! The stored leases are valid only until the host restarts: their clock begins with the boot, and every holder dies. So
//! nothing here waits until the disk has written, and only the tokens of a database of an earlier boot are kept.

mod backlog;
mod ballast;
mod bury;
mod cells;
mod database;
mod default;
mod desk;
mod directory;
mod dismissed;
mod fault;
mod filesystems;
mod job;
mod latches;
mod layout;
mod link;
mod live;
mod news;
mod ours;
mod plain;
mod pool;
mod presence;
mod record;
mod rows;
mod sentry;
mod shown;
mod site;
mod turn;
mod url;
mod waiters;
mod worker;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use leasehold_spec::Kind;

pub use self::default::default_url;
use self::desk::Desk;
use self::link::FileLink;
use super::{Link, Store, StoreProfile};
use crate::error::Error;
use crate::world::{Pending, World};

/// A store in a directory.
pub(crate) struct FileStore {
    desk: Arc<Desk>,
}

impl FileStore {
    /// Reads the part of a URL after `file:`. No I/O.
    pub(crate) fn new(rest: &str, world: &Arc<dyn World>) -> Result<Self, Error> {
        let desk = Desk::new(url::directory(rest)?, Arc::clone(world));
        Ok(Self { desk: Arc::new(desk) })
    }
}

impl Store for FileStore {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        Box::pin(FileLink::open(Arc::clone(&self.desk)))
    }

    fn profile(&self) -> StoreProfile {
        StoreProfile { names_successors: true, kinds: &Kind::ALL, ..StoreProfile::default() }
    }

    fn silence(&self) -> Option<Error> {
        self.desk.silence()
    }

    fn life(&self) -> Option<OwnedFd> {
        self.desk.life()
    }
}
