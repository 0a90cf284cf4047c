//! A link to all nodes at once: what a session asks of a store, asked of each, and counted.
//!
//! It is open while its session wants it, however many nodes are there: a question that too few of them answer is answered
//! as such ([`Fault::Undecided`]), and those who went are connected again meanwhile (`keeper.rs`). The time that it tells
//! is our own clock's: each node has one of its own, and what a node says is turned into ours as it is heard.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use leasehold_spec::node::{Bell, Rings};
use leasehold_spec::{Answer, Contention, Delivery, Event, Name, Op, Outcome, Renew, Rest, SessionId, Token};
use tokio::task::unconstrained;

use super::fan::Fan;
use super::node::{self, Rung};
use super::places::Inner;
use super::round::Tally;
use crate::error::Error;
use crate::inspection::NodeView;
use crate::store::{Fault, Inbox, Link, Message, Progress};
use crate::world::Pending;

/// How long whoever connects, or attaches, waits for nodes beyond a majority: a lock that is taken at once is then taken at
/// all of them, and who looks at once is not told that nobody knows, because some of the majority rest.
pub(super) const GRACE: Duration = Duration::from_millis(50);

/// See the head of this file.
pub(super) struct QuorumLink(pub(super) Arc<Inner>);

impl Inner {
    pub(super) fn inbox_of(self: &Arc<Self>, node: usize) -> node::Inbox {
        let inner = Arc::downgrade(self);
        Arc::new(move |rung| {
            let Some(inner) = inner.upgrade() else { return };
            match rung {
                Rung::Bell(name, bell) => inner.rung(node, name, &bell),
                Rung::Garbled => inner.tell(Message::LookAtAll),
                Rung::Detached => inner.look_at(node),
            }
        })
    }

    /// A message of a node.
    fn rung(self: &Arc<Self>, node: usize, name: Name, bell: &Bell) {
        let now_us = self.now_us();
        self.shared.see(&name, bell.highest, now_us);
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
        let made_us = || self.shared.members[node].local_of(bell.now_us, now_us).unwrap_or(now_us).min(now_us);
        match bell.rings {
            Rings::Call => self.called(node, &name, &bell.id),
            Rings::Wanted { token } => self.tell(Message::Delivery(name, said(token, 0, Event::Wanted, now_us))),
            Rings::Revoked { token, left_us } => {
                self.tell(Message::Delivery(name, said(token, left_us, Event::Revoked, made_us())));
            }
            // The waiter asks all nodes when the vote of this one has ended. If no majority is free by then, the answer
            // says when one is.
            Rings::Ending { token, left_us } => {
                self.tell(Message::Delivery(name, said(token, left_us, Event::Ending, made_us())));
            }
        }
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

    async fn attach(self: Arc<Self>, session: SessionId, inbox: Inbox) -> Result<(), Fault> {
        *self.shared.home.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&inbox));
        *self.shared.home_link.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&self);
        self.attached.get_or_init(|| (session, inbox));
        // From now on the connectors of the nodes pay what other links owe.
        (0..self.nodes()).for_each(|node| self.look_at(node));
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
        // Of each lock that is held one of a majority knows. Where there is none, no names are no sign that there is none.
        if from == 0 && self.shared.may_vote() <= self.nodes() / 2 {
            return Err(Fault::Undecided(self.shared.too_few(None)));
        }
        // The node in the lowest digits, then how many were passed over, and the node's own place above. What the tables of
        // a server are numbered by fits twice.
        let (mut node, mut passed, mut place) = ((from & 15) as usize, from >> 4 & 15, from >> 8);
        let (mut names, mut next) = (Vec::new(), 0);
        while node < self.nodes() && names.is_empty() {
            match self.link(node) {
                Some(link) => (names, next) = link.names(place).await?,
                None => passed += 1,
            }
            if next != 0 {
                return Ok((names, next << 8 | passed << 4 | node as u64));
            }
            (node, place) = (node + 1, 0);
        }
        match (node < self.nodes(), passed as usize > self.nodes() / 2) {
            (true, _) => Ok((names, passed << 4 | node as u64)),
            // Their connections may have broken while nobody asked. A majority can have been among them.
            (false, true) => Err(Fault::Undecided(self.shared.too_few(None))),
            (false, false) => Ok((names, 0)),
        }
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
            Op::CoolDown { id, for_ms, .. } => self.cool_down(name, id, for_ms).await,
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
            _ => tally.passed(),
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
    fn run_id(&self) -> &str {
        "quorum"
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        Box::pin(unconstrained(Arc::clone(&self.0).ping()))
    }

    fn idle(&self) -> Pending<()> {
        Box::pin(Arc::clone(&self.0.shared).idle())
    }

    fn check_driven(&self) -> Progress {
        self.0.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.0.has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&self) {
        self.0.close();
    }
}

impl Drop for QuorumLink {
    fn drop(&mut self) {
        self.close();
    }
}
