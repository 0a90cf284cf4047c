//! Whether a directory may be written into: nothing that somebody else has there is touched, nor mixed with ours.
//!
//! By names, and not by what is in the database: to close that file ends the locks that SQLite has on it (in this very
//! process, for another client), and until its log is copied back it does not say yet whose it is. So:
//!
//! - Where there is a `leasehold.db`, `database.rs` finds out whose it is; what else lies beside it is its owner's affair.
//! - Where there is none, there may be nothing, or what a store has that is not made yet: its maker is at it just now, was
//!   killed, or found the disk full. `lock` comes first, so nothing of ours is anywhere without it.
//! - A `lock` is ours if nothing is in it, or a note (`turn.rs`).

use rustix::io::Errno;

use super::database::DATABASE;
use super::directory::Directory;
use super::turn::LOCK;
use crate::error::{Error, ErrorKind};

/// What a store can have without a database. (The log and its index, of a database that somebody removed.)
const PARTS: [&str; 6] = [LOCK, "live", "ballast", "leasehold.db-journal", "leasehold.db-wal", "leasehold.db-shm"];
/// Of the file system, in the root of each that was made by mkfs.ext4.
const OF_THE_DISK: &str = "lost+found";

/// Before anything is written.
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
    // Looked at behind the others, for a maker who is at it: what comes first is there by now.
    let is_store = directory.key(DATABASE).is_some() || (others == 0 && directory.key(LOCK).is_some());
    if is_store || parts + others == 0 { Ok(()) } else { Err(foreign(directory)) }
}

fn names(directory: &Directory) -> Result<Vec<Vec<u8>>, Errno> {
    directory.entries()?.map(|entry| Ok(entry?.file_name().to_bytes().to_vec())).collect()
}

pub(super) fn foreign(directory: &Directory) -> Error {
    let path = directory.path();
    let inner = path.join("locks");
    let message = format!(
        "{} is not empty and is not a store of Leasehold: use a directory of its own, for example file:{}",
        path.display(),
        inner.display()
    );
    Error::new(ErrorKind::Foreign, message)
}
