//! The password and the files that a URL names: where they are, and how a file is read.
//!
//! Errors name the file and what is wrong with it. They never repeat its content: a file of the wrong kind may be a secret.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::descriptors;
use crate::error::{Error, ErrorKind, Result};

/// Where the password is. There is no `Debug`, because it may be the password itself.
#[derive(Clone)]
#[cfg_attr(test, derive(PartialEq, Eq))]
pub(crate) enum Password {
    /// In the URL.
    Given(String),
    /// In a file, on its only line.
    File(PathBuf),
    /// In a variable of the environment.
    Variable(String),
}

/// Where the certificates of a `rediss:` URL are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The authorities that sign servers; without a file, those of the system.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate of the client.
    pub(crate) identity: Option<Identity>,
}

/// A client certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A file that a URL names.
#[derive(Clone, Copy)]
pub(super) struct FileKind {
    /// Its name in errors.
    pub(super) name: &'static str,
    /// The URL's parameter for it.
    pub(super) parameter: &'static str,
}

/// Returns the content of a file, if it has some and not too much. Refuses anything else than a regular file: the content
/// of a pipe or a terminal is gone when it is read for the second time, or never ends.
pub(super) fn content(kind: FileKind, path: &Path, at_most: usize) -> Result<Vec<u8>> {
    let wrong = |why: &str| wrong(kind, path, why);
    let unreadable = |error: std::io::Error| {
        if let Some(advice) = descriptors::advice(&error) {
            let message = format!("cannot read the {} {path:?} ({error}): {advice}", kind.name);
            return Error::new(ErrorKind::Store, message);
        }
        let FileKind { parameter, .. } = kind;
        wrong(&format!(
            "cannot be read: {error}; check the path in ?{parameter}=/PATH of the URL, and the permissions of the file"
        ))
    };
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(wrong("is not a regular file, and must be one: it is read again for each connection"));
    }
    let mut bytes = Vec::new();
    let room = u64::try_from(at_most).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).and_then(|file| file.take(room).read_to_end(&mut bytes)).map_err(unreadable)?;
    match bytes.len() {
        0 => Err(wrong("is empty")),
        many if many > at_most => Err(wrong(&format!("has more than {at_most} bytes"))),
        _ => Ok(bytes),
    }
}

/// Returns an error that says what is wrong with a file.
pub(super) fn wrong(kind: FileKind, path: &Path, why: &str) -> Error {
    Error::invalid(format!("the {} {path:?} {why}", kind.name))
}
