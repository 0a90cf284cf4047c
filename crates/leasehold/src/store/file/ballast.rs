//! A little of the disk, kept for when it is full.
//!
//! What gives back or hands on must work then: a lock that nobody can release is worse than one that nobody can take.
//! Mostly the log is long enough already, and is written again from its beginning once it has been copied back. Where it is
//! not, this file makes room.

use rustix::fs::{FallocateFlags, OFlags};

use super::place::Place;

const BALLAST: &str = "ballast";
/// Room for some eighty steps, each of which writes a few pages of 4 KiB: enough to get the log around.
const BYTES: u64 = 1024 * 1024;

/// Makes it, if it is missing and there is room. Without it everything works, until the disk is full.
pub(super) fn make(place: &Place) {
    let Ok(file) = place.file(BALLAST, OFlags::empty()) else { return };
    let is_whole = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_blocks.cast_unsigned() * 512 >= BYTES);
    if is_whole || rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES).is_ok() {
        return;
    }
    // Half of it helps nobody, and is in the way of others.
    let _removed = place.remove(BALLAST);
}

/// Gives it up.
pub(super) fn drop(place: &Place) {
    let _was_gone = place.remove(BALLAST);
}
