//! Which store, and what of it nobody else is to see.

use url::Url;

/// A store.
pub(crate) struct Location {
    /// May have a password in it: never shown.
    pub(crate) url: String,
    /// The variables that the command does not inherit.
    pub(crate) secrets: Vec<String>,
    pub(crate) whose: Whose,
}

/// Whether anybody named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Named,
    /// This host's own, of this user.
    Hosts,
}

// By hand: the URL may hold a password.
impl std::fmt::Debug for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Location").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

const STORE: &str = "LEASEHOLD_STORE";
/// What may hold a password, or say where one is.
const SECRETS: [&str; 3] = [STORE, "LEASEHOLD_PASSWORD", "LEASEHOLD_PASSWORD_FILE"];

/// # Errors
/// What is wrong with it, without repeating it.
pub(crate) fn locate(said: Option<String>) -> Result<Location, String> {
    if said.as_deref().is_some_and(has_password) {
        return Err("a password is not taken from the command line, where everybody on this machine can read it: \
                    put the URL into the environment variable LEASEHOLD_STORE, or the password into a file that it \
                    names (?password_file=/PATH)"
            .into());
    }
    let set = || std::env::var(STORE).ok().filter(|url| !url.is_empty());
    let named = said.or_else(set);
    let whose = if named.is_some() { Whose::Named } else { Whose::Hosts };
    let url = named.map_or_else(|| leasehold::file::default_url().map_err(|error| error.to_string()), Ok)?;
    if url.get(.."memory:".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("memory:")) {
        return Err("memory: is inside of each program, and locks nobody else out: give a redis://HOST".into());
    }
    let mut secrets: Vec<String> = SECRETS.map(str::to_owned).into();
    secrets.extend(password_variables(&url));
    Ok(Location { url, secrets, whose })
}

/// Whether there is a password in it, or what may be one: many a user writes it where the user's name belongs.
fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or(authority);
    // A password can have any of those in it where its writer forgot to encode them.
    let user = match authority.rsplit_once('@').or_else(|| url.rsplit_once('@')) {
        None => return false,
        Some((user, _)) => user,
    };
    user.contains(':') || password_of(url).is_none()
}

/// Where the URL says that its password is.
fn password_of(url: &str) -> Option<()> {
    let url = Url::parse(url).ok()?;
    url.query_pairs().find(|(key, _)| key == "password_file" || key == "password_env").map(drop)
}

/// The variables that the URL names as its password's.
fn password_variables(url: &str) -> Vec<String> {
    let Ok(url) = Url::parse(url) else { return Vec::new() };
    url.query_pairs().filter(|(key, _)| key == "password_env").map(|(_, name)| name.into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(has_password(url), "{url}");
            let refused = locate(Some(url.into())).unwrap_err();
            assert!(!refused.contains("hunter2") && refused.contains(STORE), "{refused}");
        }
        for url in ["redis://host", "redis://me@host?password_env=A", "redis://host?password_file=/a", "file:/a/b"] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn the_command_inherits_no_variable_that_the_url_names() {
        let location = locate(Some("redis://me@host?password_env=REDIS_PASSWORD".into())).unwrap();
        assert!(location.secrets.contains(&"REDIS_PASSWORD".to_owned()));
        assert!(!format!("{location:?}").contains("host"));
    }
}
