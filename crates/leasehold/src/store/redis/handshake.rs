//! The first exchange with a server: what must be true before a session trusts it.

use std::sync::Arc;
use std::time::Duration;

use redis::{AsyncConnectionConfig, PushInfo, RedisError, Value};

use super::dial::{dial, drive};
use super::fault::{self, Asker};
use super::keys::Keys;
use super::link::{Line, RedisLink, Wire};
use super::rights;
use super::scripts::Scripts;
use super::url::Target;
use crate::error::{Error, ErrorKind};
use crate::world::World;

/// Requests that wait for the socket. With the client crate's own bound (50) a thousand tasks would take turns.
const BUFFER: usize = 16 * 1024;
const OLDEST: (u32, u32) = (7, 0);
/// How long a TLS handshake may take: the rest of what the session gives a connection is for greeting and proving.
const TLS_WITHIN: Duration = Duration::from_millis(3500);

/// Connects, and makes sure that this is a primary which can run the scripts.
pub(super) async fn open(target: Target, world: Arc<dyn World>) -> Result<RedisLink, Error> {
    let keys = Keys::new(&target.prefix);
    let line = Arc::new(Line::new(&target.address));
    let config = {
        let (line, keys) = (Arc::clone(&line), keys.clone());
        let receive = move |push: PushInfo| -> Result<(), redis::aio::SendError> {
            line.receive(&keys, &push);
            Ok(())
        };
        AsyncConnectionConfig::new().set_pipeline_buffer_size(BUFFER).set_push_sender(receive)
    };
    let (connection, driver) = dial(&target, &*world, config, Asker::LOCKS, TLS_WITHIN).await?;
    drive(&*world, Box::pin(Arc::clone(&line).drive(driver)))?;
    let mut wire = Wire { connection, keys, line };
    match greet(&mut wire, &target.address.to_string()).await {
        Ok(run) => Ok(RedisLink { wire, run, world }),
        Err(error) => {
            wire.line.close();
            Err(error)
        }
    }
}

/// Asks who this is, brings the scripts, and asks whether we may do what they do. Answers the run id.
async fn greet(wire: &mut Wire, at: &str) -> Result<String, Error> {
    let mut who = redis::pipe();
    who.cmd("ROLE").cmd("INFO").arg("server");
    let who: (Value, String) = who.query_async(&mut wire.connection).await.map_err(|error| first(&error, at))?;
    role(&who.0, at)?;
    let run = server(&who.1, at)?;
    let mut load = redis::pipe();
    for script in Scripts::get().each() {
        load.cmd("SCRIPT").arg("LOAD").arg(&script.source);
    }
    load.cmd("EVAL").arg(rights::QUESTION).arg(0).arg(rights::arguments(&wire.keys.sample()));
    let mut known: Vec<Value> = load.query_async(&mut wire.connection).await.map_err(|error| first(&error, at))?;
    let refused = known.pop().and_then(|refused| redis::from_redis_value(refused).ok());
    let known: Vec<String> = known.into_iter().filter_map(|sha| redis::from_redis_value(sha).ok()).collect();
    if known.iter().ne(Scripts::get().each().map(|script| &script.sha)) {
        return Err(fault::not_redis(at));
    }
    let refused: Vec<usize> = refused.ok_or_else(|| fault::not_redis(at))?;
    match rights::missing(&refused) {
        missing if missing.is_empty() => Ok(run),
        missing => Err(fault::lacking(at, &missing)),
    }
}

fn role(role: &Value, at: &str) -> Result<(), Error> {
    let name = match role {
        Value::Array(parts) => parts.first(),
        _ => None,
    };
    match name {
        Some(Value::BulkString(name)) if name == b"master" => Ok(()),
        Some(Value::BulkString(name)) if name == b"slave" => Err(fault::replica(at)),
        Some(Value::BulkString(name)) if name == b"sentinel" => {
            Err(Error::new(ErrorKind::Unsupported, format!("{at} is a Sentinel; give the primary's address")))
        }
        _ => Err(fault::not_redis(at)),
    }
}

fn server(info: &str, at: &str) -> Result<String, Error> {
    let value = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let (Some(run), Some(version)) = (value("run_id"), value("redis_version")) else {
        return Err(fault::not_redis(at));
    };
    let mut numbers = version.split('.').map(|part| part.parse().unwrap_or(0));
    let version_is = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version_is < OLDEST {
        return Err(fault::too_old(at, &format!("its version is {version}")));
    }
    if value("redis_mode") == Some("cluster") {
        return Err(fault::cluster(at));
    }
    Ok(run.to_owned())
}

/// The error of a pipeline: its first one, with its own code.
fn first(error: &RedisError, at: &str) -> Error {
    // The error of the whole may have that code, and has never its text.
    match error.clone().into_server_errors().as_deref().and_then(|all| all.first()) {
        Some((_, server)) => fault::handshake(&RedisError::from(server.clone()), at, Asker::LOCKS),
        None => fault::handshake(error, at, Asker::LOCKS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_itself() {
        let info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\n";
        assert_eq!(server(info, "here").unwrap(), "abc");
        for (from, to, kind) in [
            ("7.0.15", "6.2.14", ErrorKind::Unsupported),
            ("standalone", "cluster", ErrorKind::Unsupported),
            ("run_id", "runid", ErrorKind::Unreachable),
        ] {
            assert_eq!(server(&info.replace(from, to), "here").unwrap_err().kind(), kind, "{to}");
        }
        assert!(server(&info.replace("7.0.15", "10.2.1"), "here").is_ok());
    }
}
