//! A store that is `step`, behind links that take their own time.
//!
//! A link is a connection: requests arrive in the order in which they were sent, answers and messages come back in that in
//! which they were made, and nothing is in order between two links. Each way is a task, which the scheduler stops where it
//! likes.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use crate::seam::{Fault, Inbox, Link, Message, Pending, Progress, Store, StoreProfile, World, inspect_whole};
use crate::{Error, LostReason, NodeView};
use leasehold_spec::{Answer, Contention, Env, Name, Op, Renew, Resource, SessionId, Token, step};
use shuttle::future::yield_now;
use tokio::sync::{mpsc, oneshot};

use super::world::Staged;

/// The server's clock shows this much more than ours.
const AHEAD_US: u64 = 1_000_000_000_000;

#[derive(Clone)]
pub(crate) struct Shop(Arc<Inner>);

struct Inner {
    world: Staged,
    /// Locked for a step, without any operation of the scheduler in it: never contended.
    shelf: Mutex<Shelf>,
    opened: AtomicUsize,
}

#[derive(Default)]
struct Shelf {
    resources: BTreeMap<Name, Resource>,
    /// The tokens that it granted itself. Those in between are of ranges.
    granted: BTreeSet<u64>,
    inboxes: BTreeMap<SessionId, (usize, mpsc::UnboundedSender<Down>)>,
}

type Heard<T> = Result<T, Fault>;

enum Up {
    Ask(Name, Op, oneshot::Sender<Heard<Answer>>),
    Renew(Vec<(Name, Renew)>, oneshot::Sender<Vec<Heard<Answer>>>),
    Attach(SessionId, oneshot::Sender<Heard<()>>),
    Ping(oneshot::Sender<Heard<u64>>),
}

type Down = Box<dyn FnOnce(&OnceLock<Inbox>) + Send>;

impl Shop {
    pub(crate) fn new(world: &Staged) -> Self {
        Self(Arc::new(Inner { world: world.clone(), shelf: Mutex::default(), opened: AtomicUsize::new(0) }))
    }

    /// Returns the names that are still held or waited for, and the inboxes.
    pub(crate) fn residue(&self) -> Vec<String> {
        let shelf = self.shelf();
        let now_us = self.0.world.now_us() + AHEAD_US;
        // An expired grant stays until a step touches its name: expiry is passive.
        let is_held = |resource: &Resource| resource.grants.sole().is_some_and(|grant| grant.end_us() > now_us);
        let names = shelf.resources.iter().filter(|(_, r)| is_held(r) || !r.queue.is_empty());
        let names = names.map(|(name, resource)| format!("{name}: {resource:?}"));
        names.chain(shelf.inboxes.keys().map(|session| format!("inbox of {session:?}"))).collect()
    }

    /// Whether the store granted this token itself.
    pub(crate) fn has_granted(&self, token: Token) -> bool {
        self.shelf().granted.contains(&token.get())
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap()
    }

    fn step(&self, name: &Name, op: &Op) -> Answer {
        let now_us = self.0.world.now_us() + AHEAD_US;
        let mut shelf = self.shelf();
        let Shelf { resources, granted, inboxes } = &mut *shelf;
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
                self.shelf().inboxes.insert(session, (link, down.clone()));
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
        let (shop, hears) = (self.clone(), Arc::clone(&inbox));
        self.0.world.start(async move {
            while let Some(request) = requests.recv().await {
                shop.serve(link, request, &down);
                yield_now().await;
            }
            shop.shelf().inboxes.retain(|_, (of, _)| *of != link);
        });
        self.0.world.start(async move {
            while let Some(arrives) = replies.recv().await {
                arrives(&hears);
                yield_now().await;
            }
        });
        Path { up: Mutex::new(Some(up)), inbox, is_closed: AtomicBool::new(false) }
    }
}

impl Store for Shop {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        let shop = self.clone();
        Box::pin(async move { Ok(Arc::new(shop.open_link()) as Arc<dyn Link>) })
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
    /// Sends it when first polled, and waits for the answer.
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
    fn apply(&self, name: &Name, op: &Op, _: Contention) -> Pending<Heard<Answer>> {
        let (name, op) = (name.clone(), op.clone());
        let asked = self.ask(|reply| Up::Ask(name, op, reply));
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(gone())) })
    }

    fn inspect(&self, name: &Name, guess: Contention) -> Pending<Heard<(Answer, Vec<NodeView>)>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)]) -> Pending<Vec<Heard<Answer>>> {
        let (batch, count) = (batch.to_vec(), batch.len());
        let asked = self.ask(|reply| Up::Renew(batch, reply));
        Box::pin(async move { asked.await.unwrap_or_else(|| (0..count).map(|_| Err(gone())).collect()) })
    }

    fn names(&self, _from: u64) -> Pending<Heard<(Vec<Name>, u64)>> {
        Box::pin(std::future::ready(Err(gone())))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Heard<()>> {
        self.inbox.get_or_init(|| inbox);
        let asked = self.ask(move |reply| Up::Attach(session, reply));
        Box::pin(async move { asked.await.unwrap_or_else(|| Err(gone())) })
    }

    fn run_id(&self) -> &str {
        "first"
    }

    fn ping(&self) -> Pending<Heard<u64>> {
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
