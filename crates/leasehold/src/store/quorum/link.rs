//! A link to all nodes at once: what a session asks of a store, asked of each, and counted.
//!
//! It is open while its session wants it, however many nodes are there: a question that too few of them answer is answered
//! as such ([`Fault::Undecided`]), and those who went are connected again meanwhile (`keeper.rs`). The time that it tells
//! is our own clock's: each node has one of its own, and what a node says is turned into ours as it is heard.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use leasehold_spec::node::{Abstention, Bell, Request, Rings, Vote};
use leasehold_spec::{Answer, Contention, Delivery, Event, Name, Op, Outcome, Renew, Rest, SessionId, Token};
use tokio::sync::Notify;
use tokio::task::unconstrained;

use super::Shared;
use super::fan::Fan;
use super::member::Standing;
use super::node::{self, NoVote, NodeLink, Rung};
use super::round::{Ballot, Tally};
use crate::clock::Sample;
use crate::error::{Error, ErrorKind};
use crate::inspection::NodeView;
use crate::store::{Fault, Inbox, Link, Message};
use crate::world::Pending;

/// How long whoever attaches waits for nodes beyond a majority: a lock that is taken at once is then taken at all of them.
const GRACE: Duration = Duration::from_millis(50);

/// See the head of this file.
pub(super) struct QuorumLink(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) shared: Arc<Shared>,
    slots: Vec<Slot>,
    pub(super) attached: OnceLock<(SessionId, Inbox)>,
    is_closed: AtomicBool,
}

/// One node's place.
#[derive(Default)]
struct Slot {
    place: Mutex<Place>,
    /// Whoever keeps it up is to look at it.
    look: Notify,
}

#[derive(Default)]
struct Place {
    link: Option<Arc<dyn NodeLink>>,
    /// Whether somebody has begun to attach the inbox to it.
    is_attached: bool,
    /// Whether a request found no answer in time.
    is_doubted: bool,
}

impl Inner {
    pub(super) fn new(shared: Arc<Shared>) -> Arc<Self> {
        let slots = shared.members.iter().map(|_| Slot::default()).collect();
        Arc::new(Self { shared, slots, attached: OnceLock::new(), is_closed: AtomicBool::new(false) })
    }

    pub(super) fn now_us(&self) -> u64 {
        self.shared.world.now_us()
    }

    pub(super) fn nodes(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn link(&self, node: usize) -> Option<Arc<dyn NodeLink>> {
        self.place(node).link.as_ref().filter(|link| !link.is_closed()).cloned()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// A node is connected. Without an inbox there is none to attach yet.
    pub(super) async fn install(self: &Arc<Self>, node: usize, link: Arc<dyn NodeLink>) -> Result<(), Error> {
        *self.place(node) = Place { link: Some(link), is_attached: false, is_doubted: false };
        if self.is_closed() {
            self.hang_up(node);
        }
        self.attach_to(node).await
    }

    /// Attaches the inbox to a node, if there are both, and nobody else does.
    async fn attach_to(self: &Arc<Self>, node: usize) -> Result<(), Error> {
        let Some((session, _)) = self.attached.get() else { return Ok(()) };
        let link = {
            let mut place = self.place(node);
            let Some(link) = place.link.clone().filter(|_| !place.is_attached) else { return Ok(()) };
            place.is_attached = true;
            link
        };
        let attached = link.attach(*session, self.inbox_of(node)).await;
        attached.map_err(|fault| {
            link.close();
            self.look_at(node);
            fault.error()
        })
    }

    fn inbox_of(self: &Arc<Self>, node: usize) -> node::Inbox {
        let inner = Arc::downgrade(self);
        Arc::new(move |rung| {
            let Some(inner) = inner.upgrade() else { return };
            match rung {
                Rung::Bell(name, bell) => inner.rung(node, name, &bell),
                Rung::Garbled => inner.tell(Message::Garbled),
                Rung::Detached => inner.look_at(node),
            }
        })
    }

    /// A message of a node.
    fn rung(self: &Arc<Self>, node: usize, name: Name, bell: &Bell) {
        self.shared.names().see(&name, bell.highest, bell.now_us);
        let now_us = self.now_us();
        let said = |token: Token, left_us: u64, event: Event, now_us: u64| Delivery {
            to: bell.to,
            now_us,
            contention: bell.contention,
            rest: Rest::Done,
            id: bell.id,
            token,
            left_us,
            range: 1,
            event,
        };
        match bell.rings {
            Rings::Call => self.called(node, &name, &bell.id),
            Rings::Wanted { token } => self.tell(Message::Delivery(name, said(token, 0, Event::Wanted, now_us))),
            Rings::Revoked { token, left_us } => {
                let made_us = self.shared.members[node].local_of(bell.now_us, now_us).unwrap_or(now_us).min(now_us);
                self.tell(Message::Delivery(name, said(token, left_us, Event::Revoked, made_us)));
            }
        }
    }

    pub(super) fn tell(&self, message: Message) {
        if let Some((_, inbox)) = self.attached.get() {
            inbox(message);
        }
    }

    /// Asks one node; `None` if it is not connected.
    pub(super) fn ask(self: &Arc<Self>, node: usize, name: &Name, request: &Request) -> Option<Pending<Ballot>> {
        let link = self.link(node)?;
        let (inner, asking, name) = (Arc::clone(self), link.ask(name, request), name.clone());
        Some(Box::pin(async move {
            let sent_us = inner.now_us();
            let said = asking.await;
            inner.heard(node, &link, &name, sent_us, said)
        }))
    }

    /// Asks all nodes. Those that are not connected have no vote.
    pub(super) fn ask_all(
        self: &Arc<Self>,
        name: &Name,
        tally: &mut Tally,
        request: impl Fn(usize) -> Request,
    ) -> Fan<Ballot> {
        let ask = |node| match self.ask(node, name, &request(node)) {
            Some(asking) => Some((node, asking)),
            None => {
                tally.hear(node, Ballot::Silent);
                None
            }
        };
        Fan::of((0..self.nodes()).filter_map(ask).collect::<Vec<_>>())
    }

    /// What a node's answer says of the node, and what it is worth.
    pub(super) fn heard(
        &self,
        node: usize,
        link: &Arc<dyn NodeLink>,
        name: &Name,
        sent_us: u64,
        said: Result<Vote, NoVote>,
    ) -> Ballot {
        let (member, heard_us) = (&self.shared.members[node], self.now_us());
        match said {
            Ok(vote) => {
                let sample = Sample { sent_us, heard_us, server_us: vote.now_us };
                if member.sample(link.run(), sample) {
                    // Its clock was set forward, and leases end early there: what is left is asked of all nodes.
                    self.tell(Message::Garbled);
                }
                self.shared.names().see(name, vote.highest, vote.now_us);
                // Who rests gives back and looks all the same, and has no vote by that.
                member.stand(Standing::of(link.rests_until_us(), vote.now_us, heard_us));
                Ballot::Cast { sent_us, vote: Box::new(vote) }
            }
            Err(NoVote::Abstains(abstention)) => {
                member.stand(Standing::Abstains(abstention, heard_us));
                if abstention == Abstention::Unmarked {
                    link.close();
                    self.look_at(node);
                }
                Ballot::Abstained
            }
            Err(NoVote::Fault(fault)) => {
                if let Fault::Gone(_) = &fault {
                    link.close();
                    self.look_at(node);
                }
                let error = fault.error();
                member.stand(Standing::Away(error.to_string()));
                Ballot::Failed(error.kind(), error.to_string())
            }
        }
    }

    /// Hears out what is no longer waited for: the nodes' clocks, and what is to be done about late votes.
    pub(super) fn finish<T: Send + 'static>(&self, fan: Fan<T>) {
        if !fan.is_empty() {
            // Without a runtime nobody hears them: they were sent, and nothing depends on more.
            drop(self.shared.world.spawn(Box::pin(unconstrained(fan.finish()))));
        }
    }

    /// Requests on this node found no answer in time: it answers a ping, or is connected anew.
    pub(super) fn doubt(&self, node: usize) {
        self.place(node).is_doubted = true;
        self.slots[node].look.notify_one();
    }

    /// Whether it was doubted since this was last asked.
    pub(super) fn take_doubt(&self, node: usize) -> bool {
        std::mem::take(&mut self.place(node).is_doubted)
    }

    pub(super) fn look_at(&self, node: usize) {
        self.slots[node].look.notify_one();
    }

    /// Until there is something to look at.
    pub(super) async fn looked_at(&self, node: usize) {
        self.slots[node].look.notified().await;
    }

    fn hang_up(&self, node: usize) {
        if let Some(link) = self.place(node).link.take() {
            link.close();
        }
        self.look_at(node);
    }

    fn place(&self, node: usize) -> MutexGuard<'_, Place> {
        self.slots[node].place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A round, to its end: heard until it is decided, or for so long.
    pub(super) async fn count<T>(
        &self,
        fan: &mut Fan<Ballot>,
        tally: &mut Tally,
        within_us: u64,
        decide: impl Fn(&Tally) -> Option<T>,
    ) -> Option<T> {
        let until_us = self.now_us() + within_us;
        match self.hear(fan, tally, until_us, &decide).await {
            None => {
                self.wait_no_longer(tally);
                decide(tally)
            }
            decided => decided,
        }
    }

    /// Hears a round until it is decided; `None` when time is up.
    pub(super) async fn hear<T>(
        &self,
        fan: &mut Fan<Ballot>,
        tally: &mut Tally,
        until_us: u64,
        decide: impl Fn(&Tally) -> Option<T>,
    ) -> Option<T> {
        let mut time_is_up = std::pin::pin!(self.shared.timers.at(until_us));
        loop {
            if let Some(decision) = decide(tally) {
                return Some(decision);
            }
            tokio::select! {
                biased;
                heard = fan.next() => match heard {
                    Some((node, ballot)) => tally.hear(node, ballot),
                    None => tally.close(),
                },
                () = &mut time_is_up => return None,
            }
        }
    }

    /// Who has not answered by now has no vote, and is looked after.
    pub(super) fn wait_no_longer(&self, tally: &mut Tally) {
        for node in tally.pending_nodes() {
            self.shared.members[node].stand(Standing::Silent);
            self.doubt(node);
        }
        tally.close();
    }

    /// How long a node may take for an answer that somebody waits for.
    pub(super) fn patience_us(&self, lease_ms: u64) -> u64 {
        self.shared.patience_us(lease_ms)
    }

    async fn ping(self: Arc<Self>) -> Result<u64, Fault> {
        let begun_us = self.now_us();
        let pings = (0..self.nodes()).filter_map(|node| Some((node, self.ping_node(node, self.link(node)?))));
        let mut fan = Fan::of(pings.collect::<Vec<_>>());
        while let Some((_, is_there)) = fan.next().await {
            if is_there {
                self.finish(fan);
                return Ok(begun_us);
            }
        }
        Err(Fault::Gone(self.shared.too_few(None)))
    }

    /// Asks a node for its time. Answers whether it said it.
    pub(super) fn ping_node(self: &Arc<Self>, node: usize, link: Arc<dyn NodeLink>) -> Pending<bool> {
        let inner = Arc::clone(self);
        Box::pin(async move {
            let sent_us = inner.now_us();
            let Ok(server_us) = link.ping().await else { return false };
            let sample = Sample { sent_us, heard_us: inner.now_us(), server_us };
            if inner.shared.members[node].sample(link.run(), sample) {
                inner.tell(Message::Garbled);
            }
            true
        })
    }

    async fn attach(self: Arc<Self>, session: SessionId, inbox: Inbox) -> Result<(), Fault> {
        self.attached.get_or_init(|| (session, inbox));
        self.keep_time();
        let attaching = (0..self.nodes()).map(|node| {
            let inner = Arc::clone(&self);
            let attach: Pending<bool> =
                Box::pin(async move { inner.attach_to(node).await.is_ok() && inner.link(node).is_some() });
            (node, attach)
        });
        let mut fan = Fan::of(attaching.collect::<Vec<_>>());
        let (mut attached, majority) = (0, self.nodes() / 2 + 1);
        let mut grace = None;
        loop {
            if attached >= majority && grace.is_none() {
                grace = Some(self.shared.world.sleep(GRACE));
            }
            let enough = async {
                match &mut grace {
                    Some(grace) => grace.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                heard = fan.next() => match heard {
                    Some((_, is_attached)) => attached += usize::from(is_attached),
                    None if attached >= majority => return Ok(()),
                    None => return Err(Fault::Gone(self.shared.too_few(None))),
                },
                () = enough => {
                    self.finish(fan);
                    return Ok(());
                }
            }
        }
    }

    /// Deadlines and turns are the session's thread's, which is where an inbox is attached.
    fn keep_time(self: &Arc<Self>) {
        let (timers, world) = (Arc::clone(&self.shared.timers), Arc::clone(&self.shared.world));
        let (inner, turn) = (Arc::downgrade(self), Arc::downgrade(self));
        let is_over = move || inner.upgrade().is_none_or(|inner| inner.is_closed());
        let turn = move |id, alarm| {
            if let Some(inner) = turn.upgrade() {
                inner.alarm(&id, alarm);
            }
        };
        drop(self.shared.world.spawn(Box::pin(timers.keep(world, is_over, turn))));
    }

    async fn names(self: Arc<Self>, from: u64) -> Result<(Vec<Name>, u64), Fault> {
        // The node in the lowest digits, and its own place above. What the tables of a server are numbered by fits twice.
        let (mut node, mut place) = ((from & 15) as usize, from >> 4);
        while node < self.nodes() {
            if let Some(link) = self.link(node) {
                let (names, next) = link.names(place).await?;
                let next = match next {
                    0 if node + 1 == self.nodes() => 0,
                    0 => node as u64 + 1,
                    more => more << 4 | node as u64,
                };
                return Ok((names, next));
            }
            (node, place) = (node + 1, 0);
        }
        Ok((Vec::new(), 0))
    }

    async fn apply(self: Arc<Self>, name: Name, op: Op) -> Result<Answer, Fault> {
        match op {
            Op::Acquire(acquire) => self.acquire(name, acquire).await,
            Op::Renew(renew) => {
                let mut heard = self.renew(vec![(name, renew)]).await;
                heard.pop().unwrap_or_else(|| Err(Fault::Undecided(Error::closed())))
            }
            Op::Release { id, token, .. } => self.release(name, id, token).await,
            Op::Leave { id, .. } => self.leave(name, id).await,
            Op::Reserve { id, token, .. } => Ok(self.reserve(&id, token)),
            Op::Revoke { holder, token, grace_ms } => self.revoke(name, holder, token, grace_ms).await,
            Op::Settle => self.settle(name).await,
            Op::Inspect => Ok(self.inspect(name).await?.0),
        }
    }

    /// An answer of ours.
    pub(super) fn answer(&self, since_us: u64, tally: &Tally, outcome: Outcome) -> Answer {
        let highest = match outcome {
            Outcome::Granted { token, .. } => token,
            Outcome::Lost { .. } => tally.highest_elsewhere(),
            _ => tally.highest(),
        };
        Answer {
            now_us: since_us.max(1),
            highest,
            contention: tally.contention(),
            rest: Rest::Done,
            handed_claim_ms: tally.has_called().then_some(leasehold_spec::limits::CALL_MS),
            outcome,
        }
    }
}

impl Link for QuorumLink {
    fn apply(&self, name: &Name, op: &Op, _guess: Contention) -> Pending<Result<Answer, Fault>> {
        // Outside of the runtime's budget: what is sent to all nodes is sent by the first poll.
        Box::pin(unconstrained(Arc::clone(&self.0).apply(name.clone(), op.clone())))
    }

    fn inspect(&self, name: &Name, _guess: Contention) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        Box::pin(unconstrained(Arc::clone(&self.0).inspect(name.clone())))
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Result<Answer, Fault>>> {
        Box::pin(unconstrained(Arc::clone(&self.0).renew(batch.to_vec())))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        Box::pin(Arc::clone(&self.0).names(from))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        Box::pin(Arc::clone(&self.0).attach(session, inbox))
    }

    /// Which runs the nodes are is their own affair: whoever forgot something abstains.
    fn run(&self) -> &str {
        "quorum"
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        Box::pin(unconstrained(Arc::clone(&self.0).ping()))
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&self) {
        if !self.0.is_closed.swap(true, Ordering::AcqRel) {
            (0..self.0.nodes()).for_each(|node| self.0.hang_up(node));
            self.0.tell(Message::Detached);
        }
    }
}

impl Drop for QuorumLink {
    fn drop(&mut self) {
        self.close();
    }
}

/// What too few nodes can mean to whoever asks: mostly that there is no quorum; but what a majority says is wrong with the
/// name, or with us, is wrong.
pub(super) fn kind_of(tally: &Tally) -> Option<(ErrorKind, String)> {
    let failed = tally.failed();
    let same = |kind: ErrorKind| failed.iter().filter(|(other, _)| *other == kind).count();
    let (kind, text) = failed.iter().find(|(kind, _)| *kind != ErrorKind::Unreachable && same(*kind) >= tally.majority())?;
    Some((*kind, text.clone()))
}
