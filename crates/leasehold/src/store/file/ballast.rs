//! A little space, reserved for a full disk.
//!
//! Releases and hand-overs must work on a full disk: a lock that nobody can release is worse than one that nobody can take.
//! Mostly the log is long enough already, and is written again from its beginning after it was copied back. If it is
//! not, to empty this file makes room. While the file is empty, the reserve is in use, and new locks must not spend it: a
//! request that nobody waits for yet is refused until the file is whole again.

use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Acquire, Op, Patience};
use rustix::fs::{FallocateFlags, OFlags};

use super::directory::Directory;

const BALLAST: &str = "ballast";
/// Room for some eighty steps, each of which writes a few pages of 4 KiB: enough until the log is copied back.
const BYTES: u64 = 1024 * 1024;

/// Whether a request does without the ballast: it adds rows. The others give something back.
pub(super) const fn does_without(op: &Op) -> bool {
    matches!(op, Op::Acquire(_) | Op::CreateLatch { .. } | Op::CountDown { .. })
}

/// Whether a request begins something: it has no place in a queue yet.
const fn begins(op: &Op) -> bool {
    let comes_back =
        matches!(op, Op::Acquire(Acquire { patience: Patience::Queue(place), .. }) if place.ticket.is_some());
    does_without(op) && !comes_back
}

/// Creates the file, if it is missing and there is room. Without it everything works until the disk is full.
pub(super) fn make(directory: &Directory) {
    if is_in_use(directory) {
        let _later_otherwise = refill(directory);
        return;
    }
    if !refill(directory) {
        // Half of it does not help, and takes space from others.
        let _removed = directory.remove(BALLAST);
    }
}

/// Empties the file. A directory that has none, for want of room or of a file system that can reserve, gets none.
pub(super) fn drop(directory: &Directory) {
    if directory.length(BALLAST).is_some()
        && let Ok(file) = directory.file(BALLAST, OFlags::empty())
    {
        let _still_full = rustix::fs::ftruncate(&file, 0);
    }
}

/// Whether this request has to leave the room on the disk to others. If there is room again, it refills the file.
pub(super) fn refuses(directory: &Directory, op: &Op) -> bool {
    begins(op) && is_in_use(directory) && !refill(directory) && !is_on(Mutant::P27SpendsReserve)
}

fn is_in_use(directory: &Directory) -> bool {
    directory.length(BALLAST) == Some(0)
}

/// Makes the file whole. Returns whether it is.
fn refill(directory: &Directory) -> bool {
    let Ok(file) = directory.file(BALLAST, OFlags::empty()) else { return false };
    let is_whole = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_blocks.cast_unsigned() * 512 >= BYTES);
    if is_whole || rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, BYTES).is_ok() {
        return true;
    }
    // The part that there was room for goes back.
    let _still_full = rustix::fs::ftruncate(&file, 0);
    false
}
