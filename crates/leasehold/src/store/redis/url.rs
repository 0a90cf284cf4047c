//! Reads `redis://` and `rediss://` URLs. Errors say what to do, and never repeat a secret.

use std::fmt;
use std::path::PathBuf;

use ::url::{Host, Url};

use super::named::{Identity, Password, Tls};
use super::tls;
use crate::error::Error;
use crate::store::scheme::Scheme;
use crate::world::Address;

const PORT: u16 = 6379;
/// The longest prefix in bytes: with the longest name, a key is still readable.
const PREFIX_MAX: usize = 128;

/// The server, the user, and the prefix of our keys. There is no `Debug`, because it may contain a password.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Password>,
    pub(crate) db: i64,
    pub(crate) prefix: String,
    /// `None` for `redis:`.
    pub(crate) tls: Option<Tls>,
}

impl Target {
    /// Reads `redis[s]://[[user]:password@]host[:port][/db][?prefix=app:&…]`: see `Parameters`.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let is_tls = match Scheme::of(text)?.0 {
            Scheme::Redis => false,
            Scheme::RedisTls => true,
            Scheme::File | Scheme::Memory | Scheme::Quorum => {
                return Err(Error::invalid(format!("expected a Redis: {EXAMPLE}")));
            }
        };
        // The message of the parser, but not the URL, which may contain a password.
        let url = Url::parse(text).map_err(|error| Error::invalid(format!("invalid URL ({error}): {EXAMPLE}")))?;
        let host = match url.host() {
            Some(Host::Domain(host)) if !host.is_empty() => decode(host, "host")?,
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            _ => return Err(Error::invalid(format!("the URL has no host: {EXAMPLE}"))),
        };
        if url.fragment().is_some() {
            return Err(Error::invalid("the URL has a fragment: write a '#' in a password as %23"));
        }
        let said = Parameters::of(&url)?;
        let user = Some(url.username()).filter(|user| !user.is_empty()).map(|user| decode(user, "user")).transpose()?;
        let password = password(&url, &said)?;
        if user.is_some() && password.is_none() {
            return Err(Error::invalid(
                "the URL has a user but no password: add ?password_file=/path or ?password_env=NAME; without a user \
                 the form is redis://:PASSWORD@host",
            ));
        }
        let tls = if is_tls { Some(said.tls()?) } else { said.no_tls()? };
        if tls.is_some() {
            tls::check(&host)?;
        }
        let address = Address { host, port: url.port().unwrap_or(PORT) };
        let prefix = check_prefix(said.prefix.unwrap_or_default())?;
        Ok(Self { address, user, password, db: db(url.path())?, prefix, tls })
    }

    /// Returns the same target with a prefix that the program sets.
    pub(crate) fn below(mut self, prefix: &str) -> Result<Self, Error> {
        if !self.prefix.is_empty() {
            return Err(Error::invalid("the URL and the program both set a prefix: keep one of them"));
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
            .ok_or_else(|| Error::invalid("the path of the URL is not a database number: use redis://HOST:PORT/0")),
    }
}

fn password(url: &Url, said: &Parameters) -> Result<Option<Password>, Error> {
    let given = url.password().map(|password| decode(password, "password")).transpose()?.map(Password::Given);
    let file = said.password_file.as_deref().map(|path| absolute("password_file", path)).transpose()?;
    let variable = said.password_env.as_deref().map(variable).transpose()?;
    let mut ways = [given, file.map(Password::File), variable.map(Password::Variable)].into_iter().flatten();
    match (ways.next(), ways.next()) {
        (password, None) => Ok(password),
        (_, Some(_)) => Err(Error::invalid(
            "the URL gives the password more than once: keep one of password, password_file and password_env",
        )),
    }
}

/// The parameters after the question mark, each at most once.
#[derive(Default)]
struct Parameters {
    /// The prefix of the keys of a tenant.
    prefix: Option<String>,
    /// PEM files: the trusted authorities; our certificate, and its key.
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    /// Where the password is.
    password_file: Option<String>,
    password_env: Option<String>,
}

/// The names of the parameters.
pub(crate) const NAMES: &str = "prefix, password_file, password_env, and for rediss: ca, cert, key";

impl Parameters {
    fn of(url: &Url) -> Result<Self, Error> {
        let mut said = Self::default();
        // `redis://me:1234?secret@host`: the text after the question mark is the rest of a password.
        if url.query().is_some_and(|query| query.contains('@')) {
            return Err(Error::invalid(
                "the URL has an '@' after a '?': in a password write %3F for '?' and %40 for '@'",
            ));
        }
        for (name, value) in url.query_pairs() {
            let place = said.place(&name)?;
            if place.is_some() {
                return Err(Error::invalid(format!("the URL has {name:?} twice: keep one of them")));
            }
            *place = Some(value.into_owned());
        }
        Ok(said)
    }

    fn place(&mut self, name: &str) -> Result<&mut Option<String>, Error> {
        Ok(match name {
            "prefix" => &mut self.prefix,
            "ca" => &mut self.ca,
            "cert" => &mut self.cert,
            "key" => &mut self.key,
            "password_file" => &mut self.password_file,
            "password_env" => &mut self.password_env,
            "password" | "user" | "username" => {
                return Err(Error::invalid(
                    "user and password come before the host (redis://user:password@host), or use ?password_file=/path \
                     or ?password_env=NAME",
                ));
            }
            // Only the name: the value may be a secret.
            other => return Err(Error::invalid(format!("unknown parameter {other:?} in the URL: valid are {NAMES}"))),
        })
    }

    fn tls(&self) -> Result<Tls, Error> {
        let path = |name, path: &Option<String>| path.as_deref().map(|path| absolute(name, path)).transpose();
        let identity = match (path("cert", &self.cert)?, path("key", &self.key)?) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => {
                return Err(Error::invalid("cert and key belong together: give both files"));
            }
        };
        Ok(Tls { ca: path("ca", &self.ca)?, identity })
    }

    fn no_tls(&self) -> Result<Option<Tls>, Error> {
        match (&self.ca, &self.cert, &self.key) {
            (None, None, None) => Ok(None),
            _ => Err(Error::invalid("ca, cert and key need TLS: use rediss: instead of redis:")),
        }
    }
}

/// Checks that a path means the same file in every working directory.
fn absolute(name: &str, path: &str) -> Result<PathBuf, Error> {
    match PathBuf::from(path) {
        path if path.is_absolute() => Ok(path),
        _ => Err(Error::invalid(format!("{name} in the URL is not an absolute path: it must begin with '/'"))),
    }
}

/// Checks the name of a variable. An invalid name may be the password itself, so the error does not repeat it.
fn variable(name: &str) -> Result<String, Error> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(is_plain) {
        true => Ok(name.to_owned()),
        false => {
            Err(Error::invalid("password_env in the URL is not a valid variable name: use a name like REDIS_PASSWORD"))
        }
    }
}

fn check_prefix(prefix: String) -> Result<String, Error> {
    // With a brace the prefix would be the hash tag, and all names would share one slot.
    match prefix.chars().find(|c| c.is_control() || ['{', '}'].contains(c)) {
        Some(_) => Err(Error::invalid("the prefix contains a brace or a control character: use text like 'app:'")),
        None if prefix.len() > PREFIX_MAX => {
            Err(Error::invalid(format!("the prefix has {} bytes: use at most {PREFIX_MAX}", prefix.len())))
        }
        None => Ok(prefix),
    }
}

/// Decodes `%XX`.
pub(crate) fn decode(text: &str, what: &str) -> Result<String, Error> {
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
        assert_eq!(target.user.as_deref(), Some("me"));
        assert!(target.password == Some(Password::Given("p@ss#".into())) && target.tls.is_none());
        assert_eq!((target.db, target.prefix.as_str()), (3, "app:"));
        let short = Target::parse("redis://:secret@redis.example").unwrap();
        assert!(short.user.is_none() && short.password == Some(Password::Given("secret".into())) && short.db == 0);
        assert_eq!(short.address.to_string(), "redis.example:6379");
    }

    #[test]
    fn the_password_has_three_places() {
        let target = Target::parse("redis://me@host?password_file=/run/secrets/a%20b").unwrap();
        assert!(target.password == Some(Password::File("/run/secrets/a b".into())));
        let target = Target::parse("redis://host?password_env=_REDIS_1").unwrap();
        assert!(target.user.is_none() && target.password == Some(Password::Variable("_REDIS_1".into())));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls() {
        let target = Target::parse("rediss://redis.example").unwrap();
        assert_eq!((target.address.port, target.tls), (6379, Some(Tls::default())));
        for host in ["127.0.0.1", "[::1]", "localhost", "a_b.example"] {
            let target = Target::parse(&format!("rediss://{host}?ca=/ca.pem&key=/key.pem&cert=/cert.pem")).unwrap();
            let identity = Identity { certificate: "/cert.pem".into(), key: "/key.pem".into() };
            assert_eq!(target.tls, Some(Tls { ca: Some("/ca.pem".into()), identity: Some(identity) }));
        }
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
            "redis://:hunter2@host?password_file=/hunter2",
            "redis://:hunter2@host?password_env=A",
            "redis://host?password_file=/hunter2&password_env=A",
            "redis://host?password_file=/hunter2&password_file=/hunter2",
            "redis://host?password_file=hunter2",
            "redis://host?password_env=",
            "redis://host?password_env=hunter2!",
            "redis://host?password_env=1hunter2",
            "redis://host?ca=/hunter2",
            "redis://host?cert=/hunter2&key=/hunter2",
            "rediss://host?cert=/hunter2",
            "rediss://host?key=/hunter2",
            "rediss://host?ca=hunter2",
            "rediss://:hunter2@ho%20st",
            "rediss://host?insecure=hunter2",
            // A question mark in the password.
            "redis://me:1234?hunter2@host",
            "redis://me:1234?hunter2=@host",
        ];
        for url in wrong {
            let Err(error) = Target::parse(url) else { panic!("{url} was accepted") };
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
            assert!(!format!("{error:?}{error}").contains("hunter2"), "{url}: {error}");
        }
    }
}
