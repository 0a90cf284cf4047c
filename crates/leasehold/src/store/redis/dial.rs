//! How a connection to a Redis is made: over a socket of the world's, for locks and fences alike.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo};

use super::credentials::Credentials;
use super::fault::{self, Asker};
use super::url::Target;
use crate::descriptors;
use crate::error::Error;
use crate::world::{Pending, World};

/// Connects and says who we are; answers once the server has. Whoever calls drives the connection, by
/// [`drive`] or in its own way, and puts a bound on all of this.
///
/// `patience` is for a TLS handshake, and has to be below that bound: a server without TLS takes our first words for the
/// beginning of a long request, and waits for the rest; whoever hears only of silence looks for it in the network.
pub(crate) async fn dial(
    target: &Target,
    world: &dyn World,
    config: AsyncConnectionConfig,
    asker: Asker,
    patience: Duration,
) -> Result<(MultiplexedConnection, Pending<()>), Error> {
    let at = target.address.to_string();
    // First: what is wrong with a file is told without a server, and not counted by one as a wrong password.
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
    // Bounds of the client crate's own would count on another clock than the world's.
    let config = config.set_response_timeout(None).set_connection_timeout(None);
    let dialled = MultiplexedConnection::new_with_config(&identity(target, &credentials), socket, config).await;
    let (connection, driver) = dialled.map_err(|error| match &credentials.tls {
        Some(tls) => tls.explain(&error, &at).unwrap_or_else(|| fault::handshake(&error, &at, asker)),
        None => fault::handshake(&error, &at, asker),
    })?;
    Ok((connection, Box::pin(driver)))
}

/// Lets the connection live on the caller's runtime.
pub(crate) fn drive(world: &dyn World, driver: Pending<()>) -> Result<(), Error> {
    world.spawn(driver).map_err(|_| Error::invalid("there is no async runtime: connect inside one"))
}

fn identity(target: &Target, credentials: &Credentials) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP3)
        // CLIENT SETINFO is unknown before 7.2, and would count there as an error of each connection.
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
