//! A connection as its client has it: the store's two traits, and the task that hears what arrives.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use leasehold::seam::{Fault, Inbox, Link, Message, Pending, Store, error};
use leasehold::{Error, ErrorKind, Result};
use leasehold_spec::{Answer, Contention, Delivery, Event, Name, Op, Renew, SessionId};
use tokio::sync::oneshot;

use super::exec::{Pid, lock};
use super::net::{self, Way};
use super::node::{Ask, Said};
use super::stage::Sim;

/// The simulated store, as one process reaches it.
pub(super) struct Shop {
    pub(super) sim: Arc<Sim>,
    pub(super) pid: Pid,
}

/// A connection's end at the client, shared by its link, by the task that drives it, and by the network.
pub(super) struct Wire {
    pub(super) id: u64,
    pid: Pid,
    pub(super) run: String,
    pub(super) is_closed: AtomicBool,
    ears: Mutex<Ears>,
}

#[derive(Default)]
struct Ears {
    /// What has arrived, and was not read yet.
    socket: VecDeque<Word>,
    driver: Option<Waker>,
    waiting: BTreeMap<u64, oneshot::Sender<Said>>,
    next: u64,
    inbox: Option<Inbox>,
}

/// What arrives.
pub(super) enum Word {
    /// With the moment at which it was made.
    Reply(u64, Said, u64),
    Push(Name, Delivery),
    /// The connection is gone.
    Broken,
}

impl Store for Shop {
    fn open(&self) -> Pending<Result<Arc<dyn Link>>> {
        let (sim, pid) = (Arc::clone(&self.sim), self.pid);
        Box::pin(async move {
            let wire = net::open(&sim, pid).await?;
            sim.exec.spawn_beside(pid, "a connection", Box::pin(drive(Arc::clone(&sim), Arc::clone(&wire))));
            Ok(Arc::new(Line { sim, wire }) as Arc<dyn Link>)
        })
    }

    fn silence(&self) -> Option<Error> {
        None
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }
}

impl Wire {
    pub(super) fn new(id: u64, pid: Pid, run: String) -> Self {
        Self { id, pid, run, is_closed: AtomicBool::new(false), ears: Mutex::default() }
    }

    /// Something arrives, whether anybody reads it or not.
    pub(super) fn arrive(&self, word: Word) {
        let mut ears = lock(&self.ears);
        ears.socket.push_back(word);
        let driver = ears.driver.take();
        drop(ears);
        driver.into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Nothing is heard any more. Answers whether this is the first to say so.
    fn end(&self) -> (bool, Option<Inbox>) {
        let is_first = !self.is_closed.swap(true, Ordering::AcqRel);
        let mut ears = lock(&self.ears);
        let (waiting, driver, inbox) = (std::mem::take(&mut ears.waiting), ears.driver.take(), ears.inbox.take());
        ears.socket.clear();
        drop(ears);
        drop(waiting);
        driver.into_iter().for_each(Waker::wake);
        (is_first, inbox)
    }
}

/// Reads what arrives, one word at a turn: others may come between.
async fn drive(sim: Arc<Sim>, wire: Arc<Wire>) {
    poll_fn(|context| drive_once(&sim, &wire, context)).await;
}

fn drive_once(sim: &Sim, wire: &Wire, context: &mut Context<'_>) -> Poll<()> {
    if wire.is_closed() {
        return Poll::Ready(());
    }
    let mut ears = lock(&wire.ears);
    let Some(word) = ears.socket.pop_front() else {
        ears.driver = Some(context.waker().clone());
        return Poll::Pending;
    };
    let waiting = if let Word::Reply(number, ..) = &word { ears.waiting.remove(number) } else { None };
    let inbox = ears.inbox.clone();
    drop(ears);
    if let Word::Push(_, delivery) = &word {
        let pid = lock(&sim.net).who.get(&delivery.to).copied();
        pid.inspect(|pid| sim.book.heard_level(*pid, delivery, sim.exec.now_us()));
    }
    match word {
        Word::Reply(_, said, made_us) => {
            // Of which name, nobody knows here. It may have been the word that who asked for strict order has gone.
            sim.book.heard_answer(wire.pid, made_us);
            if let Some(waiting) = waiting {
                drop(waiting.send(said));
            }
        }
        Word::Push(name, delivery) => {
            if delivery.event == Event::Revoked {
                lock(&sim.net).told.insert(delivery.token.get());
            }
            inbox.into_iter().for_each(|inbox| inbox(Message::Delivery(name.clone(), delivery.clone())));
        }
        Word::Broken => {
            let (_, inbox) = wire.end();
            inbox.into_iter().for_each(|inbox| inbox(Message::Detached));
            return Poll::Ready(());
        }
    }
    context.waker().wake_by_ref();
    Poll::Pending
}

struct Line {
    sim: Arc<Sim>,
    wire: Arc<Wire>,
}

impl Line {
    /// Sent when this is first polled; the future may be dropped then, and the request goes on.
    fn exchange(&self, ask: Ask) -> impl Future<Output = Result<Said, Fault>> + Send + 'static {
        let (sim, wire) = (Arc::clone(&self.sim), Arc::clone(&self.wire));
        async move {
            if wire.is_closed() {
                return Err(gone());
            }
            let (tell, said) = oneshot::channel();
            let number = {
                let mut ears = lock(&wire.ears);
                ears.next += 1;
                let number = ears.next;
                ears.waiting.insert(number, tell);
                number
            };
            net::send(&sim, wire.id, Way::Up { reply: Some(number), ask });
            drop(sim);
            match said.await {
                Ok(Said::NotPrimary) | Err(_) => Err(gone()),
                Ok(Said::NoMemory) => Err(Fault::NoMemory(error(ErrorKind::Store, "the memory of the store is full"))),
                Ok(said) => Ok(said),
            }
        }
    }
}

impl Link for Line {
    fn apply(&self, name: &Name, op: &Op, _: Contention) -> Pending<Result<Answer, Fault>> {
        let mut op = op.clone();
        if let Op::Acquire(acquire) = &mut op {
            acquire.range = acquire.range.min(self.sim.plan.range);
        }
        let said = self.exchange(Ask::One(name.clone(), op));
        Box::pin(async move {
            match said.await? {
                Said::Answer(answer) => Ok(answer),
                _ => Err(gone()),
            }
        })
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
        let (said, count) = (self.exchange(Ask::Batch(batch.to_vec())), batch.len());
        Box::pin(async move {
            match said.await {
                Ok(Said::Answers(answers)) => answers.into_iter().map(Ok).collect(),
                _ => (0..count).map(|_| Err(gone())).collect(),
            }
        })
    }

    fn names(&self, _: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        let said = self.exchange(Ask::Names);
        Box::pin(async move {
            match said.await? {
                Said::Names(names) => Ok((names, 0)),
                _ => Err(gone()),
            }
        })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let (wire, said) = (Arc::clone(&self.wire), self.exchange(Ask::Attach(session)));
        Box::pin(async move {
            // Before it is asked for: a push may come before the answer.
            lock(&wire.ears).inbox = Some(inbox);
            said.await.map(drop)
        })
    }

    fn run(&self) -> &str {
        &self.wire.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let said = self.exchange(Ask::Time);
        Box::pin(async move {
            match said.await? {
                Said::Time(us) => Ok(us),
                _ => Err(gone()),
            }
        })
    }

    fn is_closed(&self) -> bool {
        self.wire.is_closed()
    }

    fn close(&self) {
        let (is_first, _) = self.wire.end();
        if is_first {
            net::client_closes(&self.sim, self.wire.id);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.close();
    }
}

fn gone() -> Fault {
    Fault::Gone(error(ErrorKind::Unreachable, "the connection is gone"))
}
