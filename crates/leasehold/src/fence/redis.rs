//! A key in Redis behind two marks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_spec::Token;

use super::script::{Reply, Script, Scripts, digits, marks_key, word};
use super::server::{Arguments, Server, within};
use super::{Access, Stale};
use crate::error::{Error, ErrorKind, Result};
use crate::real::Real;
use crate::store::redis::Trouble;
use crate::world::World;

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
/// Each call is one script and one round trip, one more when the server has forgotten the script. An answer is awaited
/// for 2 s. A connection that has gone is replaced within the call, once, and the request repeated. After 5 s a call ends
/// with [`ErrorKind::Unreachable`].
///
/// # When the answer is lost
///
/// A write is carried out once, however often it is sent and however late it arrives: it goes by its number, and one that
/// comes after a later write of the same client and token is passed over. (Several clients that write with *one* token
/// are not put in order among each other: the lock lets one holder in, and that holder has one client.)
///
/// When [`Error::may_have_acted`] is true a write was sent whose answer never came, and it may still be on its way. The
/// next write overtakes it for good, and so does [`enter`](RedisFence::enter) to write; a `get` after that tells.
///
/// # Cancel safety
///
/// Dropping a future before it is ready leaves open whether a write is carried out, as above.
#[derive(Clone)]
pub struct RedisFence {
    shared: Arc<Shared>,
    keep_ms: u64,
}

struct Shared {
    server: Server,
    scripts: Scripts,
    /// This client, in the marks.
    id: u64,
    /// The number of the last call.
    calls: AtomicU64,
}

/// What a call is about.
struct Request<'a> {
    script: &'a Script,
    key: &'a str,
    token: Token,
    access: Access,
    value: Option<&'a [u8]>,
}

impl RedisFence {
    /// Connects to a Redis, 7.0 or newer, and shows that it answers. The URL is that of
    /// [`Leasehold::connect`](crate::Leasehold::connect); a prefix in it goes before every key.
    ///
    /// The connection runs on the tokio runtime that this is called on, a later one on that of the call that needed it.
    /// Where that runtime is blocked, a call on another one waits for it for 2 s, and makes a connection of its own.
    /// (Locks need no runtime; this, and each call of a fence, has to be made on one.)
    ///
    /// # Errors
    /// `Invalid` and `Unsupported` for the URL, `Unreachable`, `Denied`; `Unsupported` also where no tokio runtime is.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_in(url, Real::world()).await
    }

    /// Connects in a world of the caller's own.
    #[doc(hidden)]
    pub async fn connect_in(url: &str, world: Arc<dyn World>) -> Result<Self> {
        let server = Server::at(url, world)?;
        if server.world.spawn(Box::pin(async {})).is_err() {
            let message = "a fence needs a tokio runtime: call this on one, as in #[tokio::main]";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut id = [0; 8];
        server.world.random(&mut id);
        let _connected = server.line().await?;
        let (scripts, id) = (Scripts::new(), u64::from_le_bytes(id));
        let shared = Shared { server, scripts, id, calls: AtomicU64::new(0) };
        Ok(Self { shared: Arc::new(shared), keep_ms: 0 })
    }

    /// Lets the marks of a key expire when nobody has entered for so long. Zero is for ever, and the default.
    ///
    /// A holder that was stopped for longer than this, and goes on, is no longer refused. Choose it far beyond the
    /// longest time for which a process of yours can be stopped and come back: days, not leases. Of several clients that
    /// say different things the last one to enter decides.
    #[must_use]
    pub fn forget_after(mut self, unused: Duration) -> Self {
        // One that is too small to be counted is still not "for ever".
        let ms = u64::try_from(unused.as_millis()).unwrap_or(u64::MAX).min(KEEP_MAX_MS);
        self.keep_ms = if unused.is_zero() { 0 } else { ms.max(1) };
        self
    }

    /// Enters and leaves the key alone: to claim several keys before the first of them is read, or one that is then used
    /// in another way.
    ///
    /// # Errors
    /// `Lost` when the token is [stale](Stale), `Foreign` when something else stands where the marks should, `Invalid` for
    /// an empty key; `Unreachable`, `Denied`, and `Store` for the server's other errors.
    pub async fn enter(&self, key: &str, token: Token, access: Access) -> Result<()> {
        let script = &self.shared.scripts.enter;
        self.call(&Request { script, key, token, access, value: None }).await.map(drop)
    }

    /// Enters to read, and gives the value: `None` if there is no such key.
    ///
    /// # Errors
    /// As [`RedisFence::enter`]; `Foreign` also when the key is not a string.
    pub async fn get(&self, key: &str, token: Token) -> Result<Option<Vec<u8>>> {
        let script = &self.shared.scripts.get;
        match self.call(&Request { script, key, token, access: Access::Read, value: None }).await? {
            Reply::Value(value) => Ok(value),
            other => Err(garbled(&format!("{other:?}"))),
        }
    }

    /// Enters to write, and sets the value. An expiry of the key stays as it is.
    ///
    /// # Errors
    /// As [`RedisFence::get`]; `Store` also when the server's memory is full.
    pub async fn set(&self, key: &str, token: Token, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key, token, Some(value.as_ref())).await
    }

    /// Enters to write, and removes the key. Its marks stay.
    ///
    /// # Errors
    /// As [`RedisFence::set`].
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
        let server = &self.shared.server;
        let answered = within(&*server.world, CALL, self.attempts(request)).await;
        answered.unwrap_or_else(|| Err(server.silent().may_act()))
    }

    async fn attempts(&self, request: &Request<'_>) -> Result<Reply> {
        let server = &self.shared.server;
        // One number for all attempts: it is one write.
        let arguments = self.arguments(request);
        let mut sent = Sent::Never;
        let mut trouble = None;
        for _ in 0..ATTEMPTS {
            let (number, mut connection) = server.line().await.map_err(|e| sent.mark(e))?;
            match server.run(&mut connection, request.script, &arguments).await {
                Ok(bytes) => return self.judge(&bytes, request).map_err(|e| sent.mark(e)),
                Err(Trouble::Refused(error) | Trouble::NoMemory(error)) => return Err(sent.mark(error)),
                Err(Trouble::Elsewhere(error)) => trouble = Some(error),
                Err(Trouble::Unanswered(error)) => {
                    sent = Sent::Unanswered;
                    trouble = Some(error);
                }
            }
            server.hang_up(number);
        }
        Err(sent.mark(trouble.expect("a loop of two attempts was left after a failed one")))
    }

    fn arguments<'a>(&self, request: &Request<'a>) -> Arguments<'a> {
        let call = self.shared.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let guarded = self.shared.server.key(request.key);
        Arguments {
            keys: [marks_key(&guarded), guarded],
            words: [
                word(request.access).to_owned(),
                digits(request.token.get()),
                format!("{:016x}", self.shared.id),
                digits(call),
                self.keep_ms.to_string(),
            ],
            value: request.value,
        }
    }

    fn judge(&self, bytes: &[u8], request: &Request<'_>) -> Result<Reply> {
        let key = self.shared.server.key(request.key);
        let marks = marks_key(&key);
        match Reply::parse(bytes) {
            Some(Reply::Stale(mark)) => Err(Stale { token: request.token, mark, access: request.access }.into()),
            Some(Reply::ForeignMarks) => Err(Error::new(
                ErrorKind::Foreign,
                format!(
                    "the key {marks:?} should have the fence marks of {key:?}, and has something that this Leasehold \
                     did not write. It was left alone: guard another key, or remove it if nothing needs it"
                ),
            )),
            Some(Reply::ForeignData) => Err(Error::new(
                ErrorKind::Foreign,
                format!("the key {key:?} is not a string: use `enter`, and read and write it in your own way"),
            )),
            Some(reply) => Ok(reply),
            None => Err(garbled(&String::from_utf8_lossy(&bytes[..bytes.len().min(80)])).may_act()),
        }
    }
}

impl fmt::Debug for RedisFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisFence").field("server", &self.shared.server.address()).finish_non_exhaustive()
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

fn garbled(reply: &str) -> Error {
    Error::new(ErrorKind::Store, format!("a script of the fence answered {reply:?}: is a proxy in between?"))
}
