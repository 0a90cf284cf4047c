//! A key in Redis behind two marks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_spec::Token;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, ServerErrorKind};
use tokio::sync::Mutex;

use super::script::{Reply, Script, Scripts, digits, marks_key, word};
use super::{Access, Stale};
use crate::error::{Error, ErrorKind, Result};

/// How long one attempt to connect, and one answer, may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a call may take. Connecting happens one by one: behind a server that swallows everything, the hundredth caller
/// would otherwise wait for the attempts of ninety-nine.
const CALL: Duration = Duration::from_secs(5);
/// The first, and another one over a new connection where the old one was gone.
const ATTEMPTS: usize = 2;

/// Keys of a Redis that are read and written with a token only.
///
/// ```no_run
/// # use leasehold::{Result, Token};
/// # use leasehold::fence::RedisFence;
/// # async fn sell(token: Token) -> Result<()> {
/// let fence = RedisFence::connect("redis://localhost").await?;
/// // `token` is that of the guard that is held.
/// let left = fence.get("stock:42", token).await?;
/// # let less = left.unwrap_or_default();
/// fence.set("stock:42", token, less).await?; // refused if a later holder has as much as read it
/// # Ok(())
/// # }
/// ```
///
/// The key is an ordinary string, of any name, and other programs read it with `GET`. What they write past the fence is
/// not checked. Beside it, in the same slot of a cluster, stand its marks: `stock:42` has `lhf:{stock:42}`. It need not
/// be the Redis that the lock is on.
///
/// **The marks are kept for ever**, one string of 69 bytes for each key, because a fence forgets with them whom it has
/// seen: where keys come and go, see [`RedisFence::forget_after`]. They are as durable as the data: what a failover
/// takes back of the one it takes back of the other.
///
/// # Round trips
///
/// Each call is one script and one round trip; one more when the server has forgotten the script. An answer is awaited
/// for 2 s. A connection that has gone is replaced within the call, once, and the request repeated. After 5 s a call ends
/// with [`ErrorKind::Unreachable`].
///
/// # When the answer is lost
///
/// A write is carried out once, however often it is sent and however late it arrives: it goes by its number, and one that
/// comes after a later write of the same client and token is passed over. (Several clients that write with *one* token
/// are not put in order among each other: the lock lets one holder in, and that holder has one client.) When
/// [`Error::may_have_acted`] is true a write was sent whose answer never came; a read with the same token tells.
///
/// # Cancel safety
///
/// Dropping a future before it is ready leaves open whether the request is carried out, and when. It does not disturb
/// later calls: a write that was dropped never comes after them.
#[derive(Clone)]
pub struct RedisFence {
    shared: Arc<Shared>,
    keep_ms: u64,
}

struct Shared {
    client: Client,
    scripts: Scripts,
    /// This client, in the marks.
    id: u64,
    /// The number of the last call.
    calls: AtomicU64,
    line: Mutex<Line>,
}

/// The present connection, and which one it is, counted from the first.
#[derive(Default)]
struct Line {
    number: u64,
    connection: Option<MultiplexedConnection>,
}

/// What a call is about.
struct Request<'a> {
    script: &'a Script,
    key: &'a str,
    token: Token,
    access: Access,
    value: Option<&'a [u8]>,
}

/// Why an attempt brought no reply.
enum Trouble {
    /// The server's last word.
    Answered(Error),
    /// The server is not, or no longer, the one to ask, and did nothing.
    Elsewhere(Error),
    /// Nobody knows what became of the request.
    Gone(Error),
}

impl RedisFence {
    /// Connects, and shows that the server answers: `redis://[user:password@]host[:port][/database]`.
    ///
    /// The connection runs on the tokio runtime that this is called on, a later one on that of the call that needed it.
    pub async fn connect(url: &str) -> Result<Self> {
        let client = open(url)?;
        let id = getrandom::u64().map_err(|e| Error::new(ErrorKind::Store, "no random numbers").because(e))?;
        let shared =
            Shared { client, scripts: Scripts::new(), id, calls: AtomicU64::new(0), line: Mutex::new(Line::default()) };
        let (_, mut connection) = shared.line().await?;
        match Cmd::new().arg("PING").query_async::<()>(&mut connection).await {
            Ok(()) => Ok(Self { shared: Arc::new(shared), keep_ms: 0 }),
            Err(e) => Err(shared.trouble(&e).before_sending()),
        }
    }

    /// Lets the marks of a key expire when nobody has entered for so long. Zero is for ever, and the default.
    ///
    /// A holder that was stopped for longer than this, and goes on, is no longer refused. Choose it far beyond the
    /// longest time for which a process of yours can be stopped and come back: days, not leases.
    #[must_use]
    pub fn forget_after(mut self, unused: Duration) -> Self {
        // One that is too small to be counted is still not "for ever".
        let ms = u64::try_from(unused.as_millis()).unwrap_or(u64::MAX).min(KEEP_MAX_MS);
        self.keep_ms = if unused.is_zero() { 0 } else { ms.max(1) };
        self
    }

    /// Enters and leaves the key alone: to claim several keys before the first of them is read, or one that is then used
    /// in another way.
    pub async fn enter(&self, key: &str, token: Token, access: Access) -> Result<()> {
        let script = &self.shared.scripts.enter;
        self.call(&Request { script, key, token, access, value: None }).await.map(drop)
    }

    /// Enters to read, and gives the value: `None` if there is no such key.
    pub async fn get(&self, key: &str, token: Token) -> Result<Option<Vec<u8>>> {
        let script = &self.shared.scripts.get;
        match self.call(&Request { script, key, token, access: Access::Read, value: None }).await? {
            Reply::Value(value) => Ok(value),
            other => Err(garbled(&format!("{other:?}"))),
        }
    }

    /// Enters to write, and sets the value. An expiry of the key stays as it is.
    pub async fn set(&self, key: &str, token: Token, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key, token, Some(value.as_ref())).await
    }

    /// Enters to write, and removes the key. Its marks stay.
    pub async fn remove(&self, key: &str, token: Token) -> Result<()> {
        self.write(key, token, None).await
    }

    async fn write(&self, key: &str, token: Token, value: Option<&[u8]>) -> Result<()> {
        let script = &self.shared.scripts.write;
        self.call(&Request { script, key, token, access: Access::Write, value }).await.map(drop)
    }

    async fn call(&self, request: &Request<'_>) -> Result<Reply> {
        if request.key.is_empty() {
            return Err(Error::invalid("the key is empty: a fence guards a key that has a name"));
        }
        match tokio::time::timeout(CALL, self.attempts(request)).await {
            Ok(reply) => reply,
            Err(_) => Err(self.shared.silent().may_act()),
        }
    }

    async fn attempts(&self, request: &Request<'_>) -> Result<Reply> {
        let shared = &self.shared;
        // One number for all attempts: it is one write.
        let command = Arguments::of(request, shared, self.keep_ms);
        let mut sent = Sent::Never;
        let mut trouble = None;
        for _ in 0..ATTEMPTS {
            let (number, mut connection) = shared.line().await.map_err(|e| sent.mark(e))?;
            match run(&mut connection, request.script, &command).await {
                Ok(bytes) => return shared.judge(&bytes, request).map_err(|e| sent.mark(e)),
                Err(e) => match shared.trouble(&e) {
                    Trouble::Answered(error) => return Err(sent.mark(error)),
                    Trouble::Elsewhere(error) => trouble = Some(error),
                    Trouble::Gone(error) => {
                        sent = Sent::Unanswered;
                        trouble = Some(error);
                    }
                },
            }
            shared.hang_up(number).await;
        }
        Err(sent.mark(trouble.expect("a loop of two attempts was left after a failed one")))
    }
}

impl fmt::Debug for RedisFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFence").field("server", &self.shared.address()).finish_non_exhaustive()
    }
}

/// The longest expiry that is asked for, 1,000 years: Redis refuses one that overflows its clock.
const KEEP_MAX_MS: u64 = 1_000 * 365 * 24 * 60 * 60 * 1_000;

/// Whether an earlier attempt of this call is still without an answer. An error after it, a stale token included, does
/// not say that nothing was done.
#[derive(Clone, Copy)]
enum Sent {
    Never,
    Unanswered,
}

impl Sent {
    fn mark(self, error: Error) -> Error {
        match self {
            Self::Never => error,
            Self::Unanswered => error.may_act(),
        }
    }
}

/// What a script gets.
struct Arguments<'a> {
    keys: [String; 2],
    words: [String; 5],
    value: Option<&'a [u8]>,
}

impl<'a> Arguments<'a> {
    fn of(request: &Request<'a>, shared: &Shared, keep_ms: u64) -> Self {
        let call = shared.calls.fetch_add(1, Ordering::Relaxed) + 1;
        Self {
            keys: [marks_key(request.key), request.key.to_owned()],
            words: [
                word(request.access).to_owned(),
                digits(request.token.get()),
                format!("{:016x}", shared.id),
                digits(call),
                keep_ms.to_string(),
            ],
            value: request.value,
        }
    }
}

/// By the script's name, and by its text where the server does not know it (it restarted, or somebody flushed it).
async fn run(
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

impl Shared {
    async fn line(&self) -> Result<(u64, MultiplexedConnection)> {
        // Locked while connecting: of many callers that find the connection gone one makes the next.
        let mut line = self.line.lock().await;
        if let Some(connection) = &line.connection {
            return Ok((line.number, connection.clone()));
        }
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|e| self.trouble(&e).before_sending())?;
        line.number += 1;
        line.connection = Some(connection.clone());
        Ok((line.number, connection))
    }

    /// Gives a connection up, unless another caller did so before.
    async fn hang_up(&self, number: u64) {
        let mut line = self.line.lock().await;
        if line.number == number {
            line.connection = None;
        }
    }

    fn judge(&self, bytes: &[u8], request: &Request<'_>) -> Result<Reply> {
        let (key, marks) = (request.key, marks_key(request.key));
        match Reply::parse(bytes) {
            Some(Reply::Stale(mark)) => Err(Stale { token: request.token, mark, access: request.access }.into()),
            Some(Reply::ForeignMarks) => Err(Error::new(
                ErrorKind::Foreign,
                format!(
                    "the key {marks:?} should have the fence marks of {key:?}, and has something that this Leasehold did \
                     not write. It was left alone: guard another key, or remove it if nothing needs it"
                ),
            )),
            Some(Reply::ForeignData) => Err(Error::new(
                ErrorKind::Foreign,
                format!("the key {key:?} is not a string: use `enter`, and read and write it in your own way"),
            )),
            Some(reply) => Ok(reply),
            None => Err(garbled(&String::from_utf8_lossy(&bytes[..bytes.len().min(80)]))),
        }
    }

    fn trouble(&self, error: &RedisError) -> Trouble {
        let because = |kind, message: String| Error::new(kind, message).because(error.to_string());
        let server = self.address();
        // What a script may not do is told without a code, and in other words from 7.2 on.
        let detail = error.detail().unwrap_or_default();
        let lacks_right = detail.contains("user executing the script") || detail.contains("ACL failure");
        let is_denied = lacks_right || error.kind() == redis::ErrorKind::AuthenticationFailed;
        match error.code() {
            code if is_denied || matches!(code, Some("NOAUTH" | "WRONGPASS" | "NOPERM")) => Trouble::Answered(because(
                ErrorKind::Denied,
                format!("the Redis at {server} refuses this user: check the password, and the user's rights"),
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

    fn silent(&self) -> Error {
        Error::new(ErrorKind::Unreachable, format!("the Redis at {} does not answer", self.address()))
    }

    fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }
}

impl Trouble {
    /// The error of a connection that carried no request yet.
    fn before_sending(self) -> Error {
        let (Self::Answered(error) | Self::Elsewhere(error) | Self::Gone(error)) = self;
        error
    }
}

/// Never repeats the URL: it may have a password in it.
fn open(url: &str) -> Result<Client> {
    let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
    if ["rediss", "valkeys"].contains(&scheme) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("`{scheme}://` needs TLS, which this fence does not speak: use `redis://` over a tunnel"),
        ));
    }
    Client::open(url).map_err(|_| {
        Error::invalid("the URL is not one of a Redis: `redis://[user:password@]host[:port][/database]` is expected")
    })
}

fn garbled(reply: &str) -> Error {
    Error::new(ErrorKind::Store, format!("a script of the fence answered {reply:?}: is a proxy in between?"))
}
