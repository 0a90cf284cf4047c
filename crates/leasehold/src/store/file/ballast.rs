//! A little space, reserved for a full disk.
//!
//! Releases and hand-overs must work on a full disk: a lock that nobody can release is worse than one that nobody can take.
//! Mostly the log is long enough already, and is written again from its beginning after it was copied back. If it is
//! not, to remove this file makes room.

use leasehold_spec::Op;
use rustix::fs::{FallocateFlags, OFlags};

use super::directory::Directory;

const BALLAST: &str = "ballast";
/// Room for some eighty steps, each of which writes a few pages of 4 KiB: enough until the log is copied back.
const BYTES: u64 = 1024 * 1024;

/// Whether a request does without the ballast: it adds rows. The others give something back.
pub(super) const fn does_without(op: &Op) -> bool {
    matches!(op, Op::Acquire(_) | Op::CreateLatch { .. } | Op::CountDown { .. })
}

/// Creates the file, if it is missing and there is room. Without it everything works until the disk is full.
pub(super) fn make(directory: &Directory) {
    let Ok(file) = directory.file(BALLAST, OFlags::empty()) else { return };
    let is_whole = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_blocks.cast_unsigned() * 512 >= BYTES);
    if is_whole || rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES).is_ok() {
        return;
    }
    // Half of it does not help, and takes space from others.
    let _removed = directory.remove(BALLAST);
}

/// Removes the file.
pub(super) fn drop(directory: &Directory) {
    let _was_gone = directory.remove(BALLAST);
}
