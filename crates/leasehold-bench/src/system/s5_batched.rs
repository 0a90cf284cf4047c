//! The textbook lock in batches: what `s5` does, with up to [`NAMES`] names in one script. It has no queue, no token and no
//! renewal, as `s5`. Compared with `s5`, it shows what batches save. Compared with
//! Leasehold, it shows what the lock itself costs, because both send batches.
//!
//! - A request joins a batch if at least three others are in flight. Otherwise it is sent at once, as `s5` sends it.
//! - When a request joins, the task that sends batches first lets all tasks that are ready run. Then it sends what has
//!   joined. The releases of a script share one MGET and one DEL.
//! - In each turn, this task delivers the replies of about a quarter of the requests in flight. Their tasks send new
//!   requests while the server works on the rest. Otherwise client and server would idle in turn.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{self, Poll};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult};
use tokio::sync::{mpsc, oneshot};
use tokio::task::unconstrained;

use super::s5::{POLL, S5, S5Lock};
use super::{Client, LEASE_MS, Lock, load};
use crate::error::{Context, Result};

/// The number of names in one script: that of Leasehold's batches.
const NAMES: usize = 16;
/// With fewer requests in flight, a request is sent alone.
const CROWD: usize = 4;
/// The share of the requests in flight that gets its replies in one turn: one in so many.
const SHARE: usize = 4;

#[derive(Clone)]
pub(crate) struct S5Batched {
    alone: S5,
    joining: mpsc::UnboundedSender<Request>,
    in_flight: Arc<AtomicUsize>,
}

/// Releases come before acquires in a batch: a name that is released in it can be acquired in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Op {
    Release,
    Acquire,
}

struct Request {
    op: Op,
    key: Arc<str>,
    value: Arc<str>,
    reply: oneshot::Sender<RedisResult<bool>>,
}

impl Client for S5Batched {
    type Lock = S5BatchedLock;

    async fn connect(url: &str) -> Result<Self> {
        let alone = S5::connect(url).await?;
        let mut connection = alone.connection.clone();
        let script = load(&mut connection, include_str!("s5_batched.lua")).await?;
        let (joining, joined) = mpsc::unbounded_channel();
        let in_flight = Arc::default();
        let mut batches = Batches {
            connection,
            script,
            joined,
            in_flight: Arc::clone(&in_flight),
            sent: VecDeque::new(),
            has_yielded: false,
        };
        // Unconstrained: a reply that has come must not be held back.
        tokio::spawn(unconstrained(async move { poll_fn(|context| batches.take_turn(context)).await }));
        Ok(Self { alone, joining, in_flight })
    }

    fn lock(&self, name: String) -> S5BatchedLock {
        let alone = self.alone.lock(name);
        S5BatchedLock { client: self.clone(), key: alone.key.as_str().into(), alone }
    }
}

pub(crate) struct S5BatchedLock {
    client: S5Batched,
    alone: S5Lock,
    key: Arc<str>,
}

impl S5BatchedLock {
    async fn ask(&self, op: Op, value: &Arc<str>) -> Result<bool> {
        let in_flight = &self.client.in_flight;
        let others = in_flight.fetch_add(1, Ordering::Relaxed);
        let done = match op {
            _ if others + 1 >= CROWD => self.join(op, value).await,
            Op::Release => self.alone.try_release(value).await,
            Op::Acquire => self.alone.try_acquire(value).await,
        };
        in_flight.fetch_sub(1, Ordering::Relaxed);
        done
    }

    async fn join(&self, op: Op, value: &Arc<str>) -> Result<bool> {
        let (reply, replied) = oneshot::channel();
        let request = Request { op, key: Arc::clone(&self.key), value: Arc::clone(value), reply };
        // If the task is gone, so is the other end of the reply.
        drop(self.client.joining.send(request));
        replied.await.context("s5-batched: the connection is gone")?.context("s5-batched")
    }
}

impl Lock for S5BatchedLock {
    type Held<'lock> = Arc<str>;

    async fn acquire(&self) -> Result<Arc<str>> {
        let value = self.client.alone.new_value().into();
        // As in `s5`, the caller's time limit ends this loop.
        while !self.ask(Op::Acquire, &value).await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(value)
    }

    async fn release(&self, value: Arc<str>) -> Result<()> {
        match self.ask(Op::Release, &value).await? {
            true => Ok(()),
            false => Err(format!("s5-batched: {} was not held any more", self.key).into()),
        }
    }

    fn token(_held: &Arc<str>) -> Option<u64> {
        None
    }
}

/// The task that sends batches and delivers their replies.
struct Batches {
    connection: MultiplexedConnection,
    script: String,
    joined: mpsc::UnboundedReceiver<Request>,
    in_flight: Arc<AtomicUsize>,
    /// In the order of their replies.
    sent: VecDeque<Sent>,
    has_yielded: bool,
}

struct Sent {
    asking: Pin<Box<dyn Future<Output = RedisResult<Vec<u8>>> + Send>>,
    batch: Vec<Request>,
}

impl Batches {
    /// Ends when all clients are gone.
    fn take_turn(&mut self, context: &mut task::Context<'_>) -> Poll<()> {
        self.has_yielded = !self.has_yielded;
        if self.has_yielded {
            // The runtime puts this task behind all others that are ready.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let turn = self.send(context);
        self.deliver(context);
        turn
    }

    /// Sends what has joined. Ends when nobody can join any more.
    fn send(&mut self, context: &mut task::Context<'_>) -> Poll<()> {
        let mut unsent = Vec::new();
        let turn = loop {
            match self.joined.poll_recv_many(context, &mut unsent, usize::MAX) {
                Poll::Ready(0) => break Poll::Ready(()),
                Poll::Ready(_) => {}
                Poll::Pending => break Poll::Pending,
            }
        };
        unsent.sort_by_key(|request| request.op);
        let mut unsent = unsent.into_iter().peekable();
        while unsent.peek().is_some() {
            let batch: Vec<Request> = unsent.by_ref().take(NAMES).collect();
            let (command, mut connection) = (command(&self.script, &batch), self.connection.clone());
            let mut asking = Box::pin(async move { command.query_async(&mut connection).await });
            // The first poll sends it.
            match asking.as_mut().poll(context) {
                Poll::Pending => self.sent.push_back(Sent { asking, batch }),
                Poll::Ready(reply) => deliver(&reply, batch),
            }
        }
        turn
    }

    /// Delivers replies to a share of the requests in flight. If there are more, this task is woken for its next turn.
    fn deliver(&mut self, context: &mut task::Context<'_>) {
        let limit = (self.in_flight.load(Ordering::Relaxed) / SHARE).max(1);
        let mut delivered = 0;
        while let Some(Sent { asking, batch }) = self.sent.front_mut() {
            if delivered >= limit {
                context.waker().wake_by_ref();
                return;
            }
            let Poll::Ready(reply) = asking.as_mut().poll(context) else { return };
            delivered += batch.len();
            deliver(&reply, std::mem::take(batch));
            self.sent.pop_front();
        }
    }
}

fn command(script: &str, batch: &[Request]) -> Cmd {
    let releases = batch.iter().filter(|request| request.op == Op::Release).count();
    let mut command = redis::cmd("EVALSHA");
    command.arg(script).arg(batch.len());
    for request in batch {
        command.arg(&*request.key);
    }
    command.arg(LEASE_MS).arg(releases);
    for request in batch {
        command.arg(&*request.value);
    }
    command
}

fn deliver(reply: &RedisResult<Vec<u8>>, batch: Vec<Request>) {
    for (at, request) in batch.into_iter().enumerate() {
        let done = reply.as_ref().map(|digits| digits.get(at) == Some(&b'1')).map_err(Clone::clone);
        // If the receiver is gone, its task was dropped: the run is over.
        drop(request.reply.send(done));
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::RedisServer;
    use tokio::task::JoinSet;

    use super::*;

    fn request(op: Op, key: &str) -> (Request, oneshot::Receiver<RedisResult<bool>>) {
        let (reply, replied) = oneshot::channel();
        (Request { op, key: key.into(), value: format!("of {key}").into(), reply }, replied)
    }

    #[test]
    fn a_command_has_all_names_and_values_in_order() {
        let batch = [request(Op::Release, "a").0, request(Op::Acquire, "b").0, request(Op::Acquire, "c").0];
        let packed = String::from_utf8(command("sha", &batch).get_packed_command()).unwrap();
        let words: Vec<_> = packed.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
        assert_eq!(words.join(" "), "EVALSHA sha 3 a b c 30000 1 of a of b of c ");
    }

    #[test]
    fn each_request_gets_its_digit_or_the_error() {
        let batch =
            || -> (Vec<Request>, Vec<_>) { ["a", "b"].map(|key| request(Op::Acquire, key)).into_iter().unzip() };
        let (requests, mut replied) = batch();
        deliver(&Ok(b"10".to_vec()), requests);
        assert_eq!(replied.iter_mut().map(|one| one.try_recv().unwrap().unwrap()).collect::<Vec<_>>(), [true, false]);
        let (requests, mut replied) = batch();
        deliver(&Err((redis::ErrorKind::Client, "no").into()), requests);
        assert!(replied.iter_mut().all(|one| one.try_recv().unwrap().is_err()));
    }

    /// Some of the values are foreign. Some names are released and acquired in one batch.
    #[tokio::test]
    async fn a_script_serves_each_name_as_if_it_were_alone() {
        let server = RedisServer::start();
        let client = S5Batched::connect(&server.url()).await.unwrap();
        let ask = async |requests: &[(Op, usize, &'static str)]| {
            let mut tasks = JoinSet::new();
            for (at, &(op, name, value)) in requests.iter().enumerate() {
                let lock = client.lock(name.to_string());
                tasks.spawn(async move { (at, lock.join(op, &value.into()).await.unwrap()) });
            }
            let mut replies = tasks.join_all().await;
            replies.sort_unstable();
            replies.into_iter().map(|(_, is_done)| is_done).collect::<Vec<_>>()
        };
        let all = |op, value| (0..40).map(|name| (op, name, value)).collect::<Vec<_>>();
        assert_eq!(ask(&all(Op::Acquire, "mine")).await, [true; 40]);
        assert_eq!(ask(&all(Op::Acquire, "other")).await, [false; 40]);
        assert_eq!(ask(&all(Op::Release, "other")).await, [false; 40]);
        let both =
            [(Op::Acquire, 0, "next"), (Op::Release, 0, "mine"), (Op::Release, 1, "mine"), (Op::Release, 50, "mine")];
        assert_eq!(ask(&both).await, [true, true, true, false]);
        let left = all(Op::Release, "mine").split_off(2);
        assert_eq!(ask(&left).await, [true; 38]);
        assert_eq!(ask(&[(Op::Release, 0, "next"), (Op::Acquire, 1, "next")]).await, [true, true]);
    }
}
