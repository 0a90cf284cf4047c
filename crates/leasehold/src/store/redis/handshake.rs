//! The first exchange with a server: what must be true before a session trusts it.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, Value};

use super::fault;
use super::keys::Keys;
use super::link::{Line, RedisLink, Wire};
use super::scripts::Scripts;
use super::url::Target;
use crate::error::{Error, ErrorKind};
use crate::world::World;

/// Requests that wait for the socket. With the client crate's own bound (50) a thousand tasks would take turns.
const BUFFER: usize = 16 * 1024;
const OLDEST: (u32, u32) = (7, 0);

/// Connects, and makes sure that this is a primary which can run the scripts.
pub(super) async fn open(target: Target, world: Arc<dyn World>) -> Result<RedisLink, Error> {
    let at = target.address.to_string();
    let socket = world.connect(&target.address).await.map_err(|error| {
        let why = error.to_string();
        fault::unreachable(&at, &why).because(error)
    })?;
    let keys = Keys::new(&target.prefix);
    let line = Arc::new(Line::default());
    let config = {
        let (line, keys) = (Arc::clone(&line), keys.clone());
        let receive = move |push: PushInfo| -> Result<(), redis::aio::SendError> {
            line.receive(&keys, &push);
            Ok(())
        };
        AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None)
            .set_pipeline_buffer_size(BUFFER)
            .set_push_sender(receive)
    };
    let (connection, driver) = MultiplexedConnection::new_with_config(&identity(&target), socket, config)
        .await
        .map_err(|error| fault::handshake(&error, &at))?;
    let driving = Arc::clone(&line).drive(driver);
    if world.spawn(Box::pin(driving)).is_err() {
        return Err(Error::invalid("there is no async runtime here: connect from within one"));
    }
    let mut wire = Wire { connection, keys, line };
    match greet(&mut wire, &at).await {
        Ok(run) => Ok(RedisLink { wire, run, world }),
        Err(error) => {
            wire.line.close();
            Err(error)
        }
    }
}

fn identity(target: &Target) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        // CLIENT SETINFO is unknown before 7.2, and would count there as an error of each connection.
        .set_skip_set_lib_name()
        .set_db(target.db);
    if let Some(user) = &target.user {
        info = info.set_username(user);
    }
    if let Some(password) = &target.password {
        info = info.set_password(password);
    }
    info
}

/// Asks who this is, and brings the scripts. Answers the run id.
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
    let known: Vec<String> = load.query_async(&mut wire.connection).await.map_err(|error| first(&error, at))?;
    if known.iter().ne(Scripts::get().each().map(|script| &script.sha)) {
        return Err(fault::not_redis(at));
    }
    Ok(run)
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
        return Err(fault::cluster());
    }
    Ok(run.to_owned())
}

/// The error of a pipeline: its first one, with its own code.
fn first(error: &RedisError, at: &str) -> Error {
    let all = error.code().is_none().then(|| error.clone().into_server_errors()).flatten();
    match all.as_deref().and_then(|all| all.first()) {
        Some((_, server)) => fault::handshake(&RedisError::from(server.clone()), at),
        None => fault::handshake(error, at),
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
