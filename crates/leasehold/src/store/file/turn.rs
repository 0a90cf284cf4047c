//! P27: whose turn it is to change the database.
//!
//! SQLite's own way of waiting is to try again after a while: among many writers one can try for ever. So writers queue in
//! the kernel, for a lock on a file, before they begin; the kernel lets go of it when its holder dies.
//!
//! What it cannot know is whether a holder is stopped (a debugger, SIGSTOP, a frozen container). Then everybody waits, so
//! the holder writes down who it is, and whoever waits too long can say it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_spec::mutant::{Mutant, is_on};
use rustix::fs::{FileType, FlockOperation, OFlags};
use rustix::io::Errno;

use super::directory::{Directory, FileKey};
use super::ours;
use crate::error::{Error, ErrorKind};
use crate::world::World;

pub(super) const LOCK: &str = "lock";
/// Nobody has a turn for so long, unless it is stopped or its disk is slow.
const STOPPED_US: u64 = 1_000_000;
/// As long as a note can be, so that none leaves a rest of the one before.
const NOTE: usize = 64;

/// The lock file of one directory.
pub(super) struct Turn {
    file: OwnedFd,
    key: FileKey,
    /// What we write into it: our process id and the pid namespace that it means something in.
    us: String,
}

/// Who waits for a turn, for those who ask why there is no answer.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Option<Arc<Turn>>>);

/// It is ours, until this is dropped.
pub(super) struct Taken(Arc<Turn>);

impl Turn {
    pub(super) fn open(directory: &Directory, world: &dyn World) -> Result<Arc<Self>, Error> {
        let refused = |errno| directory.refused(LOCK, errno);
        let file = directory.file(LOCK, OFlags::empty()).map_err(refused)?;
        let stat = rustix::fs::fstat(&file).map_err(refused)?;
        // Ours has never any other size. It is not waited for: who has somebody else's lock file may have it for ever.
        let is_note = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && (stat.st_size == 0 || stat.st_size.cast_unsigned() == NOTE as u64);
        if !is_note {
            return Err(ours::foreign(directory));
        }
        let key = FileKey::of(&stat);
        let us = format!("{} {}", world.process(), namespace());
        Ok(Arc::new(Self { file, key, us }))
    }

    pub(super) fn key(&self) -> FileKey {
        self.key
    }

    /// Waits for it, however long that takes.
    pub(super) fn take(self: &Arc<Self>, waiting: &Waiting, world: &dyn World) -> Result<Taken, Error> {
        let taken = self.lock(waiting)?;
        self.sign(world);
        Ok(taken)
    }

    /// The first time, when it is not known yet whose file it is. Nobody else writes a note while we look.
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
            return Err(ours::foreign(directory));
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
        // Only for those who wait: a disk that is full takes nothing from who holds.
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

    /// Who has had it for so long that they may be stopped, as they wrote.
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

/// Whether it is what [`Turn::sign`] writes: or nothing yet, or the nothing that a loss of power can leave of it.
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
        // By word, and not by closing: a child that was forked has the same open file.
        let _unlocked = rustix::fs::flock(&self.0.file, FlockOperation::Unlock);
    }
}

impl Waiting {
    fn set(&self, turn: Option<Arc<Turn>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = turn;
    }

    /// The turn that is waited for, if one is.
    pub(super) fn turn(&self) -> Option<Arc<Turn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The pid namespace, as the kernel names it: a process id means something else in another.
fn namespace() -> String {
    let link = rustix::fs::readlink("/proc/self/ns/pid", Vec::new());
    link.ok().and_then(|link| link.into_string().ok()).unwrap_or_else(|| "pid:?".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::Real;

    /// Who has a turn now and then is not stopped, and a process that asks is not stopped itself.
    #[test]
    fn only_who_has_had_the_turn_for_long_is_named() {
        let path = tempfile::TempDir::new().unwrap();
        let turn = Turn::open(&Directory::open(path.path()).unwrap(), &Real).unwrap();
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
