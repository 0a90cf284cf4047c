//! Checks that a directory is empty or ours, before anything is written: files of others are not touched, nor mixed
//! with ours.
//!
//! The check uses names, and not the content of the database: to close that file ends the locks of SQLite on it (in
//! this very process, for another client), and until its log is copied back the file does not show whose it is. So:
//!
//! - If there is a `leasehold.db`, `database.rs` finds out whose it is. Other files beside it are the affair of its owner.
//! - If there is none, the directory may be empty, or contain the files of a store that is not complete: its creator is at
//!   work now, was killed, or found the disk full. `lock` comes first, so no directory with our files is without it.
//! - A `lock` is ours if it is empty or contains a note (`turn.rs`).

use rustix::io::Errno;

use super::database::DATABASE;
use super::directory::Directory;
use super::turn::LOCK;
use crate::error::Error;

/// The files that a store can have without a database. (The log and its index may remain of a removed database.)
const PARTS: [&str; 6] = [LOCK, "live", "ballast", "leasehold.db-journal", "leasehold.db-wal", "leasehold.db-shm"];
/// Belongs to the file system, in the root of each one that mkfs.ext4 made.
const OF_THE_DISK: &str = "lost+found";

/// Checks a directory before anything is written.
pub(super) fn check(directory: &Directory) -> Result<(), Error> {
    let (mut parts, mut others) = (0, 0);
    for name in names(directory).map_err(|errno| directory.refused(".", errno))? {
        match name.as_slice() {
            b"." | b".." => {}
            name if name == OF_THE_DISK.as_bytes() => {}
            name if PARTS.iter().any(|part| part.as_bytes() == name) => parts += 1,
            _ => others += 1,
        }
    }
    // Checked after the others, because a creator may be at work: the file that it creates first exists by now.
    let is_store = directory.key(DATABASE).is_some() || (others == 0 && directory.key(LOCK).is_some());
    if is_store || parts + others == 0 { Ok(()) } else { Err(directory.foreign()) }
}

fn names(directory: &Directory) -> Result<Vec<Vec<u8>>, Errno> {
    directory.entries()?.map(|entry| Ok(entry?.file_name().to_bytes().to_vec())).collect()
}
