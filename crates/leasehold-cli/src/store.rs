//! Which store, and what of it nobody else is to see.

use std::env;

use leasehold::Leasehold;
use leasehold::seam::Secrets;
use nix::unistd::{User, geteuid};

use crate::exit::Failure;
use crate::said;
use crate::show;

pub(crate) const VARIABLE: &str = "LEASEHOLD_STORE";
/// What may hold a password, or say where one is. Beside them goes what a URL names.
const SECRETS: [&str; 3] = [VARIABLE, "LEASEHOLD_PASSWORD", "LEASEHOLD_PASSWORD_FILE"];

/// What the library knows: stores, and what it says another word for.
const SCHEMES: [&str; 9] =
    ["redis", "rediss", "file", "memory", "redis+sentinel", "redis+cluster", "redis+unix", "unix", "quorum"];

/// In place of a store that the command of a `run` cannot be told: without it a `leasehold` in there would take this
/// host's own, where every lock of the other one is free.
const WITHHELD: &str = "withheld:";

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
    pub(crate) fn of(said: &said::Store) -> Result<Self, Failure> {
        if let Some(url) = said.url.as_ref().filter(|url| Secrets::of(url).in_url) {
            return Err(Failure::usage(format!(
                "{}: say where it is, by ?password_file=/PATH or ?password_env=NAME, or put the URL into the \
                 environment variable {VARIABLE}",
                match has_user_only(url) {
                    true => "the URL has a user without a password",
                    false => {
                        "a password is not taken from the command line, where everybody on this machine can read it"
                    }
                }
            )));
        }
        let (url, named) = match said.url.clone().map_or_else(by_environment, |url| Ok(Some(url)))? {
            Some(url) if url == WITHHELD => {
                return Err(Failure::usage(
                    "the store's URL has a password, which `leasehold run` keeps from its command: give --store with \
                     ?password_file=/PATH",
                ));
            }
            Some(url) => (url, Named::ByUser),
            None => (leasehold::file::default_url()?, Named::ByDefault),
        };
        if url.get(.."memory:".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("memory:")) {
            // Here every lock is free, whoever holds it there.
            return Err(Failure::usage(
                "memory: is inside of each program, and locks nobody else out: give file:/PATH or redis://HOST",
            ));
        }
        if let Some(wrong) = unknown(&url) {
            return Err(Failure::usage(format!(
                "{wrong}: give redis://HOST[:PORT], rediss://HOST[:PORT] with TLS, quorum: over several, or \
                 file:/PATH for this host alone"
            )));
        }
        let secrets = SECRETS.map(str::to_owned).into_iter().chain(Secrets::of(&url).variables).collect();
        Ok(Self { url, secrets, named })
    }

    /// Whether it is a quorum's.
    pub(crate) fn is_quorum(&self) -> bool {
        self.url.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("quorum"))
    }

    /// What it is called in words.
    pub(crate) fn shown(&self) -> &str {
        match Secrets::of(&self.url).in_url {
            true => "the store",
            false => &self.url,
        }
    }

    /// What LEASEHOLD_STORE is for the command of a `run`: the same store, or words instead of it. `None` where no store
    /// is named: it finds the same one without.
    pub(crate) fn inherited(&self) -> Option<&str> {
        let secrets = Secrets::of(&self.url);
        match self.named {
            Named::ByDefault => None,
            Named::ByUser if secrets.in_url || !secrets.variables.is_empty() => Some(WITHHELD),
            Named::ByUser => Some(&self.url),
        }
    }

    /// What whoever named no store is to know: it is not the one of another machine, nor of another user.
    pub(crate) fn notice(&self) -> Option<String> {
        let told = || format!("no store is named, so this is about {} on {} only: {}", user(), host(), self.url);
        (self.named == Named::ByDefault).then(told)
    }
}

/// The store of the environment, if any. One that cannot be read is not this host's own: whoever set it meant another.
fn by_environment() -> Result<Option<String>, Failure> {
    match env::var(VARIABLE) {
        Ok(url) if url.is_empty() => Err(Failure::usage(format!("{VARIABLE} is empty: unset it, or give it a URL"))),
        Ok(url) => Ok(Some(url)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(Failure::usage(format!("{VARIABLE} is not text in UTF-8"))),
    }
}

/// What is wrong with how a URL begins, if that is no store's: in words, where it can be told. Of what is no URL
/// (`PASSWORD@HOST`) no word is repeated, nor of what looks like one and may be something else.
fn unknown(url: &str) -> Option<String> {
    if url.is_empty() {
        return Some("the URL is empty".to_owned());
    }
    let scheme = url.split_once(':').map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))) {
        return None;
    }
    let is_word = |scheme: &&str| scheme.len() <= 16 && scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_plain = |scheme: &&str| scheme.chars().all(|c| c.is_ascii_lowercase() || "+-".contains(c));
    let named = url.split_once("://").map(|(scheme, _)| scheme).filter(is_word).filter(is_plain);
    let named = named.map_or_else(|| "what the URL begins with".to_owned(), |scheme| format!("\"{scheme}:\""));
    Some(format!("{named} is no store"))
}

/// Whether what stands before the '@' of a URL is a user. It may be a password that was put there: it is not shown.
fn has_user_only(url: &str) -> bool {
    // Of a quorum each node has one.
    let authorities = url.split("://").skip(1).filter_map(|rest| rest.split(['/', '?', '#']).next());
    let users = || authorities.clone().filter_map(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    let is_alone = |user: &str| !user.is_empty() && !user.contains(':');
    users().count() > 0 && users().all(is_alone) && !url.contains("password=")
}

/// Connects to the store that was said.
pub(crate) async fn connect(said: &said::Store) -> Result<Leasehold, Failure> {
    let location = Location::of(said)?;
    if let Some(notice) = location.notice().filter(|_| !said.quiet) {
        show::warn(&notice);
    }
    Ok(Leasehold::builder(&location.url).one_connection().connect().await?)
}

/// Who runs this. Not by the environment: it is the same in cron, under sudo and on a terminal.
pub(crate) fn user() -> String {
    let uid = geteuid();
    let known = User::from_uid(uid).ok().flatten();
    known.map_or_else(|| format!("uid{uid}"), |user| user.name)
}

/// Where it runs.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Location, Failure> {
        Location::of(&said::Store { url: Some(url.to_owned()), quiet: true })
    }

    #[test]
    fn passwords_are_seen() {
        for url in [
            "redis://:hunter2@host",
            "redis://me:hunter2@host:1/2?prefix=a",
            "redis://hunter2@host",
            "redis://:hun/ter2@host",
            "redis://:hun?ter2@host",
            "redis://hunter2@host",
            "redis://me:hunter2@host?password_env=A",
            ":hunter2@host",
            "quorum:?node=redis://a&node=redis://b&node=redis://:hunter2@c",
            "quorum:?node=redis://a&node=redis://b&node=redis%3A%2F%2F%3Ahunter2%40c",
            "quorum:?node=redis://a&node=redis://b&node=redis%3a//u%3ahunter2%40c",
            "quorum:?node=redis://me@a?password_file=/x&node=redis://b&node=redis://:hunter2@c",
            "quorum:?node=redis://a?password=hunter2&node=redis://b&node=redis://c",
            "quorum:?node=redis://a?password%3Dhunter2&node=redis://b&node=redis://c",
            // One that is not right has a password all the same.
            "quorum:?node=redis://:hunter2@a",
            "quorum:?node=redis%3A%2F%2F%3Ahunter2%40a&speed=1",
            "quorum://:hunter2@a",
        ] {
            let refused = of(url).unwrap_err().to_string();
            assert!(!refused.contains("hunter2") && refused.contains(VARIABLE), "{refused}");
            assert_eq!(refused.contains("user without a password"), url == "redis://hunter2@host", "{refused}");
        }
        for url in
            ["quorum:?node=redis://me@a&node=redis://b&node=redis://c", "quorum:?node=redis://b&node=redis://me@a"]
        {
            assert!(of(url).unwrap_err().to_string().contains("user without a password"), "{url}");
        }
        for url in [
            "redis://host",
            "redis://me@host?password_env=A",
            "redis://host?password_file=/a",
            "file:/a@b",
            "quorum:?node=redis://a&node=redis://me@b?password_env=A&node=redis%3A%2F%2Fc%3Fpassword_file%3D%2Fa",
        ] {
            assert_eq!(of(url).unwrap().url, url);
        }
    }

    #[test]
    fn what_is_no_store_is_named_and_the_rest_is_not() {
        for (url, named) in [
            ("http://host/hunter", "\"http:\" is no store"),
            ("reddis://hunter", "\"reddis:\" is no store"),
            ("hunter", "what the URL begins with is no store"),
            ("", "the URL is empty: give redis://HOST"),
            ("hunter:6379", "what the URL begins with is no store"),
            ("hunTer://host", "what the URL begins with is no store"),
            ("hunter2://host", "what the URL begins with is no store"),
        ] {
            let refused = of(url).unwrap_err();
            let said = refused.to_string();
            assert!(said.starts_with(named) && refused.exit == crate::exit::Exit::Usage, "{url:?}: {said}");
            assert!(!said.contains("hunter") && !said.contains("memory") && said.contains("redis://HOST"), "{said}");
        }
        for scheme in SCHEMES.iter().filter(|scheme| **scheme != "memory") {
            assert!(of(&format!("{scheme}:/a")).is_ok(), "{scheme}: the library has words for it");
        }
    }

    #[test]
    fn other_programs_inherit_no_variable_that_the_url_names() {
        let location = of("redis://me@host?password_env=REDIS_PASSWORD").unwrap();
        assert!(location.secrets.contains(&"REDIS_PASSWORD".to_owned()));
        let quorum = of("quorum:?node=redis://a?password_env=A&node=redis://b?password_env=B&node=redis://c").unwrap();
        assert!(["A", "B"].iter().all(|name| quorum.secrets.contains(&(*name).to_owned())));
        assert!(!format!("{location:?}").contains("host"));
        assert_eq!(location.notice(), None);
    }

    #[test]
    fn the_command_inherits_the_store_or_words() {
        let inherited = |url| of(url).unwrap().inherited().map(str::to_owned);
        for url in ["redis://host?prefix=a", "redis://me@host?password_file=/a", "file:/a@b", "quorum:?node=a"] {
            assert_eq!(inherited(url).as_deref(), Some(url));
        }
        for url in
            ["redis://host?password_env=A", "quorum:?node=redis://a&node=redis://b&node=redis://c?password_env=A"]
        {
            assert_eq!(inherited(url).as_deref(), Some(WITHHELD));
        }
        assert!(of(WITHHELD).unwrap_err().to_string().contains("?password_file=/PATH"));
    }
}
