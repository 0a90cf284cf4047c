//! P28: the default store is a function of user and host, and of nothing else.
//!
//! A job of cron and the same command in a shell must exclude each other, and they differ in every variable of the
//! environment: `sudo` keeps $HOME, cron has no $XDG_STATE_HOME, `su` keeps both. So the home is that of the user database,
//! for the effective user id. Where that cannot be asked (a directory server that is down) the answer is an error: another
//! directory, until the server is back, would be a second store.

use std::io;
use std::path::{Path, PathBuf};

use leasehold_spec::mutant::{Mutant, is_on};
use nix::unistd::{Uid, User};
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;

use super::{directory, filesystems};
use crate::descriptors;
use crate::error::{Error, ErrorKind};

/// The file with the machine ID of this host, which does not change with its name.
const MACHINE_ID: &str = "/etc/machine-id";
/// The directory of stores in the home.
const BELOW: [&str; 3] = [".local", "state", "leasehold"];

/// Returns the URL of the store that programs of this user on this host share if they name none:
/// `HOME/.local/state/leasehold/MACHINE-ID`, with the home of the user database; or `/dev/shm/leasehold-UID` if there is no
/// such home or it is on a network. No part of it comes from the environment, so that a job of cron, a shell and `sudo -i`
/// share it. Creates nothing.
///
/// # Errors
/// `Store` if the user database or the home cannot be read now.
pub fn default_url() -> Result<String, Error> {
    Ok(format!("file:{}", default_path()?.display()))
}

fn default_path() -> Result<PathBuf, Error> {
    let uid = rustix::process::geteuid().as_raw();
    let user = User::from_uid(Uid::from_raw(uid)).map_err(|errno| {
        let error = io::Error::from(errno);
        let advice = descriptors::advice(&error).unwrap_or("name a store, as in --store file:/PATH");
        Error::new(ErrorKind::Store, format!("cannot look up user {uid} ({error}): {advice}")).because(error)
    })?;
    let mut home = user.map(|user| user.dir);
    if is_on(Mutant::P28AsksTheEnvironment) {
        home = std::env::var_os("HOME").map(PathBuf::from).or(home);
    }
    match home {
        Some(home) if is_home(&home)? => Ok(below(&home, &machine_id(std::fs::read_to_string(MACHINE_ID))?)),
        _ => Ok(PathBuf::from(format!("/dev/shm/leasehold-{uid}"))),
    }
}

/// Returns whether the user has a home that no other host sees. A home that is only unusable now is an error of connecting,
/// and no reason for another store.
fn is_home(home: &Path) -> Result<bool, Error> {
    if !home.is_absolute() || home == Path::new("/") {
        return Ok(false);
    }
    match rustix::fs::statfs(home) {
        Ok(system) => Ok(filesystems::check(system.f_type as u32).is_ok()),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(directory::refused(home, "looked at", errno)),
    }
}

fn below(home: &Path, machine: &str) -> PathBuf {
    let mut path = home.to_owned();
    path.extend(BELOW);
    path.push(machine);
    path
}

/// Returns the directory of this host: a home that moves from host to host, or is shared by containers, has a store for
/// each.
///
/// A host without such a file has a store as well, under another name. A failed read is an error. Otherwise: A has no
/// descriptor left to read the file. B reads it. A uses another store than B.
fn machine_id(read: io::Result<String>) -> Result<String, Error> {
    const PASSING: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::INTR];
    let text = match read {
        Err(error) if Errno::from_io_error(&error).is_some_and(|errno| PASSING.contains(&errno)) => {
            let advice = descriptors::advice(&error).unwrap_or("try again, or name a store, as in --store file:/PATH");
            let message = format!("{MACHINE_ID} cannot be read ({error}): {advice}");
            return Err(Error::new(ErrorKind::Store, message).because(error));
        }
        read => read.unwrap_or_default(),
    };
    let id = text.trim();
    let is_id = id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit());
    Ok(if is_id { id } else { "this-host" }.to_owned())
}

/// Creates the parents of the default store, and of no other store: elsewhere, a missing parent is a typing error, or a
/// disk that is not mounted yet.
pub(super) fn make_parents(path: &Path) -> Result<(), Error> {
    let no_parent = || directory::refused(path, "made", Errno::NOENT);
    if default_path()? != path {
        return Err(no_parent());
    }
    let home = path.ancestors().nth(BELOW.len() + 1).ok_or_else(no_parent)?;
    let mut parent = home.to_owned();
    for part in BELOW {
        parent.push(part);
        match rustix::fs::mkdirat(CWD, &parent, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(directory::refused(&parent, "made", errno)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_homes_are_refused() {
        for none in ["", "relative", "/", "/nonexistent", "/etc/hostname/home"] {
            assert!(!is_home(Path::new(none)).unwrap(), "{none}");
        }
        // On no disk of this host.
        assert!(!is_home(Path::new("/proc")).unwrap());
        assert!(is_home(Path::new("/tmp")).unwrap());
    }

    #[test]
    fn the_store_is_below_the_home() {
        let id = "0123456789abcdef0123456789abcdef";
        assert_eq!(below(Path::new("/home/a"), id), Path::new("/home/a/.local/state/leasehold").join(id));
        assert_eq!(machine_id(Ok(format!("{id}\n"))).unwrap(), id);
        for none in ["", "uninitialized\n", "../../../etc", "0123"] {
            assert_eq!(machine_id(Ok(none.to_owned())).unwrap(), "this-host");
        }
        for none in [Errno::NOENT, Errno::NOTDIR, Errno::ACCESS, Errno::ISDIR] {
            assert_eq!(machine_id(Err(none.into())).unwrap(), "this-host", "{none}: so it is at every look");
        }
    }

    /// A check that failed because no descriptor was left chose another store than all other programs of this user.
    #[test]
    fn p28_a_host_that_cannot_be_asked_just_now_has_no_other_store() {
        for (passing, says) in [(Errno::MFILE, "ulimit -n"), (Errno::NFILE, "fs.file-max"), (Errno::IO, "try again")] {
            let error = machine_id(Err(passing.into())).expect_err("nobody knows which store");
            assert_eq!(error.kind(), ErrorKind::Store, "{error}");
            assert!(error.to_string().contains(says) && error.to_string().contains(MACHINE_ID), "{error}");
        }
    }
}
