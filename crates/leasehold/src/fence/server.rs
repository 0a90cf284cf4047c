//! The way to the fence's Redis: one connection, made anew when it has gone. How it is made, and what an error means, is
//! what it is for locks: `store/redis/dial.rs` and `fault.rs`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisError, ServerErrorKind};
use tokio::sync::Mutex as Turns;

use super::script::Script;
use crate::error::{Error, Result};
use crate::store::redis::{Asker, Target, Trouble, dial, drive, silent};
use crate::world::World;

/// How long one attempt to connect, and one answer, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a TLS handshake may take of that.
const TLS_WITHIN: Duration = Duration::from_millis(1500);

pub(super) struct Server {
    pub(super) world: Arc<dyn World>,
    target: Target,
    line: Mutex<Line>,
    /// Whoever has it makes the next connection.
    turn: Turns<()>,
}

/// The present connection, and which one it is, counted from the first.
#[derive(Default)]
struct Line {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

/// What a script gets.
pub(super) struct Arguments<'a> {
    pub(super) keys: [String; 2],
    pub(super) words: [String; 5],
    pub(super) value: Option<&'a [u8]>,
}

impl Server {
    /// Reads a URL, that of a lock's store. Its errors do not repeat it.
    pub(super) fn at(url: &str, world: Arc<dyn World>) -> Result<Self> {
        Ok(Self { world, target: Target::parse(url)?, line: Mutex::default(), turn: Turns::new(()) })
    }

    /// The key below the prefix.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}{key}", self.target.prefix)
    }

    pub(super) fn address(&self) -> String {
        self.target.to_string()
    }

    pub(super) fn silent(&self) -> Error {
        silent(&self.address())
    }

    /// The connection, and its number for [`hang_up`](Self::hang_up). The server has said a word on it.
    pub(super) async fn line(&self) -> Result<(u64, MultiplexedConnection)> {
        if let Some(line) = self.present() {
            return Ok(line);
        }
        // One of the callers that find the connection gone makes the next one. Its runtime may stand still, so the others
        // wait only as long as connecting may take.
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

    /// Gives a connection up, unless another caller did so before.
    pub(super) fn hang_up(&self, number: u64) {
        let mut line = self.known();
        if line.number == number {
            line.connection = None;
        }
    }

    /// Runs a script, and awaits its answer for a while.
    pub(super) async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        script: &Script,
        arguments: &Arguments<'_>,
    ) -> Result<Vec<u8>, Trouble> {
        match within(&*self.world, PATIENCE, send(connection, script, arguments)).await {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(error)) => Err(Trouble::of(&error, &self.address(), Asker::FENCE, Some(&arguments.keys[1]))),
            None => Err(Trouble::Unanswered(self.silent())),
        }
    }
}

/// By the script's name, and by its text where the server does not know it (it restarted, or somebody flushed it).
async fn send(
    connection: &mut MultiplexedConnection,
    script: &Script,
    arguments: &Arguments<'_>,
) -> Result<Vec<u8>, RedisError> {
    let command = |verb, text| {
        let mut command = Cmd::new();
        command.arg(verb).arg(text).arg(2).arg(&arguments.keys).arg(&arguments.words).arg(arguments.value);
        command
    };
    match command("EVALSHA", &script.sha).query_async(connection).await {
        Err(e) if e.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {
            command("EVAL", &script.source).query_async(connection).await
        }
        reply => reply,
    }
}

/// What the work gives, if that comes in time by the world's clock.
pub(super) async fn within<T>(world: &dyn World, at_most: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = work => Some(output),
        () = world.sleep(at_most) => None,
    }
}
