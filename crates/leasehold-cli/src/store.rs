//! Which store, and what of it nobody else is to see.

use std::env;

use leasehold::Leasehold;
use leasehold::seam::Secrets;
use nix::unistd::{User, geteuid};

use crate::exit::Failure;
use crate::said::Place;

const VARIABLE: &str = "LEASEHOLD_STORE";
/// What may hold a password, or say where one is. Beside them goes what a URL names.
const SECRETS: [&str; 3] = [VARIABLE, "LEASEHOLD_PASSWORD", "LEASEHOLD_PASSWORD_FILE"];

/// A store.
pub(crate) struct Location {
    /// May have a password in it: never shown.
    pub(crate) url: String,
    /// The variables that no other program inherits.
    pub(crate) secrets: Vec<String>,
    named: Named,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    ByUser,
    /// By nobody: it is this host's own, of this user.
    ByDefault,
}

// By hand: the URL may hold a password.
impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Location").field("secrets", &self.secrets).field("named", &self.named).finish_non_exhaustive()
    }
}

impl Location {
    /// The store that was said; else that of the environment; else this host's own.
    ///
    /// # Errors
    /// What is wrong with it, without repeating it.
    pub(crate) fn of(place: &Place) -> Result<Self, Failure> {
        if place.store.as_ref().is_some_and(|url| Secrets::of(url).in_url) {
            return Err(Failure::usage(format!(
                "a password is not taken from the command line, where everybody on this machine can read it: say where \
                 it is, by ?password_file=/PATH or ?password_env=NAME, or put the URL into the environment variable \
                 {VARIABLE}"
            )));
        }
        let set = || env::var(VARIABLE).ok().filter(|url| !url.is_empty());
        let (url, named) = match place.store.clone().or_else(set) {
            Some(url) => (url, Named::ByUser),
            None => (leasehold::file::default_url()?, Named::ByDefault),
        };
        if url.get(.."memory:".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("memory:")) {
            // Here every lock is free, whoever holds it there.
            return Err(Failure::usage(
                "memory: is inside of each program, and locks nobody else out: give file:/PATH or redis://HOST",
            ));
        }
        let secrets = SECRETS.map(str::to_owned).into_iter().chain(Secrets::of(&url).variables).collect();
        Ok(Self { url, secrets, named })
    }

    /// What whoever named no store is to know: it is not the one of another machine, nor of another user.
    pub(crate) fn notice(&self) -> Option<String> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let told = || format!("no store is named, so this is about {} on {host} only: {}", user(), self.url);
        (self.named == Named::ByDefault).then(told)
    }
}

/// Connects to the store that was said.
pub(crate) async fn connect(place: &Place) -> Result<Leasehold, Failure> {
    let location = Location::of(place)?;
    if let Some(notice) = location.notice().filter(|_| !place.quiet) {
        eprintln!("leasehold: {notice}");
    }
    Ok(Leasehold::builder(&location.url).one_connection().connect().await?)
}

/// Who runs this. Not by the environment: it is the same in cron, under sudo and on a terminal.
pub(crate) fn user() -> String {
    let uid = geteuid();
    let known = User::from_uid(uid).ok().flatten();
    known.map_or_else(|| format!("uid{uid}"), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Location, Failure> {
        Location::of(&Place { store: Some(url.to_owned()), quiet: true })
    }

    #[test]
    fn passwords_are_seen() {
        for url in [
            "redis://:hunter2@host",
            "redis://me:hunter2@host:1/2?prefix=a",
            "redis://hunter2@host",
            "redis://:hun/ter2@host",
            "redis://:hun?ter2@host",
            "redis://me:hunter2@host?password_env=A",
            ":hunter2@host",
        ] {
            let refused = of(url).unwrap_err().to_string();
            assert!(!refused.contains("hunter2") && refused.contains(VARIABLE), "{refused}");
        }
        for url in ["redis://host", "redis://me@host?password_env=A", "redis://host?password_file=/a", "file:/a/b"] {
            assert_eq!(of(url).unwrap().url, url);
        }
    }

    #[test]
    fn other_programs_inherit_no_variable_that_the_url_names() {
        let location = of("redis://me@host?password_env=REDIS_PASSWORD").unwrap();
        assert!(location.secrets.contains(&"REDIS_PASSWORD".to_owned()));
        assert!(!format!("{location:?}").contains("host"));
        assert_eq!(location.notice(), None);
    }
}
