//! A connection as its client has it: the store's two traits, and where its requests go.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use leasehold::seam::{
    Fault, Guess, Inbox, Link, Message, Pending, Progress, Store, StoreProfile, error, inspect_whole,
};
use leasehold::{Error, ErrorKind, NodeView, Result};
use leasehold_spec::limits::RENEW_BATCH;
use leasehold_spec::{Acquire, Answer, Contention, Delivery, Event, Kind, Name, Op, Patience, Renew, SessionId};

use super::conns::{self, Sending};
use super::exec::{Pid, lock};
use super::jumps::Trip;
use super::net::{self, Net};
use super::node::{Ask, Reply};
use super::stage::Sim;
use super::wire::{Way, Wire};

/// The simulated store, as one process reaches it.
pub(super) struct SimStore {
    pub(super) sim: Arc<Sim>,
    pub(super) pid: Pid,
}

/// The route of a connection: to the server, by the network.
pub(super) struct Route {
    sim: Arc<Sim>,
    pid: Pid,
    id: u64,
    inbox: Arc<Mutex<Option<Inbox>>>,
    /// When each unanswered request was sent. Answers come in the same order.
    sent_us: Mutex<VecDeque<u64>>,
}

impl Store for SimStore {
    fn open(&self) -> Pending<Result<Arc<dyn Link>>> {
        let (sim, pid) = (Arc::clone(&self.sim), self.pid);
        Box::pin(async move {
            let (id, run, wire) = net::open(&sim, pid).await?;
            let inbox = Arc::new(Mutex::new(None));
            let route = Route { sim: Arc::clone(&sim), pid, id, inbox: Arc::clone(&inbox), sent_us: Mutex::default() };
            let driver = Box::pin(wire.drive(route));
            // Dropping the link closes the connection.
            let spawned = sim.exec.spawn_beside(pid, "a connection", driver);
            spawned.map_err(|_| error(ErrorKind::Unreachable, "there is no runtime here"))?;
            Ok(Arc::new(SimLink { sim, run, wire, inbox }) as Arc<dyn Link>)
        })
    }

    fn profile(&self) -> StoreProfile {
        let kinds = &Kind::ALL;
        let profile = StoreProfile { kinds, names_successors: true, takes_together: true, ..StoreProfile::default() };
        StoreProfile { moves_inbox: true, ..profile }
    }

    fn silence(&self) -> Option<Error> {
        None
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }
}

impl Way for Route {
    type Ask = Ask;
    /// An answer, and the moment at which the server made it.
    type Reply = (Reply, u64);
    type Push = (Name, Delivery);

    fn send(&self, number: u64, ask: Ask) {
        lock(&self.sent_us).push_back(self.sim.exec.now_us());
        conns::send::<Net>(&self.sim, (0, self.id), Sending::Up { reply: Some(number), ask });
    }

    fn may_join(&self, ask: &Ask) -> bool {
        matches!(ask, Ask::Joining(..))
    }

    fn send_together(&self, asks: Vec<(u64, Ask)>) {
        if asks.len() <= 1 {
            return asks.into_iter().for_each(|(number, ask)| self.send(number, ask));
        }
        self.sim.book.count("requests leave together");
        let joining = asks.into_iter().map(|(number, ask)| match ask {
            Ask::Joining(name, op) => (number, name, op),
            _ => unreachable!("only joining requests leave together"),
        });
        let (all, sent_us): (Vec<_>, _) = (joining.collect(), self.sim.exec.now_us());
        for batch in all.chunks(RENEW_BATCH) {
            lock(&self.sent_us).extend(batch.iter().map(|_| sent_us));
            let (reply, ask) = (Some(batch[0].0), Ask::Together(batch.to_vec()));
            conns::send::<Net>(&self.sim, (0, self.id), Sending::Up { reply, ask });
        }
    }

    fn answered(&self, (_, made_us): &(Reply, u64)) {
        let (made_us, received_us) = (*made_us, self.sim.exec.now_us());
        let sent_us = lock(&self.sent_us).pop_front().unwrap_or(made_us);
        // The link does not know the name of the answer. The answer may have said that the waiter in strict order has
        // left.
        self.sim.book.record_answer(self.pid, Trip { sent_us, made_us, received_us });
    }

    fn pushed(&self, (name, delivery): (Name, Delivery)) {
        let pid = lock(&self.sim.net).pids.get(&delivery.to).copied();
        pid.inspect(|pid| self.sim.book.record_contention(*pid, &delivery, self.sim.exec.now_us()));
        if delivery.event == Event::Revoked {
            lock(&self.sim.net).notified.insert(delivery.token.get());
        }
        self.deliver(Message::Delivery(name, delivery));
    }

    fn ended(&self) {
        conns::client_closes::<Net>(&self.sim, (0, self.id));
        self.deliver(Message::Detached);
        lock(&self.inbox).take();
    }
}

impl Route {
    fn deliver(&self, message: Message) {
        let inbox = lock(&self.inbox).clone();
        if let Some(inbox) = inbox {
            inbox(message);
        }
    }
}

struct SimLink {
    sim: Arc<Sim>,
    run: String,
    wire: Arc<Wire<Route>>,
    inbox: Arc<Mutex<Option<Inbox>>>,
}

impl SimLink {
    fn exchange(&self, ask: Ask) -> impl Future<Output = Result<Reply, Fault>> + Send + use<> {
        exchange(&self.wire, ask)
    }
}

fn exchange(wire: &Arc<Wire<Route>>, ask: Ask) -> impl Future<Output = Result<Reply, Fault>> + Send + use<> {
    let said = wire.exchange(ask);
    async move {
        match said.await {
            Some((Reply::NotPrimary, _)) | None => Err(gone()),
            Some((Reply::NoMemory, _)) => {
                Err(Fault::NoMemory(error(ErrorKind::Store, "the memory of the store is full")))
            }
            Some((said, _)) => Ok(said),
        }
    }
}

/// Whether a request may leave in one message with those beside it, as on Redis.
fn may_join(op: &Op, guess: Guess) -> bool {
    guess.kind == Kind::Mutex
        && guess.contention == Contention::None
        && match op {
            Op::Acquire(Acquire { patience: Patience::Queue(place), .. }) => place.ticket.is_none(),
            Op::Acquire(_) => true,
            Op::Release { token, used, .. } => used <= token,
            _ => false,
        }
}

fn answer(said: Reply) -> Result<Answer, Fault> {
    match said {
        Reply::Answer(answer) => Ok(answer),
        _ => Err(gone()),
    }
}

impl Link for SimLink {
    fn apply(&self, name: &Name, op: &Op, guess: Guess) -> Pending<Result<Answer, Fault>> {
        let mut op = op.clone();
        if let Op::Acquire(acquire) = &mut op {
            acquire.range = acquire.range.min(self.sim.plan.range);
        }
        let (wire, name) = (Arc::clone(&self.wire), name.clone());
        let ask = if may_join(&op, guess) { Ask::Joining } else { Ask::One };
        let said = self.exchange(ask(name.clone(), op.clone()));
        Box::pin(async move {
            match said.await? {
                Reply::SendAlone => answer(exchange(&wire, Ask::One(name, op)).await?),
                said => answer(said),
            }
        })
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)], _kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
        let (said, count) = (self.exchange(Ask::Batch(batch.to_vec())), batch.len());
        Box::pin(async move {
            match said.await {
                Ok(Reply::Answers(answers)) => answers.into_iter().map(Ok).collect(),
                _ => (0..count).map(|_| Err(gone())).collect(),
            }
        })
    }

    fn acquire_all(&self, members: &[(Name, Acquire)]) -> Pending<Result<Option<Vec<Answer>>, Fault>> {
        let mut members = members.to_vec();
        members.iter_mut().for_each(|(_, acquire)| acquire.range = acquire.range.min(self.sim.plan.range));
        let said = self.exchange(Ask::All(members));
        Box::pin(async move {
            match said.await? {
                Reply::All(answers) => Ok(answers),
                _ => Err(gone()),
            }
        })
    }

    fn names(&self, _: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        let said = self.exchange(Ask::Names);
        Box::pin(async move {
            match said.await? {
                Reply::Names(names) => Ok((names, 0)),
                _ => Err(gone()),
            }
        })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let (ours, said) = (Arc::clone(&self.inbox), self.exchange(Ask::Attach(session)));
        Box::pin(async move {
            // Set before the request is sent: a push may come before the answer.
            *lock(&ours) = Some(inbox);
            said.await.map(drop)
        })
    }

    fn detach(&self, session: SessionId) -> Pending<Result<(), Fault>> {
        let said = self.exchange(Ask::Detach(session));
        Box::pin(async move { said.await.map(drop) })
    }

    fn check_read(&self) -> Progress {
        self.wire.check_polled()
    }

    fn run_id(&self) -> &str {
        &self.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let said = self.exchange(Ask::Time);
        Box::pin(async move {
            match said.await? {
                Reply::Time(us) => Ok(us),
                _ => Err(gone()),
            }
        })
    }

    fn idle(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn is_closed(&self) -> bool {
        self.wire.is_closed()
    }

    fn close(&self) {
        self.wire.close();
    }

    fn check_driven(&self) -> Progress {
        self.wire.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.wire.has_unsent()
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        self.close();
    }
}

fn gone() -> Fault {
    Fault::Gone(error(ErrorKind::Unreachable, "the connection is gone"))
}
