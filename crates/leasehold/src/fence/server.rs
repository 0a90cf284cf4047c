//! The way to the fence's Redis: one connection, made anew when it has gone, and what the server's errors mean here.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    ServerErrorKind,
};
use tokio::sync::Mutex;

use super::script::Script;
use crate::error::{Error, ErrorKind, Result};
use crate::store::redis::Target;

/// How long one attempt to connect, and one answer, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Rights that the scripts need.
const RIGHTS: &str = "+evalsha +eval +get +set +del +type +pttl +auth +select +ping, and the key and `lhf:{key}`";

pub(super) struct Server {
    client: Client,
    /// What goes before every key.
    prefix: String,
    line: Mutex<Line>,
}

/// The present connection, and which one it is, counted from the first.
#[derive(Default)]
struct Line {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

/// Why an attempt brought no reply.
pub(super) enum Trouble {
    /// The server's last word.
    Answered(Error),
    /// The server is not, or no longer, the one to ask, and did nothing.
    Elsewhere(Error),
    /// Nobody knows what became of the request.
    Gone(Error),
}

/// What a script gets.
pub(super) struct Arguments<'a> {
    pub(super) keys: [String; 2],
    pub(super) words: [String; 5],
    pub(super) value: Option<&'a [u8]>,
}

impl Server {
    /// Reads a URL, that of a lock's store. Its errors do not repeat it.
    pub(super) fn at(url: &str) -> Result<Self> {
        let Target { address, user, password, db, prefix } = Target::parse(url)?;
        let mut settings = RedisConnectionInfo::default().set_db(db).set_skip_set_lib_name();
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        if let Some(password) = password {
            settings = settings.set_password(password);
        }
        let broken = |e: RedisError| Error::invalid("the URL's parts do not make a connection").because(e.to_string());
        let server = ConnectionAddr::Tcp(address.host, address.port).into_connection_info().map_err(broken)?;
        let client = Client::open(server.set_redis_settings(settings)).map_err(broken)?;
        Ok(Self { client, prefix, line: Mutex::default() })
    }

    /// Connects, and hears an answer: without a password the connection alone proves nothing.
    pub(super) async fn greet(&self) -> Result<()> {
        let (_, mut connection) = self.line().await?;
        Cmd::new().arg("PING").query_async(&mut connection).await.map_err(|e| self.trouble(&e).before_sending())
    }

    /// The key below the prefix.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub(super) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    pub(super) fn silent(&self) -> Error {
        Error::new(ErrorKind::Unreachable, format!("the Redis at {} does not answer", self.address()))
    }

    /// The connection, and its number for [`hang_up`](Self::hang_up).
    pub(super) async fn line(&self) -> Result<(u64, MultiplexedConnection)> {
        // Locked while connecting: of many callers that find the connection gone one makes the next.
        let mut line = self.line.lock().await;
        if let Some(connection) = &line.connection {
            return Ok((line.number, connection.clone()));
        }
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await;
        let connection = connection.map_err(|e| self.trouble(&e).before_sending())?;
        line.number += 1;
        line.connection = Some(connection.clone());
        Ok((line.number, connection))
    }

    /// Gives a connection up, unless another caller did so before.
    pub(super) async fn hang_up(&self, number: u64) {
        let mut line = self.line.lock().await;
        if line.number == number {
            line.connection = None;
        }
    }

    pub(super) fn trouble(&self, error: &RedisError) -> Trouble {
        let because = |kind, message: String| Error::new(kind, message).because(error.to_string());
        let server = self.address();
        // What a script may not do is told without a code, and in other words from 7.2 on.
        let detail = error.detail().unwrap_or_default();
        let lacks_right = detail.contains("user executing the script") || detail.contains("ACL failure");
        let is_denied = lacks_right || error.kind() == redis::ErrorKind::AuthenticationFailed;
        match error.code() {
            code if is_denied || matches!(code, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => Trouble::Answered(because(
                ErrorKind::Denied,
                format!("the Redis at {server} refuses us: check user and password, and the rights {RIGHTS}"),
            )),
            Some("READONLY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN") => Trouble::Elsewhere(because(
                ErrorKind::Unreachable,
                format!("the Redis at {server} cannot be written to now (a replica, or starting up)"),
            )),
            Some("OOM") => Trouble::Answered(because(
                ErrorKind::Store,
                format!("the memory of the Redis at {server} is full, and nothing was done"),
            )),
            Some(_) => {
                Trouble::Answered(because(ErrorKind::Store, format!("the Redis at {server} answers with an error")))
            }
            None => Trouble::Gone(self.silent().because(error.to_string())),
        }
    }
}

impl Trouble {
    /// The error of a connection that carried no request yet.
    fn before_sending(self) -> Error {
        let (Self::Answered(error) | Self::Elsewhere(error) | Self::Gone(error)) = self;
        error
    }
}

/// By the script's name, and by its text where the server does not know it (it restarted, or somebody flushed it).
pub(super) async fn run(
    connection: &mut MultiplexedConnection,
    script: &Script,
    arguments: &Arguments<'_>,
) -> Result<Vec<u8>, RedisError> {
    let send = |verb, text| {
        let mut command = Cmd::new();
        command.arg(verb).arg(text).arg(2).arg(&arguments.keys).arg(&arguments.words).arg(arguments.value);
        command
    };
    match send("EVALSHA", &script.sha).query_async(connection).await {
        Err(e) if e.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript) => {
            send("EVAL", &script.source).query_async(connection).await
        }
        reply => reply,
    }
}
