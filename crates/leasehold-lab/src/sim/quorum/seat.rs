//! A path to a node as its client has it: the two traits of `store/quorum/node.rs`, and the task that hears what arrives.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use leasehold::seam::node::{Candidate, Inbox, NoVote, Node, NodeLink, Rung};
use leasehold::seam::{Fault, Pending, error};
use leasehold::{Error, ErrorKind};
use leasehold_spec::node::{Abstention, Bell, Charter, Marker, Renewal, Request, Vote};
use leasehold_spec::{Name, SessionId};
use tokio::sync::oneshot;

use super::super::exec::{Pid, lock};
use super::super::stage::Sim;
use super::net::{self, Way};
use super::voter::{Query, Reply};

/// A node, as one process reaches it.
pub(in super::super) struct Seat {
    sim: Arc<Sim>,
    pid: Pid,
    node: usize,
    at: String,
}

impl Seat {
    /// All of them.
    pub(in super::super) fn all(sim: &Arc<Sim>, pid: Pid) -> Vec<Arc<dyn Node>> {
        let names: Vec<String> = lock(&sim.votes).nodes.iter().map(|voter| voter.at.clone()).collect();
        let seat = |(node, at)| Arc::new(Self { sim: Arc::clone(sim), pid, node, at }) as Arc<dyn Node>;
        names.into_iter().enumerate().map(seat).collect()
    }
}

impl Node for Seat {
    fn at(&self) -> &str {
        &self.at
    }

    fn open(&self, charter: Charter) -> Pending<Result<Arc<dyn NodeLink>, Error>> {
        let (sim, pid, node) = (Arc::clone(&self.sim), self.pid, self.node);
        Box::pin(async move {
            let wire = net::open(&sim, pid, node).await?;
            // Owned from here on: dropped, it closes the connection.
            let mut line = Line { sim: Arc::clone(&sim), wire: Arc::clone(&wire), marker: None };
            sim.exec.spawn_beside(pid, "a connection", Box::pin(drive(wire)));
            match line.exchange(Query::Greet(charter)).await {
                Ok(Reply::Greeted(marker)) => line.marker = Some(Arc::new(marker)),
                Ok(_) => return Err(error(ErrorKind::Invalid, "a quorum with another charter")),
                Err(_) => return Err(error(ErrorKind::Unreachable, "the connection is gone")),
            }
            Ok(Arc::new(line) as Arc<dyn NodeLink>)
        })
    }

    /// Every node of a simulation has begun before the first client comes.
    fn prepare(&self, _: Charter) -> Pending<Result<Arc<dyn Candidate>, Error>> {
        let begun = error(ErrorKind::Unsupported, "every node has begun");
        Box::pin(std::future::ready(Err(begun)))
    }
}

/// A connection's end at the client, shared by its link, by the task that drives it, and by the network.
pub(super) struct Wire {
    id: u64,
    node: usize,
    run: String,
    is_closed: AtomicBool,
    ears: Mutex<Ears>,
}

#[derive(Default)]
struct Ears {
    /// What has arrived, and was not read yet.
    socket: VecDeque<Word>,
    driver: Option<Waker>,
    waiting: BTreeMap<u64, oneshot::Sender<Reply>>,
    next: u64,
    inbox: Option<Inbox>,
}

/// What arrives.
pub(super) enum Word {
    Reply(u64, Reply),
    Push(Name, Bell),
    /// The connection is gone.
    Broken,
}

impl Wire {
    pub(super) fn new(id: u64, node: usize, run: String) -> Self {
        Self { id, node, run, is_closed: AtomicBool::new(false), ears: Mutex::default() }
    }

    /// Something arrives, whether anybody reads it or not.
    pub(super) fn arrive(&self, word: Word) {
        let mut ears = lock(&self.ears);
        ears.socket.push_back(word);
        let driver = ears.driver.take();
        drop(ears);
        driver.into_iter().for_each(Waker::wake);
    }

    fn is_closed(&self) -> bool {
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
async fn drive(wire: Arc<Wire>) {
    poll_fn(|context| drive_once(&wire, context)).await;
}

fn drive_once(wire: &Wire, context: &mut Context<'_>) -> Poll<()> {
    if wire.is_closed() {
        return Poll::Ready(());
    }
    let mut ears = lock(&wire.ears);
    let Some(word) = ears.socket.pop_front() else {
        ears.driver = Some(context.waker().clone());
        return Poll::Pending;
    };
    let waiting = if let Word::Reply(number, _) = &word { ears.waiting.remove(number) } else { None };
    let inbox = ears.inbox.clone();
    drop(ears);
    match word {
        Word::Reply(_, said) => {
            if let Some(waiting) = waiting {
                drop(waiting.send(said));
            }
        }
        Word::Push(name, bell) => inbox.into_iter().for_each(|inbox| inbox(Rung::Bell(name.clone(), bell.clone()))),
        Word::Broken => {
            let (_, inbox) = wire.end();
            inbox.into_iter().for_each(|inbox| inbox(Rung::Detached));
            return Poll::Ready(());
        }
    }
    context.waker().wake_by_ref();
    Poll::Pending
}

struct Line {
    sim: Arc<Sim>,
    wire: Arc<Wire>,
    /// `None` until it was greeted.
    marker: Option<Arc<Marker>>,
}

impl Line {
    /// Sent when this is first polled; the future may be dropped then, and the request goes on.
    fn exchange(&self, ask: Query) -> impl Future<Output = Result<Reply, Fault>> + Send + 'static {
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
            net::send(&sim, wire.id, wire.node, Way::Up { reply: Some(number), ask });
            drop(sim);
            match said.await {
                Ok(Reply::NoMemory) => Err(Fault::NoMemory(error(ErrorKind::Store, "the memory of the store is full"))),
                Ok(said) => Ok(said),
                Err(_) => Err(gone()),
            }
        }
    }

    fn seen(&self) -> Arc<Marker> {
        // Nobody has a line that was not greeted.
        self.marker.clone().unwrap_or_else(|| unreachable!("a line is greeted before it is used"))
    }
}

fn vote(said: Result<Vote, Abstention>) -> Result<Vote, NoVote> {
    said.map_err(NoVote::Abstains)
}

impl NodeLink for Line {
    fn ask(&self, name: &Name, request: &Request) -> Pending<Result<Vote, NoVote>> {
        let mut request = request.clone();
        if let Request::Ask(ask) = &mut request {
            // Small in some plans, so that sessions come to the end of what they have reserved.
            ask.range = ask.range.min(self.sim.plan.range);
        }
        let said = self.exchange(Query::One(name.clone(), request, self.seen()));
        Box::pin(async move {
            match said.await {
                Ok(Reply::Vote(said)) => vote(said),
                Ok(_) => Err(NoVote::Fault(gone())),
                Err(fault) => Err(NoVote::Fault(fault)),
            }
        })
    }

    fn renew(&self, batch: &[(Name, Renewal)]) -> Pending<Vec<Result<Vote, NoVote>>> {
        let (said, count) = (self.exchange(Query::Batch(batch.to_vec(), self.seen())), batch.len());
        Box::pin(async move {
            match said.await {
                Ok(Reply::Votes(votes)) => votes.into_iter().map(vote).collect(),
                _ => (0..count).map(|_| Err(NoVote::Fault(gone()))).collect(),
            }
        })
    }

    fn names(&self, _: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        let said = self.exchange(Query::Names);
        Box::pin(async move {
            match said.await? {
                Reply::Names(names) => Ok((names, 0)),
                _ => Err(gone()),
            }
        })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let (wire, said) = (Arc::clone(&self.wire), self.exchange(Query::Attach(session)));
        Box::pin(async move {
            // Before it is asked for: a message may come before the answer.
            lock(&wire.ears).inbox = Some(inbox);
            said.await.map(drop)
        })
    }

    fn rests_until_us(&self) -> u64 {
        self.seen().rests_until_us
    }

    fn was_used(&self) -> bool {
        self.seen().was_used
    }

    fn run(&self) -> &str {
        &self.wire.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let said = self.exchange(Query::Time);
        Box::pin(async move {
            match said.await? {
                Reply::Time(us) => Ok(us),
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
