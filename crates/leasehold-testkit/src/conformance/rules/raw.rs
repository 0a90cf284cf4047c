//! A client that does nothing by itself: it sends the requests that it is given, and keeps the messages that it gets.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::Poll;

use leasehold::seam::{Inbox, Link, Message, Real, choose};
use leasehold_spec::limits::NOT_AFTER_MAX_US;
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, From, GrantId, Hears, Inspection, Kind, Name, Op, Order, Outcome, Patience,
    Place, Renew, SessionId, Take, Token,
};
use tokio::sync::mpsc;

use crate::conformance::stage::{Stage, eventually, soon};

pub(in crate::conformance) struct Raw {
    pub(super) link: Arc<dyn Link>,
    pub(super) session: SessionId,
    name: Name,
    /// The take of its acquires.
    wants: Take,
    counter: u64,
    taken: Option<(GrantId, Token)>,
    messages: mpsc::UnboundedReceiver<Message>,
}

const LONG_MS: u64 = 600_000;

impl Raw {
    /// Attaches a client that acquires a mutex.
    pub(in crate::conformance) async fn attach(stage: &Stage) -> Self {
        Self::attach_for(stage, Take::MUTEX).await
    }

    pub(in crate::conformance) async fn attach_for(stage: &Stage, wants: Take) -> Self {
        let random = RandomState::new();
        let session = SessionId(u128::from(random.hash_one(0)) << 64 | u128::from(random.hash_one(1)));
        let (link, messages) = Self::link(stage, session).await;
        let name = Name::new(stage.name()).expect("cells have good names");
        Self { link, session, name, wants, counter: 0, taken: None, messages }
    }

    async fn link(stage: &Stage, session: SessionId) -> (Arc<dyn Link>, mpsc::UnboundedReceiver<Message>) {
        let store = choose(stage.url(), None, &Real::world()).expect("a good URL");
        let link = store.open().await.expect("connected");
        let (sender, messages) = mpsc::unbounded_channel();
        // Nobody receives any more when the cell has ended.
        let inbox: Inbox = Arc::new(move |message| drop(sender.send(message)));
        link.attach(session, inbox).await.expect("attached");
        (link, messages)
    }

    /// Attaches anew, with a link of its own. Returns the old link.
    pub(super) async fn attach_anew(&mut self, stage: &Stage) -> Arc<dyn Link> {
        let (link, messages) = Self::link(stage, self.session).await;
        self.messages = messages;
        std::mem::replace(&mut self.link, link)
    }

    /// Closes its link, and waits until the store has seen that.
    pub(in crate::conformance) async fn detach(&self, stage: &Stage) {
        self.link.close();
        eventually("it is detached", async || !stage.running().is_attached(self.session)).await;
    }

    pub(super) fn id(&mut self) -> GrantId {
        self.counter += 1;
        GrantId { session: self.session, counter: self.counter, nonce: RandomState::new().hash_one(self.counter) }
    }

    pub(super) async fn now_us(&self) -> u64 {
        self.link.ping().await.expect("an answer")
    }

    pub(super) async fn ask(&self, op: Op) -> Answer {
        // A guess changes the path to the answer, never the answer: a wrong guess must work too.
        let guess = if self.counter.is_multiple_of(2) { Contention::None } else { Contention::Others };
        self.link.apply(&self.name, &op, guess.into()).await.expect("an answer")
    }

    /// Takes the lease, which is free, for a long time.
    pub(in crate::conformance) async fn take(&mut self) -> Token {
        let id = self.id();
        let token = self.take_as(id, LONG_MS).await;
        self.taken = Some((id, token));
        token
    }

    /// Makes the lease that it took end soon.
    pub(in crate::conformance) async fn shorten(&self, lease_ms: u64) {
        let (id, token) = self.taken.expect("it took it");
        assert_eq!(left_us(&self.renew(id, token, From::Now, lease_ms).await), lease_ms * 1000);
    }

    pub(super) async fn take_as(&self, id: GrantId, lease_ms: u64) -> Token {
        self.take_range(id, lease_ms, 1).await.0
    }

    /// Takes the lease with this many tokens. Returns the first, and their number.
    pub(super) async fn take_range(&self, id: GrantId, lease_ms: u64, range: u64) -> (Token, u64) {
        match self.acquire_range(id, lease_ms, Patience::Try, range).await.outcome {
            Outcome::Granted { token, range, .. } => (token, range),
            other => panic!("it is free: {other:?}"),
        }
    }

    pub(super) async fn acquire(&self, id: GrantId, lease_ms: u64, patience: Patience) -> Answer {
        self.acquire_range(id, lease_ms, patience, 1).await
    }

    async fn acquire_range(&self, id: GrantId, lease_ms: u64, patience: Patience, range: u64) -> Answer {
        let not_after_us = self.now_us().await + NOT_AFTER_MAX_US;
        self.ask(Op::Acquire(Acquire {
            id,
            take: self.wants,
            lease_ms,
            not_after_us,
            patience,
            label: "raw".into(),
            range,
        }))
        .await
    }

    /// Sends many acquires at once.
    pub(super) async fn acquire_all(&self, ids: &[GrantId], lease_ms: u64, patience: &Patience) -> Vec<Answer> {
        let mut asked: Vec<_> =
            ids.iter().map(|id| Box::pin(self.acquire(*id, lease_ms, patience.clone()))).map(Some).collect();
        let mut answers = Vec::new();
        std::future::poll_fn(|context| {
            for one in &mut asked {
                if let Some(Poll::Ready(answer)) = one.as_mut().map(|one| one.as_mut().poll(context)) {
                    answers.push(answer);
                    *one = None;
                }
            }
            if answers.len() == asked.len() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        answers
    }

    /// Joins the queue, and dies: its inbox is detached, and it asks no more.
    pub(in crate::conformance) async fn queue_and_die(&mut self, stage: &Stage) {
        let id = self.id();
        self.queue(id, LONG_MS, place()).await;
        self.detach(stage).await;
    }

    /// Joins the queue, and asks no more.
    pub(in crate::conformance) async fn stand(&mut self) {
        let id = self.id();
        self.queue(id, LONG_MS, place()).await;
    }

    /// Joins the queue. Returns the ticket.
    pub(super) async fn queue(&self, id: GrantId, lease_ms: u64, place: Place) -> u64 {
        match self.acquire(id, lease_ms, Patience::Queue(place)).await.outcome {
            Outcome::Queued { ticket, .. } => ticket,
            other => panic!("somebody holds: {other:?}"),
        }
    }

    pub(super) async fn renew(&self, id: GrantId, token: Token, from: From, lease_ms: u64) -> Answer {
        let not_after_us = self.now_us().await + NOT_AFTER_MAX_US;
        let renew = Renew { id, token, from, lease_ms, not_after_us };
        let answers = self.link.renew(&[(self.name.clone(), renew)], Kind::Mutex).await;
        answers.into_iter().next().expect("one answer for each").expect("an answer")
    }

    pub(super) async fn release(&self, id: GrantId, token: Token) -> Answer {
        self.ask(Op::Release { id, token, used: token }).await
    }

    pub(super) async fn inspect(&self) -> Inspection {
        match self.ask(Op::Inspect).await.outcome {
            Outcome::Inspected(inspection) => inspection,
            other => panic!("no inspection: {other:?}"),
        }
    }

    pub(super) async fn is_held_by(&self, id: GrantId) -> bool {
        self.inspect().await.holder().is_some_and(|holder| holder.id == id.public())
    }

    /// Returns the next message.
    pub(super) async fn next_message(&mut self) -> Delivery {
        match soon("a message", self.messages.recv()).await {
            Some(Message::Delivery(name, delivery)) => {
                assert_eq!(name, self.name);
                assert_eq!(delivery.to, self.session);
                delivery
            }
            other => panic!("no message of ours: {other:?}"),
        }
    }

    /// Checks that nothing was sent before an exchange that begins now.
    pub(super) async fn expect_no_message(&mut self) {
        let _ = self.now_us().await;
        assert!(self.messages.try_recv().is_err(), "it got a message");
    }
}

/// The place of a waiter without a time limit.
pub(super) fn place() -> Place {
    Place { claim_ms: 1_000, limit_ms: None, ticket: None, hears: Hears::Listens, order: Order::Relaxed }
}

pub(super) fn token_of(answer: &Answer) -> Token {
    match answer.outcome {
        Outcome::Granted { token, .. } => token,
        ref other => panic!("not granted: {other:?}"),
    }
}

pub(super) fn left_us(answer: &Answer) -> u64 {
    match answer.outcome {
        Outcome::Granted { left_us, .. } | Outcome::Renewed { left_us } | Outcome::Revoking { left_us } => left_us,
        ref other => panic!("nothing is left of {other:?}"),
    }
}
