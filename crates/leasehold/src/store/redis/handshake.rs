//! The first exchange with a server: the checks before a session trusts it.
//!
//! A program that runs one command under a lock pays for all of this, so each step is one round trip: our credentials; the
//! role and version of the server, and whether it knows our scripts; the time and the inbox (`session/transport/thread.rs`,
//! `link.rs`). The questions of one round trip are in the order of P11, and none of them can queue.
//!
//! The scripts are some 120 kB. Sent with each connection they are three more round trips of a fresh TCP connection,
//! which may have 14 kB in flight; and the server hashes them all while it serves nobody else. So the question about our
//! rights, which is a script as well, contains a line that stands for all other scripts, and is loaded after them. A server
//! that knows the question knows all scripts.

use std::sync::Arc;
use std::time::Duration;

use leasehold_spec::mutant::{Mutant, is_on};
use redis::{AsyncConnectionConfig, Pipeline, PushInfo, Value};

use super::dial::{dial, drive};
use super::fault::{self, Asker};
use super::keys::Keys;
use super::link::RedisLink;
use super::link_state::LinkState;
use super::scripts::Family;
use super::source::Source;
use super::url::Target;
use super::wire::Wire;
use crate::error::{Error, ErrorKind};
use crate::world::World;

/// The number of requests that can wait for the socket. With the default of the client crate (50), a thousand tasks would
/// wait for each other.
const BUFFER: usize = 16 * 1024;
const OLDEST: (u32, u32) = (7, 0);
/// The timeout of a TLS handshake. The rest of the session's timeout for connecting is for the exchanges after it.
const TLS_WITHIN: Duration = Duration::from_millis(3500);

/// Connects, and checks that this is a primary that can run the scripts.
pub(super) async fn open(target: Target, world: Arc<dyn World>) -> Result<RedisLink, Error> {
    let mut wire = connect(&target, &*world, Keys::new(&target.prefix), Asker::LOCKS).await?;
    let mut who = redis::pipe();
    who.cmd("ROLE").cmd("INFO").arg("server");
    match greet(&mut wire, who, Family::Locks).await {
        Ok(Greeted { run, lacks_for_pools, .. }) => Ok(RedisLink { wire, run, lacks_for_pools, world }),
        Err(error) => {
            wire.state.close();
            Err(error)
        }
    }
}

/// Opens a connection that is driven on the caller's runtime.
pub(super) async fn connect(target: &Target, world: &dyn World, keys: Keys, asker: Asker) -> Result<Wire, Error> {
    let state = Arc::new(LinkState::new(&target.address, asker));
    let config = {
        let state = Arc::clone(&state);
        let receive = move |push: PushInfo| -> Result<(), redis::aio::SendError> {
            state.receive(&push);
            Ok(())
        };
        AsyncConnectionConfig::new().set_pipeline_buffer_size(BUFFER).set_push_sender(receive)
    };
    let (connection, driver) = dial(target, world, config, asker, TLS_WITHIN).await?;
    drive(world, Box::pin(Arc::clone(&state).drive(driver)))?;
    Ok(Wire { connection, keys, state })
}

/// The results of the first exchange.
pub(super) struct Greeted {
    pub(super) run: String,
    /// The reply to INFO.
    pub(super) info: String,
    /// The replies to the other commands, including errors.
    pub(super) more: Vec<Value>,
    /// The rights that only pools need, and that the user lacks.
    pub(super) lacks_for_pools: Vec<&'static str>,
}

/// Asks for the role and version of the server, and whether it knows our scripts and permits their commands. `who`
/// begins with ROLE and INFO.
pub(super) async fn greet(wire: &mut Wire, mut who: Pipeline, family: Family) -> Result<Greeted, Error> {
    let (at, asker) = (wire.state.at.clone(), wire.state.asker);
    ask_rights(&mut who, wire, family);
    let mut said = all(wire, &who).await?.into_iter();
    let mut next = || said.next().ok_or_else(|| fault::not_redis(&at));
    // In this order: the error for a replica, for an old server or for one that loads comes before an error about our
    // script.
    role(&sound(next()?, &at, asker)?, &at)?;
    let info: String = redis::from_redis_value(sound(next()?, &at, asker)?).map_err(|_| fault::not_redis(&at))?;
    let run = server(&info, &at)?;
    let mut more: Vec<Value> = said.collect();
    let mut refused = more.pop().ok_or_else(|| fault::not_redis(&at))?;
    if matches!(&refused, Value::ServerError(error) if error.code() == "NOSCRIPT") {
        refused = bring(wire, family).await?;
    }
    let refused: Vec<usize> =
        redis::from_redis_value(sound(refused, &at, asker)?).map_err(|_| fault::not_redis(&at))?;
    let missing = asker.rights.missing(&refused);
    let (lacks_for_pools, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|right| asker.rights.is_for_pools(right));
    if !missing.is_empty() {
        return Err(fault::lacking(&at, &missing, asker.rights));
    }
    Ok(Greeted { run, info, more, lacks_for_pools })
}

/// Adds the question about our rights.
fn ask_rights(pipeline: &mut Pipeline, wire: &Wire, family: Family) {
    let arguments = wire.state.asker.rights.arguments(&wire.keys.sample());
    pipeline.cmd("EVALSHA").arg(&family.question().sha).arg(0).arg(arguments);
}

/// Loads the scripts and then the question, and asks it. Returns the reply of the server.
async fn bring(wire: &mut Wire, family: Family) -> Result<Value, Error> {
    let (at, asker) = (wire.state.at.clone(), wire.state.asker);
    let Source { text, sha } = family.question();
    let scripts = || family.scripts().map(|script| (script.source(), script.sha())).chain([(&**text, &**sha)]);
    let mut load = redis::pipe();
    for (source, _) in scripts() {
        load.cmd("SCRIPT").arg("LOAD").arg(source);
    }
    ask_rights(&mut load, wire, family);
    let mut said = all(wire, &load).await?;
    let refused = said.pop().ok_or_else(|| fault::not_redis(&at))?;
    for (loaded, (_, sha)) in said.into_iter().zip(scripts()) {
        let loaded: Option<String> = redis::from_redis_value(sound(loaded, &at, asker)?).ok();
        if loaded.as_deref() != Some(sha) {
            return Err(fault::not_redis(&at));
        }
    }
    Ok(refused)
}

/// Returns the replies to a pipeline, including errors.
async fn all(wire: &mut Wire, pipeline: &Pipeline) -> Result<Vec<Value>, Error> {
    let answered = wire.connection.send_packed_commands(pipeline, 0, pipeline.len()).await;
    answered.map_err(|error| fault::handshake(&error, &wire.state.at, wire.state.asker))
}

fn sound(answer: Value, at: &str, asker: Asker) -> Result<Value, Error> {
    answer.extract_error().map_err(|error| fault::handshake(&error, at, asker))
}

fn role(role: &Value, at: &str) -> Result<(), Error> {
    let name = match role {
        Value::Array(parts) => parts.first(),
        _ => None,
    };
    match name {
        Some(Value::BulkString(name)) if name == b"master" => Ok(()),
        Some(Value::BulkString(name)) if name == b"slave" && is_on(Mutant::P11AsksReplica) => Ok(()),
        Some(Value::BulkString(name)) if name == b"slave" => Err(fault::replica(at)),
        Some(Value::BulkString(name)) if name == b"sentinel" => {
            Err(Error::new(ErrorKind::Unsupported, format!("{at} is a Sentinel: use the address of the primary")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_clusters_and_others_are_refused() {
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
