//! Credentials: the password that a client shows, its certificate, and the authorities that it trusts. Read anew for every
//! connection, so that whoever changes a file changes what the next one shows: a long-lived client outlives its first
//! password.
//!
//! The errors name the file or the variable and what is wrong with it. They never repeat a word of its content: a file of
//! the wrong kind may be the secret itself.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tokio::sync::oneshot;

use super::Target;
use super::tls;
use crate::descriptors;
use crate::error::{Error, ErrorKind, Result};
use crate::world::World;

/// Bytes of a password's file. Tokens that cloud services sign have some kilobytes.
const PASSWORD_MAX: usize = 16 * 1024;

/// Where the password is. It may be one: no `Debug`.
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

/// Whom `rediss:` trusts, and what it shows of itself: where that is, not what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tls {
    /// The authorities that sign servers. The system's where none is named.
    pub(crate) ca: Option<PathBuf>,
    /// What we show.
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
    /// What errors call it.
    pub(super) name: &'static str,
    /// The URL's parameter for it.
    pub(super) parameter: &'static str,
}

const PASSWORD: FileKind = FileKind { name: "password file", parameter: "password_file" };

/// What there is to show and to ask for, as it is now.
pub(super) struct Credentials {
    pub(super) password: Option<String>,
    pub(super) tls: Option<tls::Client>,
}

impl Credentials {
    /// Reads what the target names. Files are read off the async threads: a network file system may hang.
    pub(super) async fn of(target: &Target, world: &dyn World) -> Result<Self> {
        if let (None, None | Some(Password::Given(_))) = (&target.tls, &target.password) {
            return Ok(Self { password: given(target.password.as_ref())?, tls: None });
        }
        let (tell, told) = oneshot::channel();
        let (target, wall_us) = (target.clone(), world.wall_us());
        world.offload(Box::new(move || drop(tell.send(Self::read(&target, wall_us)))));
        // Not run: the runtime is going, and this future with it.
        told.await.map_err(|_| Error::closed())?
    }

    /// Blocks.
    fn read(target: &Target, wall_us: u64) -> Result<Self> {
        let password = given(target.password.as_ref())?;
        let host = &target.address.host;
        let tls = target.tls.as_ref().map(|tls| tls::Client::new(tls, host, wall_us)).transpose()?;
        Ok(Self { password, tls })
    }
}

fn given(password: Option<&Password>) -> Result<Option<String>> {
    Ok(match password {
        None => None,
        Some(Password::Given(password)) => Some(password.clone()),
        Some(Password::File(path)) => Some(line(path)?),
        Some(Password::Variable(name)) => Some(variable(name)?),
    })
}

fn line(path: &Path) -> Result<String> {
    let wrong = |why| wrong(PASSWORD, path, why);
    let text = String::from_utf8(content(PASSWORD, path, PASSWORD_MAX)?).map_err(|_| wrong("is not UTF-8"))?;
    let mut lines = text.lines();
    match (lines.next().unwrap_or_default(), lines.next()) {
        ("", _) => Err(wrong("begins with an empty line: it must contain the password and nothing else")),
        (password, None) => Ok(password.to_owned()),
        (_, Some(_)) => Err(wrong("has more than one line: it must contain the password and nothing else")),
    }
}

fn variable(name: &str) -> Result<String> {
    let wrong = |what| Err(Error::invalid(format!("the environment variable {name} of password_env {what}")));
    match std::env::var(name) {
        Ok(password) if password.is_empty() => wrong("is empty: set it to the password"),
        Ok(password) => Ok(password),
        Err(std::env::VarError::NotPresent) => wrong("is not set: set it to the password"),
        Err(std::env::VarError::NotUnicode(_)) => wrong("is not UTF-8"),
    }
}

/// The content of a file, if it has some and not too much. What is no file (a pipe, a terminal) would be gone when it is
/// read for the second time, or never end.
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

/// What is wrong with a file.
pub(super) fn wrong(kind: FileKind, path: &Path, why: &str) -> Error {
    Error::invalid(format!("the {} {path:?} {why}", kind.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        fs::write(&path, content).unwrap();
        (dir, path)
    }

    #[test]
    fn the_only_line_is_the_password() {
        for (content, password) in [("a b", "a b"), ("p\u{e4}ss\n", "p\u{e4}ss"), (" x \r\n", " x ")] {
            let (_dir, path) = file(content);
            assert_eq!(line(&path).unwrap(), password);
        }
    }

    #[test]
    fn what_is_wrong_is_told_and_the_content_is_not() {
        let long = "hunter2".repeat(PASSWORD_MAX / 7 + 1);
        let cases: [(&[u8], &str); 6] = [
            (b"", "is empty"),
            (b"\n", "empty line"),
            (b"\nhunter2", "empty line"),
            (b"hunter2\nhunter2\n", "more than one line"),
            (b"hunter2\xff", "not UTF-8"),
            (long.as_bytes(), "more than 16384 bytes"),
        ];
        for (content, says) in cases {
            let (_dir, path) = file(content);
            let error = line(&path).unwrap_err();
            assert!(error.to_string().contains(says) && error.to_string().contains("password\""), "{error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
        let (dir, _) = file("");
        for (path, says) in [(dir.path().join("none"), "cannot be read"), (dir.path().into(), "not a regular file")] {
            assert!(line(&path).unwrap_err().to_string().contains(says));
        }
        let key = FileKind { name: "key file", parameter: "key" };
        for (kind, option) in [(PASSWORD, "?password_file=/PATH"), (key, "?key=/PATH")] {
            let error = content(kind, &dir.path().join("none"), 1).unwrap_err().to_string();
            assert!(error.contains(&format!("check the path in {option} of the URL")), "{error}");
        }
    }

    #[test]
    fn variables() {
        assert_eq!(variable("CARGO_PKG_NAME").unwrap(), "leasehold");
        let error = variable("LEASEHOLD_NO_SUCH_VARIABLE").unwrap_err().to_string();
        assert!(error.contains("LEASEHOLD_NO_SUCH_VARIABLE") && error.contains("is not set"), "{error}");
    }
}
