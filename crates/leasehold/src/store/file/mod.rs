//! The store of one host: a directory, and no server.
//!
//! ```text
//!   PATH/  leasehold.db   the record of each name: `step`, carried out in a transaction
//!          lock           whose turn it is (P27)
//!          live/          two sockets for each session: who listens, and who lives (P26)
//!          ballast        room, for when there is none
//! ```
//!
//! A file that many processes change has three problems that a server does not. Who changes it next: SQLite has those who
//! find it busy try again after a while, and some of them for ever, so they queue in the kernel (`turn.rs`); and inside a
//! client, thousands of acquires hold up nothing else (`backlog.rs`). How does a
//! waiter hear of its grant: a socket beside the file is rung, and who hears it reads the file (`live.rs`, `site.rs`). And
//! what if a holder dies: here, and nowhere else, the kernel knows at once, so nobody waits for the end of a lease
//! (`sentry.rs`).
//!
//! What is stored is not worth more than the boot that it was stored in: leases count on a clock that begins with it, and
//! whoever held is dead. So nothing here waits for a disk to have written, and a database of an earlier boot keeps its
//! tokens only.

mod backlog;
mod ballast;
mod database;
mod default;
mod desk;
mod directory;
mod fault;
mod filesystems;
mod link;
mod live;
mod ours;
mod presence;
mod record;
mod rows;
mod sentry;
mod site;
mod turn;
mod url;
mod worker;

use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use self::default::default_url;
use self::desk::Desk;
use self::link::FileLink;
use super::{Link, Store, StoreProfile};
use crate::error::Error;
use crate::world::{Pending, World};

/// The store of a directory.
pub(crate) struct FileStore {
    desk: Arc<Desk>,
}

impl FileStore {
    /// By what stands behind `file:`. No I/O.
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
        StoreProfile::default()
    }

    fn silence(&self) -> Option<Error> {
        self.desk.silence()
    }

    fn life(&self) -> Option<OwnedFd> {
        self.desk.life()
    }
}
