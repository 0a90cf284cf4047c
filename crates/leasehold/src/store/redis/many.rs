//! Sends the acquires and releases of many tasks in one script (P53).
//!
//! The server spends more time around the commands of a script than in them. So requests that leave in one write leave in
//! one script of at most [`NAMES`] names. The script serves every name in full, in the order of the requests.
//!
//! - A request joins a batch while others are in flight. One that is alone is sent at once, by its own script.
//! - The driver sends the open batch with its next write. Any other request of the link sends it first. So the server gets
//!   all requests in the order in which their futures were first polled.
//! - The driver tells the replies of a share of the requests, lets those tasks run, and goes on in its next turn. Otherwise
//!   client and server would take turns, and each would wait for the other.
//! - If the server refuses a batch as a whole, each of its requests is sent alone. A repeat is safe (P2, P3), and a request
//!   that comes later than its leave is left again (P14).

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Acquire, Name, Op, Patience};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::sync::oneshot;
use tokio::task::unconstrained;

use super::call::Call;
use super::keys::Keys;
use super::reply;
use crate::store::Fault;
use crate::world::Pending;

/// The number of names in one script. The server serves nobody else during a script.
const NAMES: usize = RENEW_BATCH;

/// What became of a request of a batch.
pub(super) enum Told {
    /// It has the short reply of its script, at this time of the server.
    Usual(u64),
    /// It has another reply. The request comes back with it.
    Other(String, Asked),
    /// It was not carried out, as far as the server says. It is to be sent alone.
    Alone(Asked),
}

/// A request about one name. It is moved often.
pub(super) type Asked = Box<(Name, Op)>;

/// The reply to a batch that says nothing about its requests.
pub(super) enum Silence {
    Broken(RedisError),
    Garbled,
}

type Reply = Result<Value, RedisError>;
type Tell = oneshot::Sender<Result<Told, Fault>>;
type Batch = Vec<(Asked, Tell)>;

/// The batches of one link.
#[derive(Default)]
pub(super) struct Many {
    /// Whether there is an open batch. It becomes false only after the batch was sent.
    has_open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    sent: VecDeque<Sent>,
    is_over: bool,
}

/// Requests that are not sent yet.
struct Open {
    connection: MultiplexedConnection,
    keys: Keys,
    batches: Vec<Batch>,
}

/// A batch that was sent.
struct Sent {
    /// The reply, and the call for a repeat by its source.
    asking: Pending<(Reply, Call)>,
    is_by_source: bool,
    connection: MultiplexedConnection,
    batch: Batch,
}

/// Whether a request may join a batch: an acquire without an earlier place, or a release of a grant that reserved nothing.
pub(super) fn may_join(op: &Op) -> bool {
    match op {
        Op::Acquire(Acquire { patience: Patience::Queue(place), .. }) => place.ticket.is_none(),
        Op::Acquire(_) => true,
        Op::Release { token, used, .. } => used <= token,
        _ => false,
    }
}

/// Whether the script can serve both: the acquires of a batch share all but their names, IDs and times.
fn fit(one: &Op, other: &Op) -> bool {
    match (one, other) {
        (Op::Acquire(one), Op::Acquire(other)) => {
            (one.lease_ms, one.range, &one.label, &one.patience)
                == (other.lease_ms, other.range, &other.label, &other.patience)
        }
        _ => true,
    }
}

impl Many {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether requests have joined that are not sent yet.
    pub(super) fn has_unsent(&self) -> bool {
        self.has_open.load(Ordering::Acquire)
    }

    /// Puts a request in the open batch. Returns where it will be told, and whether it is the first one: then the driver is
    /// to be woken. If the link is over, it returns the request.
    pub(super) fn join(
        &self,
        connection: &MultiplexedConnection,
        keys: &Keys,
        asked: Asked,
    ) -> Result<(oneshot::Receiver<Result<Told, Fault>>, bool), Asked> {
        let (tell, told) = oneshot::channel();
        let mut state = self.lock();
        if state.is_over {
            return Err(asked);
        }
        let is_first = state.open.is_none();
        let open = state.open.get_or_insert_with(|| Open {
            connection: connection.clone(),
            keys: keys.clone(),
            batches: Vec::new(),
        });
        open.add(asked, tell);
        self.has_open.store(true, Ordering::Release);
        Ok((told, is_first))
    }

    /// Sends what has joined.
    pub(super) fn send(&self) {
        if !self.has_unsent() {
            return;
        }
        let mut state = self.lock();
        let Some(Open { connection, keys, batches }) = state.open.take() else { return };
        for mut batch in batches {
            // As the client crate does: a request whose caller is gone is not sent.
            batch.retain(|(_, tell)| !tell.is_closed() || is_on(Mutant::P53SendsGivenUp));
            if batch.is_empty() {
                continue;
            }
            match Call::many(&keys, batch.iter().map(|(asked, _)| (&asked.0, &asked.1))) {
                Ok(call) => {
                    let asking = ask(connection.clone(), call, false);
                    state.sent.push_back(Sent { asking, is_by_source: false, connection: connection.clone(), batch });
                }
                // Alone it gets its error.
                Err(_) => send_alone(batch),
            }
        }
        // Not before: a request that finds it false goes to the client crate at once.
        self.has_open.store(false, Ordering::Release);
    }

    /// Tells the replies that have come, those of so many requests. If there are more, the task is woken for its next turn.
    pub(super) fn tell(&self, limit: usize, context: &Context<'_>, fault: impl Fn(Silence) -> Fault) {
        let mut told = 0;
        loop {
            let mut state = self.lock();
            let Some((reply, call)) = state.next() else { return };
            if told >= limit {
                if let Some(first) = state.sent.front_mut() {
                    first.asking = Box::pin(std::future::ready((reply, call)));
                }
                return context.waker().wake_by_ref();
            }
            let Some(mut sent) = state.sent.pop_front() else { return };
            if !sent.is_by_source && reply.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
                // It is certain that nothing ran. From now on the server knows the script again.
                sent.asking = ask(sent.connection.clone(), call, true);
                sent.is_by_source = true;
                state.sent.push_back(sent);
                continue;
            }
            drop(state);
            told += sent.batch.len();
            sent.end(reply, &fault);
        }
    }

    /// Ends all requests: the link is over. Those whose reply has come get it.
    pub(super) fn end(&self, fault: impl Fn(Silence) -> Fault) {
        let mut state = self.lock();
        state.is_over = true;
        let open = state.open.take();
        self.has_open.store(false, Ordering::Release);
        let mut replies = Vec::new();
        while let Some((reply, _)) = state.next() {
            replies.extend(state.sent.pop_front().map(|sent| (sent, reply)));
        }
        let unanswered = std::mem::take(&mut state.sent);
        drop(state);
        replies.into_iter().for_each(|(sent, reply)| sent.end(reply, &fault));
        // Their callers learn from the dropped channels that the link is gone.
        drop((open, unanswered));
    }
}

impl State {
    /// Returns the reply to the first batch, if it has come.
    fn next(&mut self) -> Option<(Reply, Call)> {
        let first = self.sent.front_mut()?;
        match pin!(unconstrained(first.asking.as_mut())).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reply) => Some(reply),
            Poll::Pending => None,
        }
    }
}

impl Open {
    fn add(&mut self, asked: Asked, tell: Tell) {
        let has_room = |batch: &&mut Batch| {
            let acquire = batch.iter().find(|(one, _)| matches!(one.1, Op::Acquire(_)));
            batch.len() < NAMES && acquire.is_none_or(|(one, _)| fit(&one.1, &asked.1))
        };
        match self.batches.last_mut().filter(has_room) {
            Some(batch) => batch.push((asked, tell)),
            None => {
                let mut batch = Vec::with_capacity(NAMES);
                batch.push((asked, tell));
                self.batches.push(batch);
            }
        }
    }
}

impl Sent {
    fn end(self, reply: Reply, fault: impl Fn(Silence) -> Fault) {
        let batch = self.batch;
        let text = match reply {
            Ok(Value::BulkString(text)) => String::from_utf8(text).ok(),
            Ok(_) => None,
            // The server has refused the batch, or ended it: each request learns why from its own script.
            Err(error) if error.code().is_some() => return send_alone(batch),
            Err(error) => return fail(batch, &fault(Silence::Broken(error))),
        };
        let Some((now_us, others)) = text.as_deref().and_then(|text| reply::of_many(text, batch.len())) else {
            return fail(batch, &fault(Silence::Garbled));
        };
        let mut others = others.into_iter().peekable();
        for (number, (asked, tell)) in (1..).zip(batch) {
            let told = match others.next_if(|(at, _)| *at == number) {
                Some((_, text)) => Told::Other(text.to_owned(), asked),
                None => Told::Usual(now_us),
            };
            // If the caller is gone, it has said so by a leave.
            drop(tell.send(Ok(told)));
        }
    }
}

/// Begins to send a call, so that later ones come after it.
fn ask(mut connection: MultiplexedConnection, call: Call, is_by_source: bool) -> Pending<(Reply, Call)> {
    let mut asking: Pending<(Reply, Call)> = Box::pin(async move {
        let reply = match is_by_source {
            true => connection.send_packed_command(&call.by_source()).await,
            false => connection.send_packed_command(call.by_digest()).await,
        };
        (reply.and_then(Value::extract_error), call)
    });
    match pin!(unconstrained(asking.as_mut())).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reply) => Box::pin(std::future::ready(reply)),
        Poll::Pending => asking,
    }
}

fn send_alone(batch: Batch) {
    batch.into_iter().for_each(|(asked, tell)| drop(tell.send(Ok(Told::Alone(asked)))));
}

fn fail(batch: Batch, fault: &Fault) {
    batch.into_iter().for_each(|(_, tell)| drop(tell.send(Err(fault.share()))));
}
