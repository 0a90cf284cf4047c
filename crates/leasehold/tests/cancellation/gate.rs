//! A store with a gate before it: requests wait in front of it, replies and messages behind it, in their order.
//!
//! The embedded store executes and answers a request in the poll that sends it, so no future could be dropped while its
//! request is in flight. The gate adds the delay of a network, and none of its disorder. A request that was sent is
//! executed although its caller has gone, as on a connection.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use leasehold::seam::{Fault, Guess, Inbox, Link, Message, Pending, Store, StoreProfile};
use leasehold::{Error, LostReason, NodeView};
use leasehold_spec::{Answer, Kind, Name, Op, Renew, SessionId};
use leasehold_testkit::forward::{Forward, ForwardLink};
use tokio::sync::oneshot;

use crate::harness::{Sent, Way};

type OpResult = Result<Answer, Fault>;

#[derive(Clone)]
pub(crate) struct Gate(Arc<Inner>);

/// How the store behind the gate answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    AtOnce,
    ByAThread,
}

struct Inner {
    store: Arc<dyn Store>,
    answers: Answers,
    control: Mutex<Control>,
}

#[derive(Default)]
struct Control {
    held: Option<Way>,
    refusing: bool,
    /// How many connections were refused meanwhile.
    refused: u64,
    sent: Sent,
    connections: Vec<Weak<Connection>>,
}

struct Connection {
    gate: Arc<Inner>,
    link: Arc<dyn Link>,
    closed: AtomicBool,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    replies: VecDeque<Reply>,
    inbox: Option<Inbox>,
    is_pumped: bool,
}

enum Request {
    Apply(Name, Op, Guess, oneshot::Sender<OpResult>),
    Renew(Vec<(Name, Renew)>, Kind, oneshot::Sender<Vec<OpResult>>),
}

enum Reply {
    Answer(oneshot::Sender<OpResult>, OpResult),
    Renewed(oneshot::Sender<Vec<OpResult>>, Vec<OpResult>),
    Message(Inbox, Message),
}

enum Turn {
    Request(Request),
    Reply(Reply),
}

impl Gate {
    pub(crate) fn before(store: Arc<dyn Store>, answers: Answers) -> Self {
        Self(Arc::new(Inner { store, answers, control: Mutex::default() }))
    }

    pub(crate) fn sent(&self) -> Sent {
        self.0.control().sent
    }

    pub(crate) fn hold(&self, way: Way) {
        self.0.control().held = Some(way);
    }

    pub(crate) fn resume(&self) {
        self.0.control().held = None;
        self.connections().iter().for_each(|connection| connection.pump());
    }

    pub(crate) fn refused(&self) -> u64 {
        self.0.control().refused
    }

    /// Cuts every connection, and refuses new ones until [`Gate::mend`].
    pub(crate) fn cut(&self) {
        self.0.control().refusing = true;
        let inboxes: Vec<Inbox> = self.connections().iter().filter_map(|connection| connection.cut()).collect();
        inboxes.iter().for_each(|inbox| inbox(Message::Detached));
    }

    pub(crate) fn mend(&self) {
        self.0.control().refusing = false;
    }

    fn connections(&self) -> Vec<Arc<Connection>> {
        self.0.control().connections.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Control {
    fn refuses(&mut self) -> bool {
        self.refused += u64::from(self.refusing);
        self.refusing
    }
}

impl Inner {
    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Gate {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        let gate = Arc::clone(&self.0);
        Box::pin(async move {
            if gate.control().refuses() {
                return Err(leasehold::seam::lost("a", LostReason::Closed).into());
            }
            let link = gate.store.open().await?;
            let (closed, queue) = (AtomicBool::new(false), Mutex::default());
            let connection = Arc::new(Connection { gate: Arc::clone(&gate), link, closed, queue });
            gate.control().connections.push(Arc::downgrade(&connection));
            Ok(Arc::new(Forward(End(connection))) as Arc<dyn Link>)
        })
    }

    fn profile(&self) -> StoreProfile {
        self.0.store.profile()
    }

    fn silence(&self) -> Option<Error> {
        self.0.store.silence()
    }

    fn life(&self) -> Option<OwnedFd> {
        self.0.store.life()
    }
}

impl Connection {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, request: Request) {
        if !self.closed.load(Ordering::SeqCst) {
            self.queue().requests.push_back(request);
            self.pump();
        }
    }

    fn message(self: &Arc<Self>, inbox: &Inbox, message: Message) {
        self.queue().replies.push_back(Reply::Message(Arc::clone(inbox), message));
        match self.gate.answers {
            Answers::AtOnce => self.pump(),
            // This is the store's own thread: it must not wait for a reply that it has to make itself.
            Answers::ByAThread => {
                let connection = Arc::clone(self);
                drop(std::thread::spawn(move || connection.pump()));
            }
        }
    }

    /// Handles one request or reply at a time, and returns at once if it is called from within itself: this keeps the
    /// order.
    fn pump(&self) {
        if std::mem::replace(&mut self.queue().is_pumped, true) {
            return;
        }
        while let Some(turn) = self.turn() {
            match turn {
                Turn::Reply(Reply::Answer(to, reply)) => drop(to.send(reply)),
                Turn::Reply(Reply::Renewed(to, reply)) => drop(to.send(reply)),
                Turn::Reply(Reply::Message(inbox, message)) => inbox(message),
                Turn::Request(Request::Apply(name, op, guess, to)) => {
                    let reply = now(self.link.apply(&name, &op, guess));
                    self.queue().replies.push_back(Reply::Answer(to, reply));
                }
                Turn::Request(Request::Renew(batch, kind, to)) => {
                    let reply = now(self.link.renew(&batch, kind));
                    self.queue().replies.push_back(Reply::Renewed(to, reply));
                }
            }
        }
    }

    fn turn(&self) -> Option<Turn> {
        let mut queue = self.queue();
        let held = self.gate.control().held;
        if held != Some(Way::Replies)
            && let Some(reply) = queue.replies.pop_front()
        {
            return Some(Turn::Reply(reply));
        }
        if held != Some(Way::Requests)
            && let Some(request) = queue.requests.pop_front()
        {
            return Some(Turn::Request(request));
        }
        queue.is_pumped = false;
        None
    }

    /// Drops the senders of the replies, so that every caller that waits for a reply gets the error that the connection
    /// is gone. Returns the inbox, which is not called if the client closed the connection itself.
    fn cut(&self) -> Option<Inbox> {
        if self.closed.swap(true, Ordering::SeqCst) {
            return None;
        }
        self.link.close();
        let mut queue = self.queue();
        let lost = (std::mem::take(&mut queue.requests), std::mem::take(&mut queue.replies));
        let inbox = queue.inbox.take();
        drop(queue);
        drop(lost);
        inbox
    }
}

/// Waits for the reply. The embedded store replies at once. A directory replies from its own thread.
fn now<T>(future: Pending<T>) -> T {
    // Unconstrained: a task whose budget is used up would have to yield, and cannot here.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn gone() -> Fault {
    // A session looks only at the kind of the fault.
    Fault::Gone(leasehold::seam::lost("a", LostReason::Closed).into())
}

/// The client's end. The gate keeps no connection alive.
struct End(Arc<Connection>);

impl ForwardLink for End {
    fn link(&self) -> &Arc<dyn Link> {
        &self.0.link
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        // `apply` goes through the gate.
        let asked = self.apply(name, &Op::Inspect, guess);
        Box::pin(async move { Ok((asked.await?, Vec::new())) })
    }

    fn apply(&self, name: &Name, op: &Op, guess: Guess) -> Pending<OpResult> {
        let (connection, name, op) = (Arc::clone(&self.0), name.clone(), op.clone());
        Box::pin(async move {
            let (to, reply) = oneshot::channel();
            connection.gate.control().sent.count(&op);
            connection.send(Request::Apply(name, op, guess, to));
            drop(connection);
            reply.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn renew(&self, batch: &[(Name, Renew)], kind: Kind) -> Pending<Vec<OpResult>> {
        let (connection, batch) = (Arc::clone(&self.0), batch.to_vec());
        Box::pin(async move {
            let (to, reply) = oneshot::channel();
            let wanted = batch.len();
            connection.send(Request::Renew(batch, kind, to));
            drop(connection);
            reply.await.unwrap_or_else(|_| (0..wanted).map(|_| Err(gone())).collect())
        })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let connection = Arc::downgrade(&self.0);
        self.0.queue().inbox = Some(Arc::clone(&inbox));
        let through: Inbox = Arc::new(move |message| {
            if let Some(connection) = connection.upgrade() {
                Connection::message(&connection, &inbox, message);
            }
        });
        self.0.link.attach(session, through)
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::SeqCst)
    }

    fn close(&self) {
        drop(self.0.cut());
    }
}

impl Drop for End {
    fn drop(&mut self) {
        drop(self.0.cut());
    }
}
