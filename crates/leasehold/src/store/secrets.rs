//! Finds secrets in a URL: for programs that show a URL, take one from a command line, or start other programs.

use super::quorum::url::QuorumUrl;
use super::redis::named::Password;
use super::redis::url::Target;
use super::scheme::Scheme;

/// The secrets in the URL of a store. An invalid URL may also contain a secret.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Secrets {
    /// Whether the URL itself contains a secret.
    pub in_url: bool,
    /// The environment variables that the URL names. A child process does not need them.
    pub variables: Vec<String>,
}

impl Secrets {
    /// Reads a URL. No I/O.
    #[must_use]
    pub fn of(url: &str) -> Self {
        let targets = match Scheme::of(url) {
            // A path and a name may contain any character, but never a password.
            Ok((Scheme::File | Scheme::Memory, _)) => return Self { in_url: false, variables: vec![] },
            Ok((Scheme::Quorum, rest)) => QuorumUrl::parse(rest).map(|url| url.nodes),
            Ok((Scheme::Redis | Scheme::RedisTls, _)) | Err(_) => Target::parse(url).map(|target| vec![target]),
        };
        // An incomplete URL may still contain the password. Inside another URL, its characters may be encoded.
        let Ok(targets) = targets else {
            let plain = url.replace("%40", "@").replace("%3D", "=").replace("%3d", "=");
            return Self { in_url: plain.contains('@') || plain.contains("password="), variables: vec![] };
        };
        let mut secrets = Self { in_url: false, variables: vec![] };
        for password in targets.into_iter().filter_map(|target| target.password) {
            match password {
                Password::File(_) => {}
                Password::Given(_) => secrets.in_url = true,
                Password::Variable(name) => secrets.variables.push(name),
            }
        }
        secrets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found() {
        for (url, in_url, variables) in [
            ("redis://host", false, &[][..]),
            ("redis://me@host?password_file=/run/secrets/redis", false, &[]),
            ("redis://me@host?password_env=REDIS_PASSWORD", false, &["REDIS_PASSWORD"]),
            ("redis://:hunter2@host", true, &[]),
            // URLs that cannot be parsed.
            ("redis://hunter2@host", true, &[]),
            ("redis://:hunter2@host?password_env=A", true, &[]),
            ("redis://host?password=hunter2", true, &[]),
            ("hunter2@host:6379", true, &[]),
            ("quorum:?node=redis://:hunter2@host", true, &[]),
            ("quorum:?node=redis%3A%2F%2F%3Ahunter2%40host", true, &[]),
            ("quorum:?node=redis://a&node=redis://b&node=redis://c", false, &[]),
            ("quorum:?node=redis://a&node=redis://b&node=redis://:hunter2@c", true, &[]),
            ("QUORUM:?node=redis%3A%2F%2Fu%3Ahunter2%40a&node=redis://b&node=redis://c", true, &[]),
            (
                "quorum:?node=redis://a?password_env=A&node=redis://me@b?password_env=B&node=redis://c?password_file=/",
                false,
                &["A", "B"],
            ),
            ("quorum:?node=redis://a&node=redis://b&node=redis://c?password%3Dhunter2", true, &[]),
            ("127.0.0.1:6379", false, &[]),
            ("memory:a@b", false, &[]),
            ("file:/home/me@corp.example/locks", false, &[]),
        ] {
            let secrets = Secrets::of(url);
            assert_eq!(
                (secrets.in_url, &secrets.variables[..]),
                (in_url, &variables.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>()[..]),
                "{url}"
            );
        }
    }
}
