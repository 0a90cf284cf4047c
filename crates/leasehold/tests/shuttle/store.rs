//! A store that is `step`, behind connections with delays of their own.
//!
//! Requests arrive in the order in which they were sent on a connection. Replies and messages come back in the order in
//! which they were made. There is no order between two connections. Each direction is a task, which the scheduler stops
//! at any point.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::seam::{Fault, Inbox, Link, Message, Pending, Progress, Store, StoreProfile, World, inspect_whole};
use crate::{Error, LostReason, NodeView};
use leasehold_spec::{Acquire, Answer, Env, Kind, Name, Op, Renew, Resource, SessionId, Token, step};
use shuttle::future::yield_now;
use tokio::sync::{mpsc, oneshot};

use super::world::Staged;
use crate::store::{Guess, refuse_detach};

/// How far the server's clock is ahead of the client's.
const AHEAD_US: u64 = 1_000_000_000_000;

#[derive(Clone)]
pub(crate) struct StepStore(Arc<Inner>);

struct Inner {
    world: Staged,
    /// Locked for a step, without any operation of the scheduler in it: never contended.
    contents: Mutex<Contents>,
    opened: AtomicUsize,
}

#[derive(Default)]
struct Contents {
    resources: BTreeMap<Name, Resource>,
    /// The tokens that the store granted itself. The tokens in between are of ranges.
    granted: BTreeSet<u64>,
    inboxes: BTreeMap<SessionId, (usize, mpsc::UnboundedSender<Down>)>,
}

type OpResult<T> = Result<T, Fault>;

enum Up {
    Ask(Name, Op, oneshot::Sender<OpResult<Answer>>),
    Renew(Vec<(Name, Renew)>, oneshot::Sender<Vec<OpResult<Answer>>>),
    Attach(SessionId, oneshot::Sender<OpResult<()>>),
    Ping(oneshot::Sender<OpResult<u64>>),
}

type Down = Box<dyn FnOnce(&OnceLock<Inbox>) + Send>;

impl StepStore {
    pub(crate) fn new(world: &Staged) -> Self {
        Self(Arc::new(Inner { world: world.clone(), contents: Mutex::default(), opened: AtomicUsize::new(0) }))
    }

    /// Returns the names that are still held or waited for, and the inboxes.
    pub(crate) fn residue(&self) -> Vec<String> {
        let contents = self.contents();
        let now_us = self.0.world.now_us() + AHEAD_US;
        // An expired grant stays until a step touches its name: expiry is passive.
        let is_held = |resource: &Resource| resource.grants.sole().is_some_and(|grant| grant.end_us() > now_us);
        let names = contents.resources.iter().filter(|(_, r)| is_held(r) || !r.queue.is_empty());
        let names = names.map(|(name, resource)| format!("{name}: {resource:?}"));
        names.chain(contents.inboxes.keys().map(|session| format!("inbox of {session:?}"))).collect()
    }

    /// Returns whether the store granted this token itself.
    pub(crate) fn has_granted(&self, token: Token) -> bool {
        self.contents().granted.contains(&token.get())
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.contents.lock().unwrap()
    }

    fn step(&self, name: &Name, op: &Op) -> Answer {
        let now_us = self.0.world.now_us() + AHEAD_US;
        let mut contents = self.contents();
        let Contents { resources, granted, inboxes } = &mut *contents;
        let env = Env { wall_us: now_us, lease_us: now_us, attached: &|session| inboxes.contains_key(&session) };
        let resource = resources.entry(name.clone()).or_default();
        let (answer, deliveries) = step(resource, &env, op);
        granted.extend(resource.grants.sole().iter().map(|grant| grant.token.get()));
        for delivery in deliveries {
            let Some((_, down)) = inboxes.get(&delivery.to) else { continue };
            let name = name.clone();
            let push: Down = Box::new(move |inbox| {
                if let Some(inbox) = inbox.get() {
                    inbox(Message::Delivery(name, delivery));
                }
            });
            drop(down.send(push));
        }
        answer
    }

    fn serve(&self, link: usize, up: Up, down: &mpsc::UnboundedSender<Down>) {
        let reply: Down = match up {
            Up::Ask(name, op, reply) => {
                let answer = Ok(self.step(&name, &op));
                Box::new(move |_| drop(reply.send(answer)))
            }
            Up::Renew(batch, reply) => {
                let renew = |(name, renew): (Name, Renew)| Ok(self.step(&name, &Op::Renew(renew)));
                let answers = batch.into_iter().map(renew).collect();
                Box::new(move |_| drop(reply.send(answers)))
            }
            Up::Attach(session, reply) => {
                self.contents().inboxes.insert(session, (link, down.clone()));
                Box::new(move |_| drop(reply.send(Ok(()))))
            }
            Up::Ping(reply) => {
                let now_us = self.0.world.now_us() + AHEAD_US;
                Box::new(move |_| drop(reply.send(Ok(now_us))))
            }
        };
        drop(down.send(reply));
    }

    fn open_link(&self) -> Path {
        let link = self.0.opened.fetch_add(1, Ordering::SeqCst);
        let (up, mut requests) = mpsc::unbounded_channel();
        let (down, mut replies) = mpsc::unbounded_channel::<Down>();
        let inbox = Arc::new(OnceLock::new());
        let (store, receiving) = (self.clone(), Arc::clone(&inbox));
        self.0.world.start(async move {
            while let Some(request) = requests.recv().await {
                store.serve(link, request, &down);
                yield_now().await;
            }
            store.contents().inboxes.retain(|_, (of, _)| *of != link);
        });
        self.0.world.start(async move {
            while let Some(arrives) = replies.recv().await {
                arrives(&receiving);
                yield_now().await;
            }
        });
        Path { up: Mutex::new(Some(up)), inbox, is_closed: AtomicBool::new(false) }
    }
}

impl Store for StepStore {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        let store = self.clone();
        Box::pin(async move { Ok(Arc::new(store.open_link()) as Arc<dyn Link>) })
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

struct Path {
    up: Mutex<Option<mpsc::UnboundedSender<Up>>>,
    inbox: Arc<OnceLock<Inbox>>,
    is_closed: AtomicBool,
}

impl Path {
    /// Sends the request when first polled, and waits for the reply.
    fn ask<T: Send + 'static>(&self, up: impl FnOnce(oneshot::Sender<T>) -> Up + Send + 'static) -> Pending<Option<T>> {
        let sender = self.up.lock().unwrap().clone();
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            sender?.send(up(reply)).ok()?;
            answer.await.ok()
        })
    }
}

fn gone() -> Fault {
    Fault::Gone(crate::seam::lost("a", LostReason::Closed).into())
}

impl Link for Path {
    fn apply(&self, name: &Name, op: &Op, _: Guess) -> Pending<OpResult<Answer>> {
        let (name, op) = (name.clone(), op.clone());
        let asked = self.ask(|reply| Up::Ask(name, op, reply));
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(gone())) })
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<OpResult<(Answer, Vec<NodeView>)>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)], _kind: Kind) -> Pending<Vec<OpResult<Answer>>> {
        let (batch, count) = (batch.to_vec(), batch.len());
        let asked = self.ask(|reply| Up::Renew(batch, reply));
        Box::pin(async move { asked.await.unwrap_or_else(|| (0..count).map(|_| Err(gone())).collect()) })
    }

    fn acquire_all(&self, _: &[(Name, Acquire)]) -> Pending<OpResult<Option<Vec<Answer>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn names(&self, _from: u64) -> Pending<OpResult<(Vec<Name>, u64)>> {
        Box::pin(std::future::ready(Err(gone())))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<OpResult<()>> {
        self.inbox.get_or_init(|| inbox);
        let asked = self.ask(move |reply| Up::Attach(session, reply));
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(gone())) })
    }

    fn detach(&self, _: SessionId) -> Pending<OpResult<()>> {
        refuse_detach()
    }

    fn check_read(&self) -> Progress {
        self.check_driven()
    }

    fn run_id(&self) -> &str {
        "first"
    }

    fn ping(&self) -> Pending<OpResult<u64>> {
        let asked = self.ask(Up::Ping);
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(gone())) })
    }

    fn idle(&self) -> Pending<()> {
        Box::pin(std::future::ready(()))
    }

    fn check_driven(&self) -> Progress {
        Progress::Moving
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let up = self.up.lock().unwrap().take();
        drop(up);
    }
}
