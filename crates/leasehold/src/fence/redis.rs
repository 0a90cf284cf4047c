//! A Redis key behind two marks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_spec::Token;

use super::gate::{Access, Stale};
use super::script::{Reply, Scripts, digits, marks_key, word};
use super::server::{Arguments, Server, within};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::real::Real;
use crate::store::redis::{Source, Trouble};
use crate::world::World;

/// The longest time for a call. Callers connect one after another. If the server accepts connections but never replies,
/// the hundredth caller would otherwise wait for the attempts of ninety-nine others.
const CALL: Duration = Duration::from_secs(5);
/// The first attempt, and one more over a new connection if the old one was closed.
const ATTEMPTS: usize = 2;

/// Keys of a Redis that can be read and written only with a token.
///
/// ```no_run
/// # use leasehold::{Result, Token};
/// # use leasehold::fence::RedisFence;
/// # async fn sell(token: Token) -> Result<()> {
/// let fence = RedisFence::connect("redis://localhost").await?;
/// // `token` is that of the guard that is held.
/// let left = fence.get("stock:42", token).await?;
/// # let less = left.unwrap_or_default();
/// fence.set("stock:42", token, less).await?; // refused if a later holder has read or written
/// # Ok(())
/// # }
/// ```
///
/// The key is an ordinary string with any name, and other programs can read it with `GET`. Writes that do not go
/// through the fence are not checked. The marks are stored in a second key, in the same slot of a cluster: `stock:42`
/// has `lhf:{stock:42}`. The data may be in another Redis than the lock.
///
/// **The marks are kept for ever**: one string of 69 bytes for each key. A fence without its marks would accept old
/// tokens again. If your keys come and go, see [`RedisFence::forget_after`]. The marks are as durable as the data: a
/// failover that loses writes loses them from both.
///
/// # Round trips
///
/// Each call runs one script, in one round trip (two if the server does not know the script yet). The reply must come
/// within 2 s. If the connection is closed, the call opens a new one, once, and repeats the request. After 5 s a call
/// fails with [`ErrorKind::Unreachable`].
///
/// # Lost replies
///
/// A write is carried out once, however often it is sent and however late it arrives. Each write has a number. If a
/// write arrives after a later write of the same client and token, the script ignores it. (If several clients write
/// with *one* token, their writes have no order. A lock admits one holder, and that holder should use one client.)
///
/// If [`Error::may_have_acted`] is true, a write was sent without a reply, and it may still arrive. The next write
/// overtakes it for good, and so does [`enter`](RedisFence::enter) with [`Access::Write`]. A `get` after that returns
/// the final value.
///
/// # Cancel safety
///
/// If a future is dropped before it completes, its write may or may not be carried out, as described above.
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

/// The parts of a call.
struct Request<'a> {
    script: &'a Source,
    key: &'a str,
    token: Token,
    access: Access,
    value: Option<&'a [u8]>,
}

impl RedisFence {
    /// Connects to a Redis, version 7.0 or newer, and checks that it replies. The URL is that of
    /// [`Leasehold::connect`](crate::Leasehold::connect). A prefix in it is put before every key.
    ///
    /// The connection runs on the tokio runtime of this call. A later connection runs on the runtime of the call that
    /// opened it. If that runtime is blocked, a call on another runtime waits for it for 2 s, and then opens a
    /// connection of its own. (Locks need no runtime. This method, and every call of a fence, needs one.)
    ///
    /// # Errors
    ///
    /// `Invalid` or `Unsupported` for the URL, `Unreachable`, `Denied`; also `Unsupported` outside of a tokio runtime.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_in(url, Real::world()).await
    }

    /// Connects in the given world. For tests.
    #[doc(hidden)]
    pub async fn connect_in(url: &str, world: Arc<dyn World>) -> Result<Self> {
        Self::open(url, world).await.map_err(|error| error.of(Operation::Connect, None))
    }

    async fn open(url: &str, world: Arc<dyn World>) -> Result<Self> {
        let server = Server::at(url, world)?;
        if server.world.spawn(Box::pin(async {})).is_err() {
            let message = "a fence needs a tokio runtime: call this inside one, for example under #[tokio::main]";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut id = [0; 8];
        server.world.random(&mut id);
        let _connected = server.line().await?;
        let (scripts, id) = (Scripts::new(), u64::from_le_bytes(id));
        let shared = Shared { server, scripts, id, calls: AtomicU64::new(0) };
        Ok(Self { shared: Arc::new(shared), keep_ms: 0 })
    }

    /// Lets the marks of a key expire when nobody has entered for this long. Zero, the default, keeps them for ever.
    ///
    /// If a holder is stopped for longer than this and then continues, its writes are no longer refused. Choose a time
    /// far beyond the longest stop of a process: days, not leases. If several clients use different times, the last
    /// client to enter decides.
    #[must_use]
    pub fn forget_after(mut self, unused: Duration) -> Self {
        // One that is too small to be counted is still not "for ever".
        let ms = u64::try_from(unused.as_millis()).unwrap_or(u64::MAX).min(KEEP_MAX_MS);
        self.keep_ms = if unused.is_zero() { 0 } else { ms.max(1) };
        self
    }

    /// Enters without accessing the key. Use it to enter several keys before you read the first of them, or to guard a
    /// key that you access in another way.
    ///
    /// # Errors
    ///
    /// - `Lost`: the token is [stale](Stale).
    /// - `Foreign`: the key of the marks contains other data.
    /// - `Invalid`: the key is empty.
    /// - `Unreachable`, `Denied`, and `Store` for other errors of the server.
    pub async fn enter(&self, key: &str, token: Token, access: Access) -> Result<()> {
        let script = &self.shared.scripts.enter;
        self.call(&Request { script, key, token, access, value: None }).await.map(drop)
    }

    /// Enters to read, and returns the value, or `None` if the key does not exist.
    ///
    /// # Errors
    ///
    /// See [`RedisFence::enter`]. Also `Foreign` if the key is not a string.
    pub async fn get(&self, key: &str, token: Token) -> Result<Option<Vec<u8>>> {
        let script = &self.shared.scripts.get;
        match self.call(&Request { script, key, token, access: Access::Read, value: None }).await? {
            Reply::Value(value) => Ok(value),
            other => Err(garbled(&format!("{other:?}")).of(Operation::Fence, Some(key))),
        }
    }

    /// Enters to write, and sets the value. The expiry of the key, if any, stays.
    ///
    /// # Errors
    ///
    /// See [`RedisFence::get`]. Also `Store` if the server is out of memory.
    pub async fn set(&self, key: &str, token: Token, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(key, token, Some(value.as_ref())).await
    }

    /// Enters to write, and removes the key. Its marks stay.
    ///
    /// # Errors
    ///
    /// See [`RedisFence::set`].
    pub async fn remove(&self, key: &str, token: Token) -> Result<()> {
        self.write(key, token, None).await
    }

    async fn write(&self, key: &str, token: Token, value: Option<&[u8]>) -> Result<()> {
        let script = &self.shared.scripts.write;
        self.call(&Request { script, key, token, access: Access::Write, value }).await.map(drop)
    }

    async fn call(&self, request: &Request<'_>) -> Result<Reply> {
        if request.key.is_empty() {
            let message = "the key is empty: give the name of the key that the fence guards";
            return Err(Error::invalid(message).of(Operation::Fence, None));
        }
        let server = &self.shared.server;
        let answered = within(&*server.world, CALL, self.attempts(request)).await;
        let answered = answered.unwrap_or_else(|| Err(server.silent().may_act()));
        answered.map_err(|error| error.of(Operation::Fence, Some(request.key)))
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
                    "its marks belong in the key {marks:?}, which contains other data. It was not changed: guard \
                     another key, or delete {marks:?} if nothing needs it"
                ),
            )),
            Some(Reply::ForeignData) => {
                Err(Error::new(ErrorKind::Foreign, "the key is not a string: use `enter`, and access the key yourself"))
            }
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

/// The longest expiry that is used: 1,000 years. Redis refuses one that overflows its clock.
const KEEP_MAX_MS: u64 = 1_000 * 365 * 24 * 60 * 60 * 1_000;

/// Whether an earlier attempt of this call got no reply. Then a later error, also a stale token, does not mean that
/// nothing was done.
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
    Error::new(
        ErrorKind::Store,
        format!("unexpected reply {reply:?} to a script of the fence: is there a proxy in between?"),
    )
}
