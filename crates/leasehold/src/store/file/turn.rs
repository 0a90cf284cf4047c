//! P27: the turn, the right to change the database.
//!
//! SQLite waits by retries: among many writers, one can retry for ever. So writers first queue in the kernel, for a
//! lock on a file. The kernel releases the lock when its holder dies.
//!
//! The kernel does not know whether a holder is stopped (a debugger, SIGSTOP, a frozen container). Then everybody waits. So
//! the holder writes a note with its process ID, and a process that waits too long can report it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_spec::mutant::{Mutant, is_on};
use rustix::fs::{FileType, FlockOperation, OFlags};
use rustix::io::Errno;

use super::directory::{Directory, FileKey};
use crate::error::{Error, ErrorKind};
use crate::world::World;

pub(super) const LOCK: &str = "lock";
/// A process that has the turn for longer than this is stopped, or its disk is slow.
const STOPPED_US: u64 = 1_000_000;
/// The length of a note: every note has it, so that nothing of an earlier note is left.
const NOTE: usize = 64;

/// The lock file of one directory.
pub(super) struct Turn {
    file: OwnedFd,
    key: FileKey,
    /// Our note: our process ID, and its PID namespace.
    us: String,
}

/// The wait for a turn, for an error that explains a missing reply.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Option<Arc<Turn>>>);

/// The turn is ours until this is dropped.
pub(super) struct Taken(Arc<Turn>);

impl Turn {
    pub(super) fn open(directory: &Directory, world: &dyn World) -> Result<Arc<Self>, Error> {
        let refused = |errno| directory.refused(LOCK, errno);
        let file = directory.file(LOCK, OFlags::empty()).map_err(refused)?;
        let stat = rustix::fs::fstat(&file).map_err(refused)?;
        // Our file never has another size. We do not wait for the lock of a foreign file, which may be held for ever.
        let is_note = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && (stat.st_size == 0 || stat.st_size.cast_unsigned() == NOTE as u64);
        if !is_note {
            return Err(directory.foreign());
        }
        let key = FileKey::of(&stat);
        let us = format!("{} {}", world.process(), namespace());
        Ok(Arc::new(Self { file, key, us }))
    }

    pub(super) fn key(&self) -> FileKey {
        self.key
    }

    /// Waits for the turn, without a timeout.
    pub(super) fn take(self: &Arc<Self>, waiting: &Waiting, world: &dyn World) -> Result<Taken, Error> {
        let taken = self.lock(waiting)?;
        self.sign(world);
        Ok(taken)
    }

    /// Takes the turn for the first time, when it is not known yet whose file this is. Nobody else writes a note meanwhile.
    pub(super) fn take_first(
        self: &Arc<Self>,
        directory: &Directory,
        waiting: &Waiting,
        world: &dyn World,
    ) -> Result<Taken, Error> {
        let taken = self.lock(waiting)?;
        let mut found = [0; NOTE];
        let read = rustix::io::pread(&self.file, &mut found, 0).map_err(|errno| directory.refused(LOCK, errno))?;
        if !is_ours(&found[..read]) {
            return Err(directory.foreign());
        }
        self.sign(world);
        Ok(taken)
    }

    fn lock(self: &Arc<Self>, waiting: &Waiting) -> Result<Taken, Error> {
        if is_on(Mutant::P27NoTurn) {
            return Ok(Taken(Arc::clone(self)));
        }
        match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                waiting.set(Some(Arc::clone(self)));
                let locked = self.block();
                waiting.set(None);
                locked
            }
            locked => locked,
        }
        .map_err(|errno| {
            let message = format!("the store's lock file cannot be locked ({errno}): check the disk");
            Error::new(ErrorKind::Store, message)
        })?;
        Ok(Taken(Arc::clone(self)))
    }

    fn sign(&self, world: &dyn World) {
        let note = format!("{:<1$}\n", format!("{} {}", self.us, world.now_us()), NOTE - 1);
        // The note is only for waiting processes: on a full disk it may fail, and the turn is ours all the same.
        let _unwritten = rustix::io::pwrite(&self.file, note.as_bytes(), 0);
    }

    fn block(&self) -> Result<(), Errno> {
        loop {
            match rustix::fs::flock(&self.file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                locked => return locked,
            }
        }
    }

    /// Returns the note of a process that has had the turn for so long that it may be stopped.
    pub(super) fn stopped(&self, now_us: u64) -> Option<String> {
        let mut note = [0; NOTE];
        let read = rustix::io::pread(&self.file, &mut note, 0).ok()?;
        let mut words = std::str::from_utf8(&note[..read]).ok()?.split_whitespace();
        let (pid, space, since) = (words.next()?, words.next()?, words.next()?);
        let held_us = now_us.saturating_sub(since.parse().ok()?);
        if held_us < STOPPED_US {
            return None;
        }
        let is_near = space == namespace();
        let held_s = held_us as f64 / 1e6;
        if is_near && self.us.split(' ').next() == Some(pid) {
            return Some(format!(
                "another client of this process has held the store's lock for {held_s:.1} s: is its disk slow?"
            ));
        }
        let who = match is_near {
            true => format!("process {pid} has"),
            false => format!("a process of another pid namespace ({pid} in there) has"),
        };
        Some(format!(
            "{who} held the store's lock for {held_s:.1} s: is it stopped? Continue it (kill -CONT), or end it"
        ))
    }
}

/// Returns whether this is a note of [`Turn::sign`], or empty, or the zeros that a loss of power can leave.
fn is_ours(found: &[u8]) -> bool {
    if found.iter().all(|byte| *byte == 0) {
        return true;
    }
    let words: Vec<&str> = std::str::from_utf8(found).unwrap_or_default().split_whitespace().collect();
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    matches!(words[..], [pid, space, since] if is_number(pid) && space.starts_with("pid:") && is_number(since))
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Unlocked explicitly, because a forked child has the same open file.
        let _unlocked = rustix::fs::flock(&self.0.file, FlockOperation::Unlock);
    }
}

impl Waiting {
    fn set(&self, turn: Option<Arc<Turn>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = turn;
    }

    /// Returns the turn that the thread waits for, if it does.
    pub(super) fn turn(&self) -> Option<Arc<Turn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns the name of the PID namespace: a process ID means something else in another one.
fn namespace() -> String {
    let link = rustix::fs::readlink("/proc/self/ns/pid", Vec::new());
    link.ok().and_then(|link| link.into_string().ok()).unwrap_or_else(|| "pid:?".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::Real;

    /// A process that has the turn from time to time is not stopped, and neither is this process.
    #[test]
    fn only_a_process_with_a_long_turn_is_named() {
        let path = tempfile::TempDir::new().unwrap();
        let turn =
            Turn::open(&Directory::open(path.path(), |_| unreachable!("its parent exists")).unwrap(), &Real).unwrap();
        let note = |who: &str| {
            let note = format!("{:<1$}\n", format!("{who} 5000000"), NOTE - 1);
            rustix::io::pwrite(&turn.file, note.as_bytes(), 0).unwrap();
        };
        note(&format!("1 {}", namespace()));
        assert_eq!(turn.stopped(5_900_000), None);
        let said = turn.stopped(6_500_000).unwrap();
        assert!(said.starts_with("process 1 has held the store's lock for 1.5 s: is it stopped?"), "{said}");
        note("7 pid:[1]");
        let said = turn.stopped(7_000_000).unwrap();
        assert!(said.starts_with("a process of another pid namespace (7 in there) has held"), "{said}");
        note(&turn.us);
        let said = turn.stopped(7_000_000).unwrap();
        assert!(said.starts_with("another client of this process has held"), "{said}");
    }
}
