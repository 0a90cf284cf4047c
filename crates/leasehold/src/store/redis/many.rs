//! Sends the acquires and releases of many tasks in one script (P53).
//!
//! Starting and ending a script costs the server more than the commands in it. So requests that leave in one write leave in
//! one script of at most [`NAMES`] names. The script serves every name in full, in the order of the requests.
//!
//! - A request joins a batch while at least three others are in flight. Otherwise it is sent at once, by its own script.
//! - The driver sends the joined requests with its next write. Before any other request of the link is sent, the joined
//!   requests are sent. So the server gets all requests in the order in which their futures were first polled.
//! - In each turn, the driver delivers the replies of about a quarter of the requests in flight. These tasks send their
//!   next requests while the rest waits. Otherwise client and server would idle in turn.
//! - If the server refuses a batch, or does not know the script, each of its requests is sent alone, unless its caller is
//!   gone. A repeat is safe (P2, P3). If an acquire arrives after its leave, the client sends the leave again (P14).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Acquire, Op};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Value};
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use super::batch_call::{Part, batch_call};
use super::fault::is_forgotten;
use super::keys::Keys;
use super::reply;
use super::scripts::Script;
use crate::world::Pending;

/// The number of names in one script. The server serves nobody else during a script.
const NAMES: usize = RENEW_BATCH;

/// The part of the reply to a batch that concerns one request.
pub(super) enum BatchReply {
    /// The short reply of its script, at this time of the server.
    Short(u64),
    /// Any other reply.
    Full(String),
    /// The request is to be sent alone: the server refused the batch, did not know its script or stopped it, or the batch
    /// could not be built.
    SendAlone,
    /// The connection broke before the reply.
    Broken(RedisError),
    /// The reply to the batch makes no sense.
    Garbled,
}

type Reply = Result<Value, RedisError>;
type ReplySender = oneshot::Sender<BatchReply>;

/// Requests that leave in one script.
#[derive(Default)]
struct Batch {
    /// The first acquire: all of them have its terms.
    acquire: Option<Acquire>,
    requests: Vec<(Part, ReplySender)>,
}

/// The batches of one link.
#[derive(Default)]
pub(super) struct Batches {
    /// Whether requests have joined that are not sent yet. It becomes false only after they were sent.
    has_unsent: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The connection of the link, once a batch was sent.
    connection: Option<MultiplexedConnection>,
    unsent: Option<Unsent>,
    sent: VecDeque<Sent>,
    is_closed: bool,
}

/// Batches that are not sent yet.
struct Unsent {
    connection: MultiplexedConnection,
    keys: Keys,
    batches: Vec<Batch>,
}

/// A batch that was sent.
struct Sent {
    asking: Pending<Reply>,
    reply: Option<Reply>,
    batch: Batch,
}

/// Whether one script can serve both: the acquires of a batch share their session and all terms. Only their names,
/// counters, nonces and times differ.
fn share_terms(one: &Acquire, other: &Acquire) -> bool {
    (one.id.session, one.lease_ms, one.range, &one.label, &one.patience)
        == (other.id.session, other.lease_ms, other.range, &other.label, &other.patience)
}

impl Batches {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether requests have joined that are not sent yet.
    pub(super) fn has_unsent(&self) -> bool {
        self.has_unsent.load(Ordering::Acquire)
    }

    /// Adds a request to the last batch, or begins one. Returns the receiver of its reply, and whether the driver must be
    /// woken. `None`: the link is closed.
    pub(super) fn join(
        &self,
        connection: &MultiplexedConnection,
        keys: &Keys,
        (part, op): (Part, &Op),
    ) -> Option<(oneshot::Receiver<BatchReply>, bool)> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        if state.is_closed {
            return None;
        }
        let is_first = state.unsent.is_none();
        let unsent = state.unsent.get_or_insert_with(|| Unsent {
            connection: connection.clone(),
            keys: keys.clone(),
            batches: Vec::new(),
        });
        unsent.add((part, op), sender);
        self.has_unsent.store(true, Ordering::Release);
        Some((receiver, is_first))
    }

    /// Sends what has joined.
    pub(super) fn send(&self) {
        if !self.has_unsent() {
            return;
        }
        let mut invalid = Vec::new();
        let mut state = self.lock();
        let Some(Unsent { connection, keys, batches }) = state.unsent.take() else { return };
        for mut batch in batches {
            // As the client crate does: a request whose caller is gone is not sent.
            batch.requests.retain(|(_, sender)| !sender.is_closed() || is_on(Mutant::P53SendsGivenUp));
            if batch.requests.is_empty() {
                continue;
            }
            match batch_call(&keys, batch.acquire.as_ref(), batch.requests.iter().map(|(part, _)| part)) {
                Ok(call) => state.sent.push_back(Sent::new(&connection, call.into_command(), batch)),
                Err(_) => invalid.push(batch),
            }
        }
        state.connection = Some(connection);
        // Not before: a request that finds it false goes to the client crate at once.
        self.has_unsent.store(false, Ordering::Release);
        drop(state);
        // Sent alone, the invalid request gets its own error.
        invalid.into_iter().for_each(|batch| deliver_all(batch, || BatchReply::SendAlone));
    }

    /// Delivers the replies that have come, to so many requests. If there are more, the task is woken for its next turn.
    /// Returns whether all replies make sense. If one does not, no later one is believed.
    pub(super) fn deliver(&self, limit: usize, context: &Context<'_>) -> bool {
        let mut delivered = 0;
        loop {
            let mut state = self.lock();
            if !state.sent.front_mut().is_some_and(Sent::poll_reply) {
                return true;
            }
            if delivered >= limit {
                context.waker().wake_by_ref();
                return true;
            }
            let Some(sent) = state.sent.pop_front() else { return true };
            if sent.reply.as_ref().is_some_and(is_forgotten) {
                state.load();
            }
            drop(state);
            delivered += sent.batch.requests.len();
            if !sent.deliver() {
                let rest = std::mem::take(&mut self.lock().sent);
                deliver_garbled(rest);
                return false;
            }
        }
    }

    /// Ends all requests, because the link is closed. Those whose reply has come get it. The others learn from their
    /// receivers that the link is gone.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let unsent = state.unsent.take();
        self.has_unsent.store(false, Ordering::Release);
        let sent = std::mem::take(&mut state.sent);
        drop(state);
        let mut sent = sent.into_iter();
        if !sent.by_ref().all(Sent::deliver) {
            deliver_garbled(sent);
        }
        drop(unsent);
    }
}

impl Unsent {
    fn add(&mut self, (part, op): (Part, &Op), sender: ReplySender) {
        let acquire = if let Op::Acquire(acquire) = op { Some(acquire) } else { None };
        let admits = |batch: &&mut Batch| {
            let of_batch = batch.acquire.as_ref().zip(acquire);
            batch.requests.len() < NAMES && of_batch.is_none_or(|(one, other)| share_terms(one, other))
        };
        let is_new = self.batches.last_mut().filter(admits).is_none();
        if is_new {
            self.batches.push(Batch { acquire: None, requests: Vec::with_capacity(NAMES) });
        }
        if let Some(batch) = self.batches.last_mut() {
            batch.acquire = batch.acquire.take().or_else(|| acquire.cloned());
            batch.requests.push((part, sender));
        }
    }
}

impl State {
    /// Has the server load the script again. The requests of later batches come behind that.
    fn load(&mut self) {
        let Some(connection) = self.connection.as_ref() else { return };
        let mut command = redis::cmd("SCRIPT");
        command.arg("LOAD").arg(Script::Many.source());
        self.sent.push_back(Sent::new(connection, command, Batch::default()));
    }
}

impl Sent {
    /// Sends a command for a batch. Requests that are sent later come after it.
    fn new(connection: &MultiplexedConnection, command: Cmd, batch: Batch) -> Self {
        let mut connection = connection.clone();
        let asking = async move { connection.send_packed_command(&command).await?.extract_error() };
        let mut sent = Self { asking: Box::pin(asking), reply: None, batch };
        sent.poll_reply();
        sent
    }

    /// Polls the command. The first poll sends it. Returns whether the reply has come.
    fn poll_reply(&mut self) -> bool {
        if self.reply.is_none() {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(reply) = pin!(unconstrained(self.asking.as_mut())).poll(&mut context) {
                self.reply = Some(reply);
            }
        }
        self.reply.is_some()
    }

    /// Delivers the reply, if it has come. Otherwise the receivers learn that the link is gone. Returns whether the reply
    /// makes sense.
    fn deliver(mut self) -> bool {
        if self.batch.requests.is_empty() || !self.poll_reply() {
            return true;
        }
        let (Some(reply), batch) = (self.reply, self.batch) else { return true };
        let text = match reply {
            // A damaged record may have bytes that are no text. They concern only its own name.
            Ok(Value::BulkString(text)) => String::from_utf8_lossy(&text).into_owned(),
            Ok(_) => String::new(),
            // Sent alone, each request learns why.
            Err(error) if error.code().is_some() => {
                deliver_all(batch, || BatchReply::SendAlone);
                return true;
            }
            Err(error) => {
                deliver_all(batch, || BatchReply::Broken(error.clone()));
                return true;
            }
        };
        let Some((now_us, full)) = reply::of_many(&text, batch.requests.len()) else {
            deliver_all(batch, || BatchReply::Garbled);
            return false;
        };
        let mut full = full.into_iter().peekable();
        for (number, (_, sender)) in (1..).zip(batch.requests) {
            let reply = match full.next_if(|(at, _)| *at == number) {
                Some((_, text)) => BatchReply::Full(text.to_owned()),
                None => BatchReply::Short(now_us),
            };
            // If the caller has dropped its future, nobody needs the reply: the session sends a leave.
            drop(sender.send(reply));
        }
        true
    }
}

/// After a reply that makes no sense, no later one is believed: it may be the reply to another batch. The store may have
/// carried these batches out.
fn deliver_garbled(sent: impl IntoIterator<Item = Sent>) {
    sent.into_iter().for_each(|sent| deliver_all(sent.batch, || BatchReply::Garbled));
}

fn deliver_all(batch: Batch, reply: impl Fn() -> BatchReply) {
    batch.requests.into_iter().for_each(|(_, sender)| drop(sender.send(reply())));
}

#[cfg(test)]
#[path = "many_tests.rs"]
mod tests;
