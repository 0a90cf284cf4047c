//! The meaning of each error of SQLite for a session, in one table.

use std::path::Path;

use rusqlite::{Error as Sql, ErrorCode};

use crate::descriptors;
use crate::error::{Error, ErrorKind};
use crate::store::Fault;

/// Why a step failed. In each case, the transaction was rolled back.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The disk is full.
    NoRoom(Error),
    /// The stored rows of this name make no sense.
    Nonsense(String),
    /// A retry would fail in the same way.
    Refused(Error),
    /// The database must be opened again.
    Gone(Error),
}

impl Trouble {
    pub(super) fn of(path: &Path, error: Sql) -> Self {
        let place = path.display();
        let code = error.sqlite_error_code();
        let extended = error.sqlite_error().map_or(0, |known| known.extended_code);
        let (kind, trouble, message): (_, fn(Error) -> Self, _) = match code {
            Some(ErrorCode::DiskFull) => return Self::NoRoom(full(path)),
            // The shared memory of the log could not grow.
            Some(ErrorCode::SystemIoFailure) if extended == rusqlite::ffi::SQLITE_IOERR_SHMSIZE => {
                return Self::NoRoom(full(path));
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
                ErrorKind::Store,
                Self::Refused,
                format!(
                    "the database in {place} is damaged ({error}): stop all programs that use it, then move the \
                     directory away; all leases in it are lost then"
                ),
            ),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => (
                ErrorKind::Unreachable,
                Self::Gone,
                format!("another program has an open transaction on the database in {place}: stop that program"),
            ),
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
                // SQLite does not report why a file cannot be opened.
                let (kind, advice) = match descriptors::advice_if_few() {
                    Some(advice) => (ErrorKind::Store, advice),
                    None => (ErrorKind::Denied, "check its permissions, and the disk"),
                };
                let message = format!("cannot open the database in {place} for writing ({error}): {advice}");
                (kind, Self::Gone, message)
            }
            _ => (ErrorKind::Store, Self::Gone, format!("the database in {place} failed ({error}): check the disk")),
        };
        trouble(Error::new(kind, message).because(error))
    }

    /// An error of opening.
    pub(super) fn at_open(self, path: &Path) -> Error {
        match self {
            Self::Nonsense(why) => nonsense(path, &why),
            Self::NoRoom(error) | Self::Refused(error) | Self::Gone(error) => error,
        }
    }

    pub(super) fn fault(self, path: &Path) -> Fault {
        match self {
            Self::NoRoom(error) => Fault::NoMemory(error),
            Self::Nonsense(why) => Fault::Damaged(nonsense(path, &why)),
            Self::Refused(error) => Fault::Refused(error),
            Self::Gone(error) => Fault::Gone(error),
        }
    }
}

pub(super) fn full(path: &Path) -> Error {
    let message =
        format!("the disk of {} is full, and nothing was changed: free some space, and try again", path.display());
    Error::new(ErrorKind::Store, message)
}

fn nonsense(path: &Path, why: &str) -> Error {
    let message = format!(
        "the database in {} has an invalid record of this name ({why}): did another program write to it?",
        path.display()
    );
    Error::new(ErrorKind::Store, message)
}
