//! The directory of a store: only its owner can use it, and only this host sees its file system.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::filesystems;
use crate::descriptors;
use crate::error::{Error, ErrorKind};

/// Only the owner has access: a user who can write here can lock, and a user who can read knows the IDs that release locks.
const PRIVATE: Mode = Mode::RWXU;
const OTHERS_WRITE: u32 = 0o022;

/// The identity of a file, under any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileKey(u64, u64);

impl FileKey {
    pub(super) fn of(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }
}

/// A directory that is suitable for a store.
pub(super) struct Directory {
    path: PathBuf,
    dir: OwnedFd,
}

impl Directory {
    /// Opens the directory, or creates it. `make_parents` is called if a parent is missing.
    pub(super) fn open(path: &Path, make_parents: impl FnOnce(&Path) -> Result<(), Error>) -> Result<Self, Error> {
        let mut made = make(CWD, path);
        if made == Err(Errno::NOENT) {
            make_parents(path)?;
            made = make(CWD, path);
        }
        if let Err(errno) = made
            && rustix::fs::stat(path).is_err()
        {
            return Err(refused(path, "made", errno));
        }
        let dir = open_dir(CWD, path).map_err(|errno| refused(path, "opened", errno))?;
        let stat = rustix::fs::fstat(&dir).map_err(|errno| refused(path, "opened", errno))?;
        check_owner(path, &stat)?;
        let system = rustix::fs::fstatfs(&dir).map_err(|errno| refused(path, "opened", errno))?;
        // The type has 32 bits, which some systems sign-extend.
        filesystems::check(system.f_type as u32)?;
        Ok(Self { path: path.to_owned(), dir })
    }

    /// Returns the error for a directory with files that are not ours.
    pub(super) fn foreign(&self) -> Error {
        let inner = self.path.join("locks");
        let message = format!(
            "{} is not empty and is not a store of Leasehold: use a directory of its own, for example file:{}",
            self.path.display(),
            inner.display()
        );
        Error::new(ErrorKind::Foreign, message)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the names of its entries.
    pub(super) fn entries(&self) -> Result<Dir, Errno> {
        Dir::read_from(&self.dir)
    }

    /// Opens a directory in it.
    pub(super) fn inner(&self, name: &str) -> Result<OwnedFd, Error> {
        let path = self.path.join(name);
        match make(&self.dir, name) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(refused(&path, "made", errno)),
        }
        open_dir(&self.dir, name).map_err(|errno| refused(&path, "opened", errno))
    }

    /// Opens a file in it, or creates it.
    pub(super) fn file(&self, name: &str, more: OFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | more;
        rustix::fs::openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)
    }

    /// Returns which file has this path now, from the root on: somebody may have moved or removed the directory.
    pub(super) fn key(&self, name: &str) -> Option<FileKey> {
        let stat = rustix::fs::stat(self.path.join(name)).ok()?;
        Some(FileKey::of(&stat))
    }

    /// Returns the length of a file in it.
    pub(super) fn length(&self, name: &str) -> Option<i64> {
        let stat = rustix::fs::statat(&self.dir, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(stat.st_size)
    }

    pub(super) fn remove(&self, name: &str) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.dir, name, rustix::fs::AtFlags::empty())
    }

    pub(super) fn refused(&self, name: &str, errno: Errno) -> Error {
        refused(&self.path.join(name), "opened for writing", errno)
    }
}

fn make(at: impl std::os::fd::AsFd, path: impl rustix::path::Arg) -> Result<(), Errno> {
    rustix::fs::mkdirat(at, path, PRIVATE)
}

fn open_dir(at: impl std::os::fd::AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Refuses a directory that others can write to: they could replace our lock file, and let two holders in.
pub(super) fn check_owner(path: &Path, stat: &Stat) -> Result<(), Error> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(Error::new(ErrorKind::Denied, format!("{} is not a directory: use another path", path.display())));
    }
    let (owner, us) = (stat.st_uid, rustix::process::geteuid().as_raw());
    if owner != us {
        let message =
            format!("{} belongs to user {owner}, but this is user {us}: use another directory", path.display());
        return Err(Error::new(ErrorKind::Denied, message));
    }
    // Such as /tmp: its permissions are as they must be.
    if Mode::from_raw_mode(stat.st_mode).contains(Mode::SVTX) {
        let message = format!(
            "{} is shared by all users: use a directory of its own, for example file:{}",
            path.display(),
            path.join("locks").display()
        );
        return Err(Error::new(ErrorKind::Denied, message));
    }
    if stat.st_mode & OTHERS_WRITE != 0 {
        let message = format!("{0} is writable by other users than its owner: run chmod go-w {0}", path.display());
        return Err(Error::new(ErrorKind::Denied, message));
    }
    Ok(())
}

pub(super) fn refused(path: &Path, what: &str, errno: Errno) -> Error {
    let error = io::Error::from(errno);
    let (kind, advice) = match errno {
        Errno::ACCESS | Errno::PERM => (ErrorKind::Denied, "give this user the permission, or use another directory"),
        Errno::ROFS => (ErrorKind::Denied, "use a directory that is writable"),
        Errno::NOENT => (ErrorKind::Denied, "create its parent directory first"),
        Errno::NOTDIR | Errno::EXIST | Errno::LOOP => (ErrorKind::Denied, "use a directory"),
        Errno::NOSPC | Errno::DQUOT => (ErrorKind::Store, "the disk is full: free some space"),
        _ => (ErrorKind::Store, descriptors::advice(&error).unwrap_or("check the disk")),
    };
    let message = format!("{} cannot be {what} ({error}): {advice}", path.display());
    Error::new(kind, message).because(error)
}
