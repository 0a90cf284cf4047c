//! A store of which a test plays every answer.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold::seam::{
    Fault, Inbox, Link, Message, Pending, Progress, Real, Store, StoreProfile, World, inspect_whole,
};
use leasehold::{Error, LostReason, NodeView};
use leasehold_spec::{Answer, Contention, Name, Op, Renew, SessionId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::consume_budget;

/// The server's clock shows this much more than ours.
pub(crate) const AHEAD_US: u64 = 1_000_000_000_000;

/// A request that waits for the test's answer.
pub(crate) struct Asked {
    pub(crate) link: usize,
    pub(crate) op: Op,
    pub(crate) reply: oneshot::Sender<Result<Answer, Fault>>,
}

/// What happens when a link is asked for, on the stack of whoever asks.
pub(crate) type OnOpen = Box<dyn FnOnce() + Send>;

/// What happens when a link is closed, on the stack of whoever closes it: as where that wakes who waits for an answer.
pub(crate) type OnClose = Box<dyn FnOnce() + Send>;

/// What happens when something is asked, on the stack of whoever asks.
pub(crate) type OnAsk = Arc<dyn Fn(&Op) + Send + Sync>;

/// What is answered on the stack of whoever asks.
pub(crate) type AtOnce = Box<dyn FnMut(&Op) -> Option<Answer> + Send>;

pub(crate) struct Scripted {
    pub(crate) requests: mpsc::UnboundedSender<Asked>,
    pub(crate) on_open: Mutex<Option<OnOpen>>,
    /// The next link that is opened is refused, once this has come.
    pub(crate) refused_after: Mutex<Option<oneshot::Receiver<()>>>,
    /// By the number of the link.
    pub(crate) on_close: Mutex<Option<(usize, OnClose)>>,
    pub(crate) on_ask: Mutex<Option<OnAsk>>,
    pub(crate) at_once: Mutex<Option<AtOnce>>,
    pub(crate) links: Mutex<Vec<Arc<Line>>>,
    pub(crate) run: Mutex<String>,
    pub(crate) ahead_us: AtomicU64,
    pub(crate) may_attach: AtomicBool,
    pub(crate) is_away: AtomicBool,
    pub(crate) opened: AtomicUsize,
    /// How long a ping takes, and how many there were.
    pub(crate) ping_ms: AtomicU64,
    pub(crate) pings: AtomicUsize,
}

pub(crate) struct Line {
    pub(crate) number: AtomicUsize,
    pub(crate) store: Arc<Scripted>,
    pub(crate) run: String,
    pub(crate) closed: AtomicBool,
    /// Nothing drives it.
    pub(crate) is_stalled: AtomicBool,
    /// What it was handed is not sent yet.
    pub(crate) is_waiting: AtomicBool,
    pub(crate) inbox: Mutex<Option<Inbox>>,
}

pub(crate) struct Shop(pub(crate) Arc<Scripted>);

impl Store for Shop {
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
            let line = Arc::new(Line {
                number,
                run: store.run.lock().unwrap().clone(),
                closed: AtomicBool::new(false),
                is_stalled: AtomicBool::new(false),
                is_waiting: AtomicBool::new(false),
                inbox: Mutex::default(),
                store: Arc::clone(&store),
            });
            store.links.lock().unwrap().push(Arc::clone(&line));
            Ok(Arc::new(Handle(line)) as Arc<dyn Link>)
        })
    }

    fn profile(&self) -> StoreProfile {
        StoreProfile::default()
    }

    fn silence(&self) -> Option<Error> {
        None
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }
}

pub(crate) struct Handle(Arc<Line>);

impl Handle {
    pub(crate) fn ask(&self, op: Op) -> Pending<Result<Answer, Fault>> {
        let begin = self.begin(op);
        Box::pin(async move {
            // As what is sent through a bounded channel does.
            consume_budget().await;
            Self::end(begin()).await
        })
    }

    /// What sends a request, when its future is polled.
    fn begin(&self, op: Op) -> impl FnOnce() -> Option<oneshot::Receiver<Result<Answer, Fault>>> + Send + use<> {
        let (line, closed) = (Arc::clone(&self.0), self.is_closed());
        let on_ask = line.store.on_ask.lock().unwrap().clone();
        on_ask.into_iter().for_each(|on_ask| on_ask(&op));
        move || {
            let (reply, answer) = oneshot::channel();
            let at_once = line.store.at_once.lock().unwrap().as_mut().and_then(|at_once| at_once(&op));
            if let Some(said) = at_once {
                drop(reply.send(Ok(said)));
                return Some(answer);
            }
            let asked = Asked { link: line.number.load(Ordering::SeqCst), op, reply };
            (!closed && line.store.requests.send(asked).is_ok()).then_some(answer)
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
    fn apply(&self, _: &Name, op: &Op, _: Contention) -> Pending<Result<Answer, Fault>> {
        self.ask(op.clone())
    }

    fn inspect(&self, name: &Name, guess: Contention) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
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

    fn names(&self, _from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(std::future::ready(Err(gone())))
    }

    fn attach(&self, _: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let line = Arc::clone(&self.0);
        Box::pin(async move {
            while !line.store.may_attach.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            *line.inbox.lock().unwrap() = Some(inbox);
            Ok(())
        })
    }

    fn run_id(&self) -> &str {
        &self.0.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let line = Arc::clone(&self.0);
        line.store.pings.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let ping_ms = line.store.ping_ms.load(Ordering::SeqCst);
            if ping_ms > 0 {
                Real.sleep(Duration::from_millis(ping_ms)).await;
            }
            if line.closed.load(Ordering::SeqCst) { Err(gone()) } else { Ok(line.store.server_us()) }
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

/// A session looks at the kind of a fault only.
pub(crate) fn any_error() -> Error {
    leasehold::seam::lost("a", LostReason::Closed).into()
}

impl Scripted {
    /// Numbers the first two links: the session's is 0, the callers' lane 1, whichever was opened first.
    pub(crate) fn number_links(&self) {
        let mut links = self.links();
        links.sort_by_key(|line| line.inbox.lock().unwrap().is_none());
        links.iter().enumerate().for_each(|(number, line)| line.number.store(number, Ordering::SeqCst));
    }

    /// Every link breaks, and there are no new ones.
    pub(crate) fn go_away(&self) {
        self.is_away.store(true, Ordering::SeqCst);
        for line in self.links().iter() {
            line.closed.store(true, Ordering::SeqCst);
            let inbox = line.inbox.lock().unwrap().take();
            inbox.into_iter().for_each(|inbox| inbox(Message::Detached));
        }
    }

    pub(crate) fn server_us(&self) -> u64 {
        Real.now_us() + self.ahead_us.load(Ordering::SeqCst)
    }

    pub(crate) fn links(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        self.links.lock().unwrap()
    }
}
