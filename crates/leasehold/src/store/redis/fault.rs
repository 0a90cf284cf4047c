//! The meaning of each error of Redis, in one table for locks and fences.
//!
//! A row answers three questions about an error: Is this the right server? Is the request refused for good? What should the
//! user do? The texts are those of Redis 7.0 to 7.4.
//!
//! After an error of the server **nothing was done**: the server refuses a script before it begins, and a script reads
//! everything first and writes last. Only after a broken connection this is unknown.

use redis::{RedisError, Value};

use super::rights::Rights;
use super::sieve::Sieve;
use crate::error::{Error, ErrorKind};
use crate::store::Fault;

/// The result of a request that failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The server is not the right one, or not now. It did nothing.
    Elsewhere(Error),
    /// The server's memory is full. It did nothing.
    NoMemory(Error),
    /// The server refuses the request for good. It did nothing.
    Refused(Error),
    /// Unknown: the connection broke.
    Unanswered(Error),
}

/// The client that sent a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    /// The rights that it needs.
    pub(crate) rights: &'static Rights,
    /// Its reaction, for messages, if this is not the right server now.
    pub(crate) goes_on: &'static str,
    /// The bounds of a reply to it.
    pub(crate) sieve: Sieve,
}

impl Asker {
    pub(crate) const LOCKS: Self = Self {
        rights: &Rights::LOCKS,
        goes_on: "nothing was changed; the client retries until it gets a reply or is closed, and lock() waits",
        sieve: Sieve::LOCKS,
    };
    pub(crate) const NODE: Self = Self { rights: &Rights::NODE, ..Self::LOCKS };
    pub(crate) const FENCE: Self =
        Self { rights: &Rights::FENCE, goes_on: "nothing was changed: call again", sieve: Sieve::FENCE };

    /// Returns the same client while it connects.
    pub(crate) const fn connecting(self) -> Self {
        Self { goes_on: "connect again later", ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Elsewhere,
    NoMemory,
    Refused(ErrorKind),
}

/// An error: its code, a piece of its text, its meaning, what is wrong with the server, and what the user should do.
type Row = (&'static str, &'static str, Means, &'static str, &'static str);

/// The first row that matches counts.
#[rustfmt::skip]
const TABLE: &[Row] = {
    use ErrorKind::{Denied, Foreign, Invalid, Store, Unsupported};
    use Means::{Elsewhere, NoMemory, Refused};
    &[
        ("READONLY", "", Elsewhere,
            "is a read-only replica", "if no failover is in progress, use the address of the primary"),
        ("LOADING", "", Elsewhere,
            "is still loading its data", "see INFO persistence for its progress"),
        ("MASTERDOWN", "", Elsewhere,
            "is a replica without its primary", "restore the primary, or promote a replica"),
        ("CLUSTERDOWN", "", Elsewhere,
            "is part of a cluster that is down", "restore the cluster: see CLUSTER INFO"),
        ("TRYAGAIN", "", Elsewhere,
            "is moving keys to another node", "wait until the slots have moved"),
        ("BUSY", "", Elsewhere,
            "is busy with a slow script", "stop that script with SCRIPT KILL"),
        ("NOREPLICAS", "", Elsewhere,
            "has too few replicas to accept writes", "restore the replicas, or lower min-replicas-to-write"),
        ("OOM", "", NoMemory,
            "is out of memory", "raise maxmemory, or delete data"),
        ("MISCONF", "", Refused(Store),
            "refuses writes because it cannot save to its disk", "free disk space, and see the server's log"),
        ("NOSCRIPT", "", Refused(Store),
            "does not keep scripts", "use the address of the server, not of a proxy"),
        ("WRONGTYPE", "", Refused(Foreign),
            "has a key of another type", "it was not changed; use another prefix or name"),
        ("NOAUTH", "", Refused(Denied),
            "requires a password", PASSWORD),
        ("WRONGPASS", "", Refused(Denied),
            "refuses the user or the password", "check both, and that the user is enabled"),
        ("NOPERM", "", Refused(Denied),
            "denies a permission", ""),
        // Replies to a script, and to SELECT of the client crate: with another code, and another text from 7.2 on.
        ("ERR", "The user executing the script can't", Refused(Denied),
            "denies a permission to a script", ""),
        ("ERR", "ACL failure in script", Refused(Denied),
            "denies a permission to a script", ""),
        ("ERR", "has no permissions to", Refused(Denied),
            "denies a permission", ""),
        ("ERR", "DB index is out of range", Refused(Invalid),
            "has no such database", "use a smaller number in the URL"),
        ("ERR", "Script killed by user", Elsewhere,
            "stopped the script by SCRIPT KILL", "do not kill scripts of Leasehold: they are short"),
        ("ERR", " user_script:", Refused(Foreign),
            "has data that Leasehold did not write", DAMAGED),
        ("ERR", "unknown command", Refused(Unsupported),
            "lacks a command", "use Redis 7.0 or newer, without renamed commands"),
        ("MOVED", "", Refused(Unsupported),
            "is part of a cluster", CLUSTER),
        ("ASK", "", Refused(Unsupported),
            "is part of a cluster", CLUSTER),
        ("CROSSSLOT", "", Refused(Unsupported),
            "is part of a cluster", CLUSTER),
    ]
};

const PASSWORD: &str = "add it to the URL, or use ?password_file=/PATH or ?password_env=NAME";
const CLUSTER: &str = "this version does not support one: use a single primary";
const DAMAGED: &str = "it was not changed; look at it with GET or HGETALL, and delete it if nothing needs it";

impl Trouble {
    /// Returns the meaning of an error of the client crate.
    ///
    /// `key` is the key of the request, if it has one.
    pub(crate) fn of(error: &RedisError, at: &str, asker: Asker, key: Option<&str>) -> Self {
        let Some(code) = error.code() else { return Self::Unanswered(broken(error, at)) };
        Self::told(code, error.detail().unwrap_or_default(), at, asker, key)
    }

    /// Returns the meaning of an error of the server: a code, and a text that may be empty.
    pub(crate) fn told(code: &str, text: &str, at: &str, asker: Asker, key: Option<&str>) -> Self {
        // The text is a paragraph about options of HELLO, which does not help the user.
        let is_of_hello = code == "NOAUTH" && text.starts_with("HELLO must be called");
        let said = if text.is_empty() || is_of_hello { code.to_owned() } else { format!("{code} {text}") };
        let said = said.trim_end();
        // A piece may begin with a blank, for which the end of the code counts.
        let fits = |row: &&Row| row.0 == code && format!(" {text}").contains(row.1);
        let Some(&(_, _, means, what, advice)) = TABLE.iter().find(fits) else {
            return Self::Refused(Error::new(ErrorKind::Store, format!("the Redis at {at} refused: {said}")));
        };
        let message = match (means, key) {
            (Means::Elsewhere, _) => format!("the Redis at {at} {what}; {advice}; {} ({said})", asker.goes_on),
            (Means::Refused(ErrorKind::Denied), _) if advice.is_empty() => {
                format!("the Redis at {at} {what}: the user needs {} ({said})", asker.rights)
            }
            (Means::Refused(ErrorKind::Foreign), Some(key)) => {
                format!("the Redis at {at} {what}, at the key {key:?}: {advice} ({said})")
            }
            (Means::NoMemory | Means::Refused(_), _) => format!("the Redis at {at} {what}: {advice} ({said})"),
        };
        match means {
            Means::Elsewhere => Self::Elsewhere(Error::new(ErrorKind::Unreachable, message)),
            Means::NoMemory => Self::NoMemory(Error::new(ErrorKind::Store, message)),
            Means::Refused(kind) => Self::Refused(Error::new(kind, message)),
        }
    }

    /// Returns the error alone, for a connection that has sent no request yet.
    pub(crate) fn before_asking(self) -> Error {
        let (Self::Elsewhere(error) | Self::NoMemory(error) | Self::Refused(error) | Self::Unanswered(error)) = self;
        error
    }
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Elsewhere(error) => Self::Gone(error),
            Trouble::Unanswered(error) => Self::Gone(error.may_act()),
            Trouble::NoMemory(error) => Self::NoMemory(error),
            Trouble::Refused(error) => Self::Refused(error),
        }
    }
}

/// Returns the error for a failed first exchange.
pub(crate) fn handshake(error: &RedisError, at: &str, asker: Asker) -> Error {
    match (error.code(), error.kind()) {
        (Some("READONLY"), _) => replica(at),
        // Before 6.0 there is no HELLO, and in RESP2 no pushes on a connection that also carries commands.
        (Some("NOPROTO"), _) | (None, redis::ErrorKind::RESP3NotSupported) => too_old(at, "it does not speak RESP3"),
        (Some(_), _) => Trouble::of(error, at, asker.connecting(), None).before_asking(),
        (None, redis::ErrorKind::Io) => hung_up(at, &error.to_string()),
        (None, _) => not_redis(at),
    }
}

pub(crate) fn unreachable(at: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("cannot reach Redis at {at}: {why}; check the address, and whether the server is running"),
    )
}

/// There is no descriptor left for a connection.
pub(super) fn no_descriptor(at: &str, error: &std::io::Error, advice: &str) -> Error {
    Error::new(ErrorKind::Unreachable, format!("cannot connect to Redis at {at} ({error}): {advice}"))
}

/// The server closed the connection at our first bytes, as one does that expects a TLS handshake.
fn hung_up(at: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!(
            "the server at {at} closed the connection ({why}): check that it is a Redis; if it uses TLS, use rediss:"
        ),
    )
}

/// The server accepts connections, but starts no TLS session.
pub(super) fn no_handshake(at: &str) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!(
            "the server at {at} does not reply to the TLS handshake: check that it is running; if this port has no \
             TLS, use redis:"
        ),
    )
}

/// The server has not replied in time.
pub(crate) fn silent(at: &str) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("the Redis at {at} does not reply: check that it is running, and the network"),
    )
}

pub(super) fn not_redis(at: &str) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("the server at {at} does not speak the Redis protocol: check the port; if it uses TLS, use rediss:"),
    )
}

pub(super) fn replica(at: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the Redis at {at} is a read-only replica: use the address of the primary"),
    )
}

pub(super) fn too_old(at: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the Redis at {at} is too old ({why}): use 7.0 or newer"))
}

pub(super) fn cluster(at: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the Redis at {at} is part of a cluster: {CLUSTER}"))
}

/// The server accepts us, but the user lacks rights that the scripts need.
pub(super) fn lacking(at: &str, missing: &[&str], all: &Rights) -> Error {
    let missing = missing.join(" ");
    Error::new(
        ErrorKind::Denied,
        format!("the user at the Redis at {at} lacks {missing}: grant them with ACL SETUSER; in all it needs {all}"),
    )
}

/// The user lacks rights that only pools need.
pub(super) fn lacking_for_pools(at: &str, missing: &[&str]) -> Error {
    let missing = missing.join(" ");
    let message = format!(
        "the user at the Redis at {at} lacks {missing}, which all names but mutexes need: grant it with ACL SETUSER, \
         and connect again"
    );
    Error::new(ErrorKind::Denied, message)
}

/// Whether the server does not know the script. Then nothing of it has run.
pub(super) fn is_forgotten(reply: &Result<Value, RedisError>) -> bool {
    reply.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT"))
}

/// The reply is garbage.
pub(super) fn garbled(at: &str, key: Option<&str>) -> Fault {
    let damaged = key.map_or(String::new(), |key| format!("; or the key {key:?} is damaged: {DAMAGED}"));
    Fault::Gone(
        Error::new(
            ErrorKind::Unreachable,
            format!("unexpected reply from the Redis at {at}: is there a proxy in between{damaged}"),
        )
        .may_act(),
    )
}

/// A record of ours is damaged, and the script reported its content.
pub(super) fn damaged(at: &str, key: &str) -> Fault {
    let message = format!("the Redis at {at} has a damaged record of Leasehold at the key {key:?}: {DAMAGED}");
    Fault::Damaged(Error::new(ErrorKind::Foreign, message).may_act())
}

/// A key with our name has data that is not ours.
pub(super) fn foreign(key: &str, kind: &str) -> Fault {
    Fault::Refused(Error::new(
        ErrorKind::Foreign,
        format!(
            "the key {key:?} has a {kind} that Leasehold did not write; it was not changed: use another prefix or name"
        ),
    ))
}

/// A key of ours has a layout that this version does not know.
pub(super) fn newer(key: &str, version: &str) -> Fault {
    let ours = super::keys::LAYOUT;
    Fault::Refused(Error::new(
        ErrorKind::Foreign,
        format!(
            "the key {key:?} has layout {version}, but this program knows layout {ours}; it was not changed: use the \
             same version of Leasehold in all programs"
        ),
    ))
}

/// An error of the connection itself. It never contains our request, which has secrets in it.
fn broken(error: &RedisError, at: &str) -> Error {
    let why = match error.kind() {
        redis::ErrorKind::Io => format!("the connection to the Redis at {at} broke"),
        _ => format!("the connection to the Redis at {at} carries something that is not its protocol"),
    };
    Error::new(ErrorKind::Unreachable, why).because(error.to_string())
}

/// An error about one name in a batch, as the script returned it: `CODE text`, or an error of Lua.
pub(super) fn of_one(said: &str, at: &str, asker: Asker, key: &str) -> Fault {
    let (code, text) = said.split_once(' ').unwrap_or((said, ""));
    Trouble::told(code, text, at, asker, Some(key)).into()
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
