//! The store that the user named, and the secrets in its URL.

use std::env;
use std::ffi::OsStr;
use std::fmt;

use leasehold::seam::Secrets;
use leasehold::{ErrorKind, Leasehold};
use nix::unistd::{User, geteuid};

use crate::args;
use crate::exit::Failure;

pub(crate) const VARIABLE: &str = "LEASEHOLD_STORE";
/// The variables that may hold a password, or its place. The variables that a URL names come in addition.
const SECRETS: [&str; 3] = [VARIABLE, "LEASEHOLD_PASSWORD", "LEASEHOLD_PASSWORD_FILE"];

/// The schemes that the library knows: those of stores, and those for which it has an error message of their own.
const SCHEMES: [&str; 9] =
    ["redis", "rediss", "file", "memory", "redis+sentinel", "redis+cluster", "redis+unix", "unix", "quorum"];

/// Replaces a URL that the command of a `run` must not see. If the variable were unset instead, a `leasehold` in that
/// command would use the default store of this host, where every lock of the other store is free.
const WITHHELD: &str = "withheld:";

const USE: &str = "use redis://HOST:PORT, rediss://HOST:PORT for TLS, quorum:?node=... for several servers, or \
                   file:/PATH for this host only";

/// A store.
pub(crate) struct Location {
    /// The URL. It may have a password in it: it is never shown.
    pub(crate) url: String,
    /// The variables that no other program inherits.
    pub(crate) secrets: Vec<String>,
    source: Source,
}

/// Where the URL comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Option,
    Variable,
    /// The user named no store: it is the default store of this user on this host.
    Default,
}

impl Source {
    /// Returns the error for a URL of this source.
    fn invalid(self, why: impl fmt::Display) -> Failure {
        match self {
            Self::Option => Failure::usage(format!("invalid --store: {why}")),
            Self::Variable => Failure::usage(format!("invalid {VARIABLE}: {why}")),
            Self::Default => Failure::usage(why.to_string()),
        }
    }
}

// By hand: the URL may hold a password.
impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Location").field("secrets", &self.secrets).field("source", &self.source).finish_non_exhaustive()
    }
}

impl Location {
    /// Returns the store of the option, or else that of the environment, or else the default store of this host.
    ///
    /// # Errors
    /// If the URL is invalid. The message names its source and does not repeat the URL.
    pub(crate) fn of(args: &args::Store) -> Result<Self, Failure> {
        Self::find(args.url.as_deref(), env::var_os(VARIABLE).as_deref())
    }

    fn find(option: Option<&str>, variable: Option<&OsStr>) -> Result<Self, Failure> {
        let (url, source) = match (option, variable) {
            (Some(url), _) => (url.to_owned(), Source::Option),
            (None, Some(url)) => match url.to_str() {
                // An empty variable does not mean the default store: the user who set it meant another one.
                Some("") => return Err(Source::Variable.invalid("the URL is empty: unset it, or set it to a URL")),
                Some(url) => (url.to_owned(), Source::Variable),
                None => return Err(Source::Variable.invalid("the URL is not valid UTF-8")),
            },
            (None, None) => (leasehold::file::default_url()?, Source::Default),
        };
        if let Some(why) = (source == Source::Option).then(|| exposed(&url)).flatten().or_else(|| refused(&url)) {
            return Err(source.invalid(why));
        }
        // Parses the URL, and does no I/O.
        leasehold::seam::default_lease(&url).map_err(|error| match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => source.invalid(error),
            _ => error.into(),
        })?;
        let secrets = SECRETS.map(str::to_owned).into_iter().chain(Secrets::of(&url).variables).collect();
        Ok(Self { url, secrets, source })
    }

    /// Returns whether this is a quorum.
    pub(crate) fn is_quorum(&self) -> bool {
        scheme(&self.url).is_some_and(|scheme| scheme.eq_ignore_ascii_case("quorum"))
    }

    /// Returns the URL for messages, or other words if the URL has a password.
    pub(crate) fn shown(&self) -> &str {
        match Secrets::of(&self.url).in_url {
            true => "the store",
            false => &self.url,
        }
    }

    /// Returns `LEASEHOLD_STORE` for the command of a `run`: the URL of the same store, or `WITHHELD`. It is `None` for
    /// the default store, which the command finds without the variable.
    pub(crate) fn inherited(&self) -> Option<&str> {
        let secrets = Secrets::of(&self.url);
        match self.source {
            Source::Default => None,
            _ if secrets.in_url || !secrets.variables.is_empty() => Some(WITHHELD),
            _ => Some(&self.url),
        }
    }

    /// Returns the notice for a user who named no store: other machines and other users have other locks.
    pub(crate) fn notice(&self) -> Option<String> {
        let notice = || format!("this lock excludes only programs of {} on {}", user(), host());
        (self.source == Source::Default).then(notice)
    }
}

/// Returns what is wrong with a URL of the command line that has a password, or only a user.
fn exposed(url: &str) -> Option<String> {
    let why = match Secrets::of(url).in_url {
        false => return None,
        true if has_user_only(url) => "the URL has a user without a password",
        true => "every user of this machine can read a password on the command line",
    };
    Some(format!(
        "{why}: use ?password_file=/PATH or ?password_env=NAME, or put the URL into the environment variable {VARIABLE}"
    ))
}

/// Returns what is wrong with a URL that the library may accept, and the command does not.
fn refused(url: &str) -> Option<String> {
    if url == WITHHELD {
        return Some(
            "the URL has a password, which `leasehold run` does not pass on to its command: use --store with \
             ?password_file=/PATH"
                .to_owned(),
        );
    }
    if scheme(url).is_some_and(|scheme| scheme.eq_ignore_ascii_case("memory")) {
        return Some(
            "memory: exists only inside each program, and locks out no other program: use file:/PATH or redis://HOST"
                .to_owned(),
        );
    }
    if url.is_empty() {
        return Some(format!("the URL is empty: {USE}"));
    }
    if is_host_and_port(url) {
        return Some(
            "unknown store type in the URL: if this is HOST:PORT, put redis:// in front of it, as in redis://HOST:PORT"
                .to_owned(),
        );
    }
    let scheme = scheme(url);
    if scheme.is_some_and(|scheme| SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme))) {
        return None;
    }
    // A URL may be something else, such as PASSWORD@HOST: only what is surely a scheme is repeated.
    let is_word = |scheme: &&str| scheme.len() <= 16 && scheme.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_plain = |scheme: &&str| scheme.chars().all(|c| c.is_ascii_lowercase() || "+-".contains(c));
    let named = url.split_once("://").map(|(scheme, _)| scheme).filter(is_word).filter(is_plain);
    let named = named.map_or_else(String::new, |scheme| format!(" \"{scheme}:\""));
    Some(format!("unknown store type{named} in the URL: {USE}"))
}

fn scheme(url: &str) -> Option<&str> {
    url.split_once(':').map(|(scheme, _)| scheme)
}

/// Returns whether a URL looks like `HOST:PORT`. The host may have the name of a scheme, as in `redis:6379`.
fn is_host_and_port(url: &str) -> bool {
    let Some((host, port)) = url.rsplit_once(':') else { return false };
    let is_path = ["file", "quorum"].iter().any(|scheme| scheme.eq_ignore_ascii_case(host));
    let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_[]:".contains(c));
    is_host && !is_path && !port.starts_with('+') && port.parse::<u16>().is_ok()
}

/// Returns whether the part before the `@` of a URL is only a user. It may also be a misplaced password: it is not shown.
fn has_user_only(url: &str) -> bool {
    // Each node of a quorum has its own.
    let authorities = url.split("://").skip(1).filter_map(|rest| rest.split(['/', '?', '#']).next());
    let users = || authorities.clone().filter_map(|authority| authority.rsplit_once('@')).map(|(user, _)| user);
    let is_alone = |user: &str| !user.is_empty() && !user.contains(':');
    users().count() > 0 && users().all(is_alone) && !url.contains("password=")
}

/// Connects to the store that the user named.
pub(crate) async fn connect(args: &args::Store) -> Result<Leasehold, Failure> {
    connect_to(&Location::of(args)?).await
}

/// Connects to this store.
pub(crate) async fn connect_to(location: &Location) -> Result<Leasehold, Failure> {
    Ok(Leasehold::builder(&location.url).one_connection().connect().await?)
}

/// Returns the name of the user. It does not come from the environment, and so is the same in cron, under sudo and on a
/// terminal.
pub(crate) fn user() -> String {
    let uid = geteuid();
    let known = User::from_uid(uid).ok().flatten();
    known.map_or_else(|| format!("uid{uid}"), |user| user.name)
}

/// Returns the name of the host.
pub(crate) fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str) -> Result<Location, Failure> {
        Location::find(Some(url), None)
    }

    #[test]
    fn passwords_are_found() {
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
            // An invalid URL may have a password, too.
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
    fn an_unknown_scheme_is_shown_and_the_rest_of_the_url_is_not() {
        for (url, named) in [
            ("http://host/hunter", "unknown store type \"http:\" in the URL: use redis://HOST"),
            ("reddis://hunter", "unknown store type \"reddis:\" in the URL: use redis://HOST"),
            ("hunter", "unknown store type in the URL: use redis://HOST"),
            ("", "the URL is empty: use redis://HOST"),
            ("hunter:6379", "unknown store type in the URL: if this is HOST:PORT, put redis:// in front"),
            ("hunter:99999", "unknown store type in the URL: use redis://HOST"),
            ("hunTer://host", "unknown store type in the URL: use redis://HOST"),
            ("hunter2://host", "unknown store type in the URL: use redis://HOST"),
        ] {
            let refused = of(url).unwrap_err();
            let message = refused.to_string();
            let named = format!("invalid --store: {named}");
            assert!(message.starts_with(&named) && refused.exit == crate::exit::Exit::Usage, "{url:?}: {message}");
            assert!(
                !message.contains("hunter") && !message.contains("memory") && message.contains("redis://HOST"),
                "{message}"
            );
        }
        for scheme in SCHEMES.iter().filter(|scheme| **scheme != "memory") {
            assert_eq!(refused(&format!("{scheme}:/a")), None, "{scheme}: the library has a message for it");
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
    fn the_command_inherits_the_url_or_a_placeholder() {
        let inherited = |url| of(url).unwrap().inherited().map(str::to_owned);
        for url in [
            "redis://host?prefix=a",
            "redis://me@host?password_file=/a",
            "file:/a@b",
            "quorum:?node=redis://a&node=redis://b&node=redis://c",
        ] {
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
