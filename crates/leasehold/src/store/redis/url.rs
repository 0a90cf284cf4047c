//! What a `redis://` URL says. Its errors say what to do, and never repeat a secret.

use std::fmt;

use ::url::{Host, Url};

use crate::error::Error;
use crate::store::Scheme;
use crate::world::Address;

const PORT: u16 = 6379;
/// Bytes in a prefix: with the longest name the key stays within what people can read.
const PREFIX_MAX: usize = 128;

/// Where to connect, as whom, and which part of the store is ours. It has a password in it: no `Debug`.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) db: i64,
    pub(crate) prefix: String,
}

impl Target {
    /// Reads `redis://[[user]:password@]host[:port][/db][?prefix=app:]`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if Scheme::of(text)?.0 != Scheme::Redis {
            return Err(Error::invalid(format!("this has to be a Redis: {EXAMPLE}")));
        }
        // The parser's own words are kept, the URL is not: it may have a password in it.
        let url = Url::parse(text).map_err(|error| Error::invalid(format!("not a URL ({error}): {EXAMPLE}")))?;
        let host = match url.host() {
            Some(Host::Domain(host)) if !host.is_empty() => decode(host, "host")?,
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            _ => return Err(Error::invalid(format!("the URL names no host: {EXAMPLE}"))),
        };
        if url.fragment().is_some() {
            return Err(Error::invalid("the URL has a fragment: write a '#' in a password as %23"));
        }
        let user = Some(url.username()).filter(|user| !user.is_empty()).map(|user| decode(user, "user")).transpose()?;
        let password = url.password().map(|password| decode(password, "password")).transpose()?;
        if user.is_some() && password.is_none() {
            return Err(Error::invalid("the URL has a user without a password: redis://:PASSWORD@host has no user"));
        }
        let address = Address { host, port: url.port().unwrap_or(PORT) };
        Ok(Self { address, user, password, db: db(url.path())?, prefix: prefix(&url)? })
    }

    /// The same, below a prefix that the program gives.
    pub(crate) fn below(mut self, prefix: &str) -> Result<Self, Error> {
        if !self.prefix.is_empty() {
            return Err(Error::invalid("the URL and the program both give a prefix: keep one of them"));
        }
        self.prefix = check_prefix(prefix.to_owned())?;
        Ok(self)
    }
}

const EXAMPLE: &str = "use redis://HOST:PORT, for example redis://127.0.0.1:6379";

fn db(path: &str) -> Result<i64, Error> {
    match path.trim_start_matches('/') {
        "" => Ok(0),
        digits => digits
            .parse()
            .ok()
            .filter(|db| (0..=i64::from(u16::MAX)).contains(db))
            .ok_or_else(|| Error::invalid("the URL's path is not a database number: use redis://HOST:PORT/0")),
    }
}

fn prefix(url: &Url) -> Result<String, Error> {
    let mut prefix = None;
    for (key, value) in url.query_pairs() {
        match &*key {
            "prefix" if prefix.is_some() => {
                return Err(Error::invalid("the URL gives two prefixes: keep one of them"));
            }
            "prefix" => prefix = Some(value.into_owned()),
            "password" | "user" | "username" => {
                return Err(Error::invalid("a URL's credentials go before the host: redis://user:password@host"));
            }
            // The key alone: what somebody puts into a value may be a secret.
            other => return Err(Error::invalid(format!("unknown parameter {other:?} in the URL: there is 'prefix'"))),
        }
    }
    check_prefix(prefix.unwrap_or_default())
}

fn check_prefix(prefix: String) -> Result<String, Error> {
    // A brace would make the prefix the hash tag, and names would no longer have slots of their own.
    match prefix.chars().find(|c| c.is_control() || ['{', '}'].contains(c)) {
        Some(_) => Err(Error::invalid("the prefix has a brace or a control character: use text like 'app:'")),
        None if prefix.len() > PREFIX_MAX => {
            Err(Error::invalid(format!("the prefix has {} bytes: use at most {PREFIX_MAX}", prefix.len())))
        }
        None => Ok(prefix),
    }
}

/// Takes `%XX` apart.
fn decode(text: &str, what: &str) -> Result<String, Error> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let code = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match code {
            Some((high, low)) => bytes.push(high * 16 + low),
            None => bytes.push(first),
        }
        rest = &tail[if code.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid(format!("the {what} in the URL is not UTF-8")))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn all_parts() {
        let target = Target::parse("redis://me:p%40ss%23@[::1]:7000/3?prefix=app%3A").unwrap();
        assert_eq!(target.address, Address { host: "::1".into(), port: 7000 });
        assert_eq!((target.user.as_deref(), target.password.as_deref()), (Some("me"), Some("p@ss#")));
        assert_eq!((target.db, target.prefix.as_str()), (3, "app:"));
        let short = Target::parse("redis://:secret@redis.example").unwrap();
        assert_eq!((short.user, short.password.as_deref(), short.db), (None, Some("secret"), 0));
        assert_eq!(short.address.to_string(), "redis.example:6379");
    }

    #[test]
    fn refusals_say_what_to_do_and_no_secret() {
        let wrong = [
            "",
            "hunter2",
            "redis://",
            "redis://me@host",
            "redis://:hunter2@host/x",
            "redis://:hunter2@host/-1",
            "redis://:hunter2@host:99999",
            "redis://:hunter2@host#x",
            "redis://host?password=hunter2",
            "redis://host?speed=hunter2",
            "redis://host?prefix=%7Bhunter2",
            "redis://host?prefix=hunter2&prefix=hunter2",
            "redis://:%ff@host",
            "memory:hunter2",
            "rediss://:hunter2@host",
        ];
        for url in wrong {
            let Err(error) = Target::parse(url) else { panic!("{url} was accepted") };
            assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported), "{url}: {error}");
            assert!(!format!("{error:?}{error}").contains("hunter2"), "{url}: {error}");
        }
    }
}
