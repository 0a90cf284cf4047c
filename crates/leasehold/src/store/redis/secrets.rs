//! What of a URL is a secret: for programs that show a URL, take one from a command line, or start others.

use super::papers::Password;
use super::url::Target;

/// Where a store's URL has its secrets. What the URL is of is not judged: one that nobody understands may have one in it.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Secrets {
    /// Whether the URL itself must be seen by nobody.
    pub in_url: bool,
    /// The variables of the environment that the URL names, and that a child has no use for.
    pub variables: Vec<String>,
}

impl Secrets {
    /// Looks at a URL. No I/O.
    #[must_use]
    pub fn of(url: &str) -> Self {
        let (in_url, variable) = match Target::parse(url).map(|target| target.password) {
            Ok(None | Some(Password::File(_))) => (false, None),
            Ok(Some(Password::Given(_))) => (true, None),
            Ok(Some(Password::Variable(name))) => (false, Some(name)),
            // Whoever forgot a part of it has not forgotten the password.
            Err(_) => (url.contains('@') || url.contains("password="), None),
        };
        Self { in_url, variables: variable.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_url_has_its_secrets() {
        for (url, in_url, variables) in [
            ("redis://host", false, &[][..]),
            ("redis://me@host?password_file=/run/secrets/redis", false, &[]),
            ("redis://me@host?password_env=REDIS_PASSWORD", false, &["REDIS_PASSWORD"]),
            ("redis://:hunter2@host", true, &[]),
            // What cannot be understood.
            ("redis://hunter2@host", true, &[]),
            ("redis://:hunter2@host?password_env=A", true, &[]),
            ("redis://host?password=hunter2", true, &[]),
            ("hunter2@host:6379", true, &[]),
            ("quorum:?node=redis://:hunter2@host", true, &[]),
            ("127.0.0.1:6379", false, &[]),
            ("memory:a", false, &[]),
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
