//! What Redis's errors mean here: which of them say that nothing was done, which that this is not the server to ask, and
//! what somebody should do about them.

use redis::RedisError;

use crate::error::{Error, ErrorKind};
use crate::store::Fault;

/// Rights that the scripts and the session need.
const RIGHTS: &str = "+evalsha +eval +script|load +hmget +hset +hdel +get +set +setrange +del +exists +type +pexpire +time \
                      +publish +pubsub|numsub +subscribe +hello +auth +select +ping +info +role, and keys and channels below the prefix";

/// The fault behind an error that a request met.
pub(super) fn fault(error: &RedisError) -> Fault {
    let Some(code) = error.code() else { return Fault::Gone(broken(error)) };
    let text = said(error);
    match code {
        // Whatever the request was, this server is not, or not yet, the one to ask.
        "READONLY" => Fault::Gone(gone("the server has become a read-only replica", &text)),
        "LOADING" => Fault::Gone(gone("the server is still loading its data", &text)),
        "MASTERDOWN" | "CLUSTERDOWN" => Fault::Gone(gone("the server has lost its primary or its cluster", &text)),
        "BUSY" => Fault::Gone(gone("the server is busy with a slow script", &text)),
        "OOM" => Fault::NoMemory(Error::new(
            ErrorKind::Store,
            format!("the server's memory is full, and new locks are refused: raise maxmemory ({text})"),
        )),
        "NOPERM" | "NOAUTH" | "WRONGPASS" => Fault::Refused(denied(&text)),
        "WRONGTYPE" => Fault::Refused(Error::new(
            ErrorKind::Foreign,
            format!("under this name is a key of another type, which is left alone: use another prefix ({text})"),
        )),
        "MOVED" | "ASK" | "CROSSSLOT" | "TRYAGAIN" => Fault::Refused(cluster()),
        _ => Fault::Refused(Error::new(ErrorKind::Store, format!("the server refused: {text}"))),
    }
}

/// The error behind a failed first exchange.
pub(super) fn handshake(error: &RedisError, at: &str) -> Error {
    match error.code() {
        Some("WRONGPASS" | "NOAUTH" | "NOPERM") => denied(&said(error)),
        Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "BUSY") => unreachable(at, &said(error)),
        Some("READONLY") => replica(at),
        // Before 6.0 there is no HELLO, and in RESP2 no pushes on a connection that also carries commands.
        Some("NOPROTO") => too_old(at, "it does not speak RESP3"),
        Some("ERR") if error.detail().is_some_and(|detail| detail.starts_with("unknown command")) => {
            too_old(at, &said(error))
        }
        Some(_) => Error::new(ErrorKind::Store, format!("{at} refused: {}", said(error))),
        None => match error.kind() {
            redis::ErrorKind::RESP3NotSupported => too_old(at, "it does not speak RESP3"),
            redis::ErrorKind::AuthenticationFailed => denied(&said(error)),
            redis::ErrorKind::Io => unreachable(at, &error.to_string()),
            _ => not_redis(at),
        },
    }
}

pub(super) fn unreachable(at: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("cannot reach Redis at {at}: {why}; check the address, and that the server runs"),
    )
}

pub(super) fn not_redis(at: &str) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("what answers at {at} does not speak the Redis protocol: check the port, and that TLS is off there"),
    )
}

pub(super) fn replica(at: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{at} is a read-only replica; give the primary's address"))
}

pub(super) fn too_old(at: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{at} is too old ({why}): Redis 7.0 or newer is needed"))
}

pub(super) fn cluster() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this server is part of a Redis Cluster, which this version does not support: use a single primary",
    )
}

pub(super) fn denied(why: &str) -> Error {
    Error::new(
        ErrorKind::Denied,
        format!("the server refuses us: {why}; check user and password, and the rights {RIGHTS}"),
    )
}

pub(super) fn garbled() -> Fault {
    Fault::Gone(gone("the server answered with something that no script of ours says", "is there a proxy in between?"))
}

/// A key under our name that is not ours, or not yet ours.
pub(super) fn foreign(key: &str, kind: &str) -> Fault {
    Fault::Refused(Error::new(
        ErrorKind::Foreign,
        format!(
            "the key {key:?} has a {kind} that Leasehold did not write; it is left alone: use another prefix or name"
        ),
    ))
}

pub(super) fn newer(key: &str, version: &str) -> Fault {
    let ours = super::keys::LAYOUT;
    Fault::Refused(Error::new(
        ErrorKind::Foreign,
        format!(
            "the key {key:?} has layout {version}, and this program knows layout {ours}; it is left alone: bring all \
             programs to the same version of Leasehold"
        ),
    ))
}

/// An error of the connection itself: whether the server acted is not known.
fn broken(error: &RedisError) -> Error {
    let why = match error.kind() {
        redis::ErrorKind::Io => "the connection to Redis broke",
        _ => "the connection to Redis carries something that is not its protocol",
    };
    Error::new(ErrorKind::Unreachable, why).because(error.to_string()).may_act()
}

fn gone(what: &str, text: &str) -> Error {
    Error::new(ErrorKind::Unreachable, format!("{what} ({text})")).may_act()
}

/// What the server itself said. Never our request, which has secrets in it.
fn said(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => error.category().to_owned(),
    }
}

/// An error of one name in a batch, as a script wrote it down: `CODE text`, or Lua's own words.
pub(super) fn of_one(text: &str) -> Fault {
    let (code, _) = text.split_once(' ').unwrap_or((text, ""));
    match code {
        "NOPERM" => Fault::Refused(denied(text)),
        "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" => Fault::Gone(gone("the server is not the one to ask", text)),
        _ => Fault::Refused(Error::new(ErrorKind::Store, format!("the server refused: {text}"))),
    }
}

/// The same fault, for another of the requests that it concerns.
pub(super) fn share(fault: &Fault) -> Fault {
    match fault {
        Fault::Gone(error) => Fault::Gone(error.share()),
        Fault::Refused(error) => Fault::Refused(error.share()),
        Fault::NoMemory(error) => Fault::NoMemory(error.share()),
    }
}
