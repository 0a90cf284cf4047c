//! A store with a gate before it: requests wait in front of it, answers and messages behind it, in their order.
//!
//! Over the embedded store a request is carried out and answered in the poll that sends it: there is no "in flight" to
//! drop a future in. The gate puts the network's time in between, and nothing of its disorder. What was sent is carried
//! out although its caller has gone, as on a connection.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use leasehold::seam::{Fault, Inbox, Link, Message, Pending, Store, StoreProfile};
use leasehold::{Error, LostReason, NodeView};
use leasehold_spec::{Answer, Contention, Name, Op, Renew, SessionId};
use leasehold_testkit::forward::{Forward, ForwardLink};
use tokio::sync::oneshot;

use crate::bench::{Sent, Way};

type Heard = Result<Answer, Fault>;

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
    /// How many links were asked for meanwhile.
    refused: u64,
    sent: Sent,
    lines: Vec<Weak<Line>>,
}

struct Line {
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
    Apply(Name, Op, Contention, oneshot::Sender<Heard>),
    Renew(Vec<(Name, Renew)>, oneshot::Sender<Vec<Heard>>),
}

enum Reply {
    Answer(oneshot::Sender<Heard>, Heard),
    Renewed(oneshot::Sender<Vec<Heard>>, Vec<Heard>),
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
        self.lines().iter().for_each(|line| line.pump());
    }

    pub(crate) fn refused(&self) -> u64 {
        self.0.control().refused
    }

    /// Cuts every link, and lets none be made until [`Gate::mend`].
    pub(crate) fn cut(&self) {
        self.0.control().refusing = true;
        let inboxes: Vec<Inbox> = self.lines().iter().filter_map(|line| line.cut()).collect();
        inboxes.iter().for_each(|inbox| inbox(Message::Detached));
    }

    pub(crate) fn mend(&self) {
        self.0.control().refusing = false;
    }

    fn lines(&self) -> Vec<Arc<Line>> {
        self.0.control().lines.iter().filter_map(Weak::upgrade).collect()
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
            let line = Arc::new(Line { gate: Arc::clone(&gate), link, closed, queue });
            gate.control().lines.push(Arc::downgrade(&line));
            Ok(Arc::new(Forward(End(line))) as Arc<dyn Link>)
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

impl Line {
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
            // We are on the store's own thread: it cannot wait for what it is asked here.
            Answers::ByAThread => {
                let line = Arc::clone(self);
                drop(std::thread::spawn(move || line.pump()));
            }
        }
    }

    /// One at a time, and none while we are called from within: order is the point.
    fn pump(&self) {
        if std::mem::replace(&mut self.queue().is_pumped, true) {
            return;
        }
        while let Some(turn) = self.turn() {
            match turn {
                Turn::Reply(Reply::Answer(to, heard)) => drop(to.send(heard)),
                Turn::Reply(Reply::Renewed(to, heard)) => drop(to.send(heard)),
                Turn::Reply(Reply::Message(inbox, message)) => inbox(message),
                Turn::Request(Request::Apply(name, op, guess, to)) => {
                    let heard = now(self.link.apply(&name, &op, guess));
                    self.queue().replies.push_back(Reply::Answer(to, heard));
                }
                Turn::Request(Request::Renew(batch, to)) => {
                    let heard = now(self.link.renew(&batch));
                    self.queue().replies.push_back(Reply::Renewed(to, heard));
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

    /// Whoever waits for an answer hears that the link is gone: its sender is dropped here. Answers the inbox, which the
    /// client's own closing does not call.
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

/// The embedded store answers at once; that of a directory by its own thread, and this one waits for it.
fn now<T>(future: Pending<T>) -> T {
    // Unconstrained: a task whose budget is used up would have to yield, and here it cannot.
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
    // A session looks at the kind of the fault only.
    Fault::Gone(leasehold::seam::lost("a", LostReason::Closed).into())
}

/// The client's end. The gate keeps no line alive.
struct End(Arc<Line>);

impl ForwardLink for End {
    fn link(&self) -> &Arc<dyn Link> {
        &self.0.link
    }

    fn inspect(&self, name: &Name, guess: Contention) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        // `apply` goes through the gate.
        let asked = self.apply(name, &Op::Inspect, guess);
        Box::pin(async move { Ok((asked.await?, Vec::new())) })
    }

    fn apply(&self, name: &Name, op: &Op, guess: Contention) -> Pending<Heard> {
        let (line, name, op) = (Arc::clone(&self.0), name.clone(), op.clone());
        Box::pin(async move {
            let (to, heard) = oneshot::channel();
            line.gate.control().sent.count(&op);
            line.send(Request::Apply(name, op, guess, to));
            drop(line);
            heard.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Heard>> {
        let (line, batch) = (Arc::clone(&self.0), batch.to_vec());
        Box::pin(async move {
            let (to, heard) = oneshot::channel();
            let wanted = batch.len();
            line.send(Request::Renew(batch, to));
            drop(line);
            heard.await.unwrap_or_else(|_| (0..wanted).map(|_| Err(gone())).collect())
        })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let line = Arc::downgrade(&self.0);
        self.0.queue().inbox = Some(Arc::clone(&inbox));
        let through: Inbox = Arc::new(move |message| {
            if let Some(line) = line.upgrade() {
                Line::message(&line, &inbox, message);
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
