//! The load generator: clients with keep-alive connections, each of which buys again and again.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The replies that the clients got.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sold: u64,
    pub(crate) sold_out: u64,
    /// Replies that the lock was not available.
    pub(crate) no_lock: u64,
    /// Replies that a lease was lost, or that the stock refused a token.
    pub(crate) refused: u64,
    /// Requests that failed, or whose reply did not arrive. A client sends nothing after such a request.
    pub(crate) failed: u64,
    /// The time from each request until its reply, in microseconds.
    pub(crate) latencies_us: Vec<u64>,
    /// The time from the begin of the load until the last sale.
    pub(crate) took: Duration,
}

/// The bounds of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) clients: usize,
    /// No request is sent after this time.
    pub(crate) time: Duration,
    /// A reply must arrive within this time.
    pub(crate) reply_within: Duration,
}

/// Sends requests until the stock is sold out or the time is over. The clients are spread over the services in turn.
pub(crate) async fn hammer(services: &[SocketAddr], bounds: Bounds) -> Tally {
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for service in services.iter().cycle().take(bounds.clients) {
        clients.spawn(buy_all(*service, bounds, began));
    }
    let mut sum = Tally::default();
    while let Some(joined) = clients.join_next().await {
        match joined {
            Ok(tally) => sum.add(tally),
            Err(_) => sum.failed += 1,
        }
    }
    sum
}

/// Sends one request.
pub(crate) async fn buy_once(service: SocketAddr, reply_within: Duration) -> Tally {
    let mut tally = Tally::default();
    match Connection::open(service).await {
        Ok(mut connection) => tally.buy(&mut connection, reply_within, Instant::now()).await,
        Err(_) => tally.failed += 1,
    }
    tally
}

async fn buy_all(service: SocketAddr, bounds: Bounds, began: Instant) -> Tally {
    let mut tally = Tally::default();
    match Connection::open(service).await {
        Ok(mut connection) => {
            while began.elapsed() < bounds.time && tally.sold_out == 0 && tally.failed == 0 {
                tally.buy(&mut connection, bounds.reply_within, began).await;
            }
        }
        Err(_) => tally.failed += 1,
    }
    tally
}

impl Tally {
    async fn buy(&mut self, connection: &mut Connection, reply_within: Duration, began: Instant) {
        let sent = Instant::now();
        let Ok(Ok(status)) = timeout(reply_within, connection.buy()).await else {
            self.failed += 1;
            return;
        };
        self.latencies_us.push(u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX));
        match status {
            200 => {
                self.sold += 1;
                self.took = began.elapsed();
            }
            409 => self.sold_out += 1,
            412 => self.refused += 1,
            503 => self.no_lock += 1,
            _ => self.failed += 1,
        }
    }

    /// Adds the replies of other clients.
    pub(crate) fn add(&mut self, other: Self) {
        self.sold += other.sold;
        self.sold_out += other.sold_out;
        self.no_lock += other.no_lock;
        self.refused += other.refused;
        self.failed += other.failed;
        self.latencies_us.extend(other.latencies_us);
        self.took = self.took.max(other.took);
    }
}

/// A keep-alive connection. It knows as much of HTTP/1.1 as the services need.
struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Connection {
    async fn open(service: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(service).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, bytes: Vec::new() })
    }

    /// Buys one piece. Returns the status.
    async fn buy(&mut self) -> io::Result<u16> {
        self.stream.write_all(b"POST /buy HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n").await?;
        loop {
            if let Some((status, length)) = reply(&self.bytes) {
                self.bytes.drain(..length);
                return Ok(status);
            }
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Returns the status and the length of a reply, if it is complete.
fn reply(bytes: &[u8]) -> Option<(u16, usize)> {
    let end = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let body = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let length = end + body.unwrap_or(0);
    (bytes.len() >= length).then_some((status, length))
}
