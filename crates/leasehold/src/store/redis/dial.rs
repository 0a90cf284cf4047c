//! Opens connections to a Redis over a socket of the `World`, for locks and for fences.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};

use super::credentials::Credentials;
use super::fault::{self, Asker};
use super::url::Target;
use crate::descriptors;
use crate::error::Error;
use crate::world::{Pending, World};

/// Connects and authenticates, and waits for the reply of the server. The caller drives the connection, by [`drive`] or in
/// another way, and sets a timeout for all of this.
///
/// `patience` is the timeout of a TLS handshake, and must be shorter than that of the caller. A server without TLS
/// reads our first bytes as the beginning of a long request, and waits for the rest. An error about a silent server
/// would send the user to look at the network.
pub(crate) async fn dial(
    target: &Target,
    world: &dyn World,
    config: AsyncConnectionConfig,
    asker: Asker,
    patience: Duration,
) -> Result<(MultiplexedConnection, Pending<()>), Error> {
    let at = target.address.to_string();
    // First: an error in a file needs no server, and no server counts it as a wrong password.
    let credentials = Credentials::of(target, world).await?;
    let mut socket = world.connect(&target.address).await.map_err(|error| {
        let no_descriptor = descriptors::advice(&error).map(|advice| fault::no_descriptor(&at, &error, advice));
        no_descriptor.unwrap_or_else(|| fault::unreachable(&at, &error.to_string())).because(error)
    })?;
    if let Some(tls) = &credentials.tls {
        socket = tokio::select! {
            biased;
            encrypted = tls.handshake(socket, &at) => encrypted?,
            () = world.sleep(patience) => return Err(fault::no_handshake(&at)),
        };
    }
    let socket = asker.sieve.before(socket);
    // Timeouts of the client crate would use another clock than the `World`.
    let config = config.set_response_timeout(None).set_connection_timeout(None);
    let dialled = MultiplexedConnection::new_with_config(&identity(target, &credentials), socket, config).await;
    let (connection, driver) = dialled.map_err(|error| match &credentials.tls {
        Some(tls) => tls.explain(&error, &at).unwrap_or_else(|| fault::handshake(&error, &at, asker)),
        None => fault::handshake(&error, &at, asker),
    })?;
    Ok((connection, Box::pin(driver)))
}

/// Drives the connection on the caller's runtime.
pub(crate) fn drive(world: &dyn World, driver: Pending<()>) -> Result<(), Error> {
    world.spawn(driver).map_err(|_| Error::invalid("there is no async runtime: connect inside one"))
}

fn identity(target: &Target, credentials: &Credentials) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        // CLIENT SETINFO is unknown before 7.2. There it would count as an error of each connection.
        .set_skip_set_lib_name()
        .set_db(target.db);
    if let Some(user) = &target.user {
        info = info.set_username(user);
    }
    if let Some(password) = &credentials.password {
        info = info.set_password(password);
    }
    info
}
