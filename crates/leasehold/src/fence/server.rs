//! The connection of a fence to its Redis. It is opened again when it was closed. `store/redis/dial.rs` opens it, and
//! `fault.rs` interprets errors, as for locks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, ServerErrorKind};
use tokio::sync::Mutex as Turns;

use crate::error::{Error, Result};
use crate::store::redis::{Asker, Source, Target, Trouble, dial, drive, silent};
use crate::world::World;

/// The timeout of one attempt to connect, and of one reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// The part of it that a TLS handshake may take.
const TLS_WITHIN: Duration = Duration::from_millis(1500);

pub(super) struct Server {
    pub(super) world: Arc<dyn World>,
    target: Target,
    line: Mutex<Line>,
    /// The task that has this opens the next connection.
    turn: Turns<()>,
}

/// The current connection, and its number, counted from the first one.
#[derive(Default)]
struct Line {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

/// The arguments of a script.
pub(super) struct Arguments<'a> {
    pub(super) keys: [String; 2],
    pub(super) words: [String; 5],
    pub(super) value: Option<&'a [u8]>,
}

impl Server {
    /// Parses the URL, which has the form of a lock's store. Errors do not repeat it.
    pub(super) fn at(url: &str, world: Arc<dyn World>) -> Result<Self> {
        Ok(Self { world, target: Target::parse(url)?, line: Mutex::default(), turn: Turns::new(()) })
    }

    /// Returns the key with the prefix.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}{key}", self.target.prefix)
    }

    pub(super) fn address(&self) -> String {
        self.target.to_string()
    }

    pub(super) fn silent(&self) -> Error {
        silent(&self.address())
    }

    /// Returns the connection, and its number for [`hang_up`](Self::hang_up). The server has replied on it.
    pub(super) async fn line(&self) -> Result<(u64, MultiplexedConnection)> {
        if let Some(line) = self.present() {
            return Ok(line);
        }
        // Of all callers that find the connection closed, one opens the next. Its runtime may be blocked, so the others
        // wait no longer than connecting may take.
        let _turn = within(&*self.world, PATIENCE, self.turn.lock()).await;
        if let Some(line) = self.present() {
            return Ok(line);
        }
        let dialling = dial(&self.target, &*self.world, AsyncConnectionConfig::new(), Asker::FENCE, TLS_WITHIN);
        let dialled = within(&*self.world, PATIENCE, dialling).await;
        let (connection, driver) = dialled.unwrap_or_else(|| Err(self.silent()))?;
        drive(&*self.world, driver)?;
        let mut line = self.known();
        line.number += 1;
        line.connection = Some(connection.clone());
        Ok((line.number, connection))
    }

    fn present(&self) -> Option<(u64, MultiplexedConnection)> {
        let line = self.known();
        line.connection.clone().map(|connection| (line.number, connection))
    }

    fn known(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes a connection, unless another caller did so before.
    pub(super) fn hang_up(&self, number: u64) {
        let mut line = self.known();
        if line.number == number {
            line.connection = None;
        }
    }

    /// Runs a script, and waits for its reply with a timeout.
    pub(super) async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        script: &Source,
        arguments: &Arguments<'_>,
    ) -> Result<Vec<u8>, Trouble> {
        match within(&*self.world, PATIENCE, send(connection, script, arguments)).await {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(error)) => Err(Trouble::of(&error, &self.address(), Asker::FENCE, Some(&arguments.keys[1]))),
            None => Err(Trouble::Unanswered(self.silent())),
        }
    }
}

/// Sends the digest of the script, and its text if the server does not know it (it restarted, or its scripts were
/// flushed).
async fn send(
    connection: &mut MultiplexedConnection,
    script: &Source,
    arguments: &Arguments<'_>,
) -> Result<Vec<u8>, RedisError> {
    let command = |verb, text| {
        let mut command = Cmd::new();
        command.arg(verb).arg(text).arg(2).arg(&arguments.keys).arg(&arguments.words).arg(arguments.value);
        command
    };
    match command("EVALSHA", &script.sha).query_async(connection).await {
        Err(e) if e.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {
            command("EVAL", &script.text).query_async(connection).await
        }
        reply => reply,
    }
}

/// Returns the result of the work, or `None` if it takes longer than `at_most` by the clock of the world.
pub(super) async fn within<T>(world: &dyn World, at_most: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = work => Some(output),
        () = world.sleep(at_most) => None,
    }
}
