//! The schemes of store URLs: the only table of the supported and the planned ones.

use crate::error::{Error, ErrorKind};

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// `file:`
    File,
    /// `memory:`
    Memory,
    /// `quorum:`
    Quorum,
    /// `redis:`
    Redis,
    /// `rediss:`
    RedisTls,
}

const THERE_IS: &str = "use redis://HOST:PORT (for example redis://127.0.0.1:6379), rediss:// for TLS, quorum: for \
                        several servers, file:/PATH for one host, memory: or memory:NAME";

impl Scheme {
    /// Returns the kind of store that a URL names, and the part of the URL after the colon.
    ///
    /// An error never repeats a part of the URL that is not in the table: in `PASSWORD@HOST:PORT` the scheme is the
    /// password.
    pub(crate) fn of(url: &str) -> Result<(Self, &str), Error> {
        let unknown = || match url.is_empty() {
            // Usually an environment variable is not set.
            true => Error::invalid(format!("the URL is empty: {THERE_IS}")),
            false => Error::invalid(format!("unknown store type in the URL: {THERE_IS}")),
        };
        let (scheme, rest) = url.split_once(':').ok_or_else(unknown)?;
        let instead = match scheme.to_ascii_lowercase().as_str() {
            "file" => return Ok((Self::File, rest)),
            "memory" => return Ok((Self::Memory, rest)),
            "quorum" => return Ok((Self::Quorum, rest)),
            "redis" => return Ok((Self::Redis, rest)),
            "rediss" => return Ok((Self::RedisTls, rest)),
            "redis+sentinel" => {
                "redis+sentinel: is planned but not supported yet: use redis: with the address of the primary"
            }
            "redis+cluster" => {
                "redis+cluster: is planned but not supported yet: use redis: with the address of a single primary"
            }
            "unix" | "redis+unix" => "Unix sockets are not supported: use redis://HOST:PORT",
            _ => return Err(unknown()),
        };
        Err(Error::new(ErrorKind::Unsupported, instead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supported_schemes() {
        assert_eq!(Scheme::of("memory:").unwrap(), (Scheme::Memory, ""));
        assert_eq!(Scheme::of("memory:app:1").unwrap(), (Scheme::Memory, "app:1"));
        assert_eq!(Scheme::of("REDIS://host").unwrap(), (Scheme::Redis, "//host"));
        assert_eq!(Scheme::of("Quorum:?node=a").unwrap(), (Scheme::Quorum, "?node=a"));
        assert_eq!(Scheme::of("Rediss://host").unwrap(), (Scheme::RedisTls, "//host"));
    }

    #[test]
    fn planned_schemes_name_an_alternative() {
        for scheme in ["redis+sentinel", "redis+cluster", "redis+unix", "unix"] {
            let error = Scheme::of(&format!("{scheme}://:hunter2@host")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{scheme}");
            assert!(error.to_string().contains("use ") || error.to_string().contains("name "), "{error}");
            assert!(!format!("{error:?}").contains("hunter2"));
        }
    }

    #[test]
    fn an_unknown_scheme_is_not_repeated() {
        for url in
            ["", "memory", "redis", "hunter2", "hunter2@host:6379", ":hunter2", "http://:hunter2@host", " redis:"]
        {
            let error = Scheme::of(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains("unknown store type") || url.is_empty(), "{error}");
            assert!(error.to_string().contains("redis://") && !format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
