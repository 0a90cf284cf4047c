//! Credentials: the password of a client, its certificate, and the authorities that it trusts.
//!
//! They are read anew for every connection, because a long-lived client outlives its first password: after a change of a
//! file, the next connection uses the new content.

use std::path::Path;

use tokio::sync::oneshot;

use super::named::{FileKind, Password, content, wrong};
use super::tls;
use super::url::Target;
use crate::error::{Error, Result};
use crate::world::World;

/// Bytes of a password's file. Tokens that cloud services sign have some kilobytes.
const PASSWORD_MAX: usize = 16 * 1024;

const PASSWORD: FileKind = FileKind { name: "password file", parameter: "password_file" };

/// The password and the TLS configuration of one connection.
pub(super) struct Credentials {
    pub(super) password: Option<String>,
    pub(super) tls: Option<tls::Client>,
}

impl Credentials {
    /// Reads the credentials that the target names. A network file system may hang, so no async thread reads files.
    pub(super) async fn of(target: &Target, world: &dyn World) -> Result<Self> {
        if let (None, None | Some(Password::Given(_))) = (&target.tls, &target.password) {
            return Ok(Self { password: given(target.password.as_ref())?, tls: None });
        }
        let (tell, told) = oneshot::channel();
        let (target, wall_us) = (target.clone(), world.wall_us());
        world.offload(Box::new(move || drop(tell.send(Self::read(&target, wall_us)))));
        // It did not run, because the runtime ends, and this future with it.
        told.await.map_err(|_| Error::closed())?
    }

    /// Reads files, and blocks.
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

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
    fn errors_say_what_is_wrong_and_do_not_repeat_the_content() {
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
