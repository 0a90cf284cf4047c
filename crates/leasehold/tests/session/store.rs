//! A scripted store: a test plays every reply.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold::seam::{
    Fault, Guess, Inbox, Link, Message, Pending, Progress, Real, Store, StoreProfile, World, inspect_whole,
};
use leasehold::{Error, LostReason, NodeView};
use leasehold_spec::{Acquire, Answer, Kind, Name, Op, Renew, SessionId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::consume_budget;

/// How far the server's clock is ahead of the client's.
pub(crate) const AHEAD_US: u64 = 1_000_000_000_000;

/// A request that waits for the test's reply.
pub(crate) struct Request {
    pub(crate) link: usize,
    pub(crate) op: Op,
    pub(crate) reply: oneshot::Sender<Result<Answer, Fault>>,
}

/// Called when a connection is opened, on the stack of the opener.
pub(crate) type OnOpen = Box<dyn FnOnce() + Send>;

/// Called when a connection is closed, on the stack of the closer. A real close wakes the tasks that wait for a reply
/// there.
pub(crate) type OnClose = Box<dyn FnOnce() + Send>;

/// Called when a request is made, on the stack of its caller.
pub(crate) type OnAsk = Arc<dyn Fn(&Op) + Send + Sync>;

/// Replies to a request at once, on the stack of its caller.
pub(crate) type AtOnce = Box<dyn FnMut(&Op) -> Option<Answer> + Send>;

pub(crate) type AllReply = Result<Option<Vec<Answer>>, Fault>;
pub(crate) type OnAll = Box<dyn FnMut(&[(Name, Acquire)]) -> Pending<AllReply> + Send>;

pub(crate) struct Scripted {
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) on_open: Mutex<Option<OnOpen>>,
    /// The next connection is refused, as soon as this receives a message.
    pub(crate) refused_after: Mutex<Option<oneshot::Receiver<()>>>,
    /// The key is the number of the connection.
    pub(crate) on_close: Mutex<Option<(usize, OnClose)>>,
    pub(crate) on_ask: Mutex<Option<OnAsk>>,
    pub(crate) at_once: Mutex<Option<AtOnce>>,
    /// Answers requests for several mutexes. Without it the store acquires none of them.
    pub(crate) on_all: Mutex<Option<OnAll>>,
    pub(crate) links: Mutex<Vec<Arc<Connection>>>,
    pub(crate) run: Mutex<String>,
    pub(crate) ahead_us: AtomicU64,
    pub(crate) may_attach: AtomicBool,
    /// How often an inbox was to be attached.
    pub(crate) attaches: AtomicUsize,
    /// Whether inboxes can move between connections.
    pub(crate) moves_inbox: AtomicBool,
    /// Makes the reason why no inbox can be detached.
    pub(crate) detach_fault: Mutex<Option<fn() -> Fault>>,
    pub(crate) is_away: AtomicBool,
    pub(crate) opened: AtomicUsize,
    /// How long a ping takes, and how many pings there were.
    pub(crate) ping_ms: AtomicU64,
    pub(crate) pings: AtomicUsize,
}

pub(crate) struct Connection {
    pub(crate) number: AtomicUsize,
    pub(crate) store: Arc<Scripted>,
    pub(crate) run: String,
    pub(crate) closed: AtomicBool,
    /// Nothing drives this connection.
    pub(crate) is_stalled: AtomicBool,
    /// The connection has requests that are not sent yet.
    pub(crate) is_waiting: AtomicBool,
    pub(crate) inbox: Mutex<Option<Inbox>>,
}

pub(crate) struct Opener(pub(crate) Arc<Scripted>);

impl Store for Opener {
    fn open(&self) -> Pending<leasehold::Result<Arc<dyn Link>>> {
        let store = Arc::clone(&self.0);
        let on_open = store.on_open.lock().unwrap().take();
        on_open.into_iter().for_each(|on_open| on_open());
        let refused_after = store.refused_after.lock().unwrap().take();
        Box::pin(async move {
            if let Some(refused_after) = refused_after {
                refused_after.await.unwrap();
                return Err(any_error());
            }
            if store.is_away.load(Ordering::SeqCst) {
                return Err(any_error());
            }
            let number = store.opened.fetch_add(1, Ordering::SeqCst).into();
            let link = Arc::new(Connection {
                number,
                run: store.run.lock().unwrap().clone(),
                closed: AtomicBool::new(false),
                is_stalled: AtomicBool::new(false),
                is_waiting: AtomicBool::new(false),
                inbox: Mutex::default(),
                store: Arc::clone(&store),
            });
            store.links.lock().unwrap().push(Arc::clone(&link));
            Ok(Arc::new(Handle(link)) as Arc<dyn Link>)
        })
    }

    fn profile(&self) -> StoreProfile {
        let (kinds, moves_inbox) = (&Kind::ALL, self.0.moves_inbox.load(Ordering::SeqCst));
        StoreProfile { takes_together: true, names_successors: true, kinds, moves_inbox, ..StoreProfile::default() }
    }

    fn silence(&self) -> Option<Error> {
        None
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }
}

pub(crate) struct Handle(Arc<Connection>);

impl Handle {
    pub(crate) fn ask(&self, op: Op) -> Pending<Result<Answer, Fault>> {
        let begin = self.begin(op);
        Box::pin(async move {
            // A bounded channel does the same.
            consume_budget().await;
            Self::end(begin()).await
        })
    }

    /// Returns a function that sends the request. A future calls it when it is polled.
    fn begin(&self, op: Op) -> impl FnOnce() -> Option<oneshot::Receiver<Result<Answer, Fault>>> + Send + use<> {
        let (link, closed) = (Arc::clone(&self.0), self.is_closed());
        let on_ask = link.store.on_ask.lock().unwrap().clone();
        on_ask.into_iter().for_each(|on_ask| on_ask(&op));
        move || {
            let (reply, answer) = oneshot::channel();
            let at_once = link.store.at_once.lock().unwrap().as_mut().and_then(|at_once| at_once(&op));
            if let Some(said) = at_once {
                drop(reply.send(Ok(said)));
                return Some(answer);
            }
            let request = Request { link: link.number.load(Ordering::SeqCst), op, reply };
            (!closed && link.store.requests.send(request).is_ok()).then_some(answer)
        }
    }

    async fn end(answer: Option<oneshot::Receiver<Result<Answer, Fault>>>) -> Result<Answer, Fault> {
        match answer {
            Some(answer) => answer.await.unwrap_or_else(|_| Err(gone())),
            None => Err(gone()),
        }
    }
}

impl Link for Handle {
    fn apply(&self, _: &Name, op: &Op, _: Guess) -> Pending<Result<Answer, Fault>> {
        self.ask(op.clone())
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)], _kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
        let each: Vec<_> = batch.iter().map(|(_, renew)| self.begin(Op::Renew(renew.clone()))).collect();
        Box::pin(async move {
            let each: Vec<_> = each.into_iter().map(|begin| begin()).collect();
            let mut answers = Vec::new();
            for one in each {
                answers.push(Self::end(one).await);
            }
            answers
        })
    }

    fn acquire_all(&self, members: &[(Name, Acquire)]) -> Pending<AllReply> {
        let mut on_all = self.0.store.on_all.lock().unwrap();
        match on_all.as_mut() {
            Some(on_all) => on_all(members),
            None => Box::pin(std::future::ready(Ok(None))),
        }
    }

    fn names(&self, _from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(std::future::ready(Err(gone())))
    }

    fn attach(&self, _: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let link = Arc::clone(&self.0);
        link.store.attaches.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            while !link.store.may_attach.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            *link.inbox.lock().unwrap() = Some(inbox);
            Ok(())
        })
    }

    fn detach(&self, _: SessionId) -> Pending<Result<(), Fault>> {
        let link = Arc::clone(&self.0);
        Box::pin(async move {
            // Nobody writes the request, or reads the reply.
            while link.is_stalled.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            let fault = *link.store.detach_fault.lock().unwrap();
            if let Some(fault) = fault {
                return Err(fault());
            }
            link.inbox.lock().unwrap().take();
            Ok(())
        })
    }

    fn check_read(&self) -> Progress {
        if self.0.is_stalled.load(Ordering::SeqCst) { Progress::Stalled } else { Progress::Waiting }
    }

    fn run_id(&self) -> &str {
        &self.0.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let link = Arc::clone(&self.0);
        link.store.pings.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let ping_ms = link.store.ping_ms.load(Ordering::SeqCst);
            if ping_ms > 0 {
                Real.sleep(Duration::from_millis(ping_ms)).await;
            }
            if link.closed.load(Ordering::SeqCst) { Err(gone()) } else { Ok(link.store.server_us()) }
        })
    }

    fn idle(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn check_driven(&self) -> Progress {
        match () {
            () if self.0.is_stalled.load(Ordering::SeqCst) => Progress::Stalled,
            () if self.0.is_waiting.load(Ordering::SeqCst) => Progress::Waiting,
            () => Progress::Moving,
        }
    }

    fn has_unsent(&self) -> bool {
        self.check_driven() != Progress::Moving
    }

    fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.0.closed.store(true, Ordering::SeqCst);
        let number = self.0.number.load(Ordering::SeqCst);
        let on_close = self.0.store.on_close.lock().unwrap().take_if(|(of, _)| *of == number);
        on_close.into_iter().for_each(|(_, on_close)| on_close());
    }
}

pub(crate) fn gone() -> Fault {
    Fault::Gone(any_error())
}

pub(crate) fn refused() -> Fault {
    Fault::Refused(any_error())
}

/// A session looks only at the kind of a fault.
pub(crate) fn any_error() -> Error {
    leasehold::seam::lost("a", LostReason::Closed).into()
}

impl Scripted {
    /// Numbers the first two connections: the session's own is 0, the callers' lane is 1, whichever was opened first.
    pub(crate) fn number_links(&self) {
        let mut links = self.links();
        links.sort_by_key(|link| link.inbox.lock().unwrap().is_none());
        links.iter().enumerate().for_each(|(number, link)| link.number.store(number, Ordering::SeqCst));
    }

    /// Breaks every connection, and refuses new ones.
    pub(crate) fn go_away(&self) {
        self.is_away.store(true, Ordering::SeqCst);
        for link in self.links().iter() {
            link.closed.store(true, Ordering::SeqCst);
            let inbox = link.inbox.lock().unwrap().take();
            inbox.into_iter().for_each(|inbox| inbox(Message::Detached));
        }
    }

    pub(crate) fn server_us(&self) -> u64 {
        Real.now_us() + self.ahead_us.load(Ordering::SeqCst)
    }

    pub(crate) fn links(&self) -> MutexGuard<'_, Vec<Arc<Connection>>> {
        self.links.lock().unwrap()
    }
}
