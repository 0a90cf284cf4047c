//! The embedded store: the specification itself, behind a lock.
//!
//! Each `memory:` client has a store of its own. All clients of this process with the URL `memory:NAME` share one store.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use leasehold_spec::{Acquire, Answer, Delivery, Env, Kind, Name, Op, Renew, Resource, SessionId, acquire_all, step};

use super::{Fault, Inbox, Link, Message, Progress, Store, StoreProfile, inspect_whole, refuse_detach};
use crate::error::{Error, ErrorKind};
use crate::inspection::NodeView;
use crate::store::Guess;
use crate::world::{Pending, World};

pub(crate) struct Memory {
    hub: Arc<Hub>,
}

struct Hub {
    world: Arc<dyn World>,
    shelves: Mutex<Shelves>,
}

#[derive(Default)]
struct Shelves {
    resources: HashMap<Name, Resource>,
    inboxes: HashMap<SessionId, Inbox>,
    steps: u32,
}

/// The steps between two sweeps of records that may be forgotten.
const SWEEP: u32 = 4096;

impl Memory {
    pub(crate) fn private(world: &Arc<dyn World>) -> Self {
        Self { hub: Hub::new(world) }
    }

    /// Returns the store with this name in this process. It exists as long as a client uses it.
    pub(crate) fn shared(name: &str, world: &Arc<dyn World>) -> Self {
        static HUBS: OnceLock<Mutex<HashMap<String, Weak<Hub>>>> = OnceLock::new();
        let hubs = HUBS.get_or_init(Mutex::default);
        let mut hubs = hubs.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.retain(|_, hub| hub.strong_count() > 0);
        let hub = hubs.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let hub = Hub::new(world);
            hubs.insert(name.to_owned(), Arc::downgrade(&hub));
            hub
        });
        Self { hub }
    }
}

impl Store for Memory {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        let link = Path { hub: Arc::clone(&self.hub), attached: OnceLock::new(), closed: AtomicBool::new(false) };
        Box::pin(std::future::ready(Ok(Arc::new(link) as Arc<dyn Link>)))
    }

    fn profile(&self) -> StoreProfile {
        StoreProfile { names_successors: true, takes_together: true, kinds: &Kind::ALL, ..StoreProfile::default() }
    }

    fn silence(&self) -> Option<Error> {
        None
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }
}

impl Hub {
    fn new(world: &Arc<dyn World>) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), shelves: Mutex::default() })
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, name: &Name, op: &Op) -> Answer {
        let (wall_us, lease_us) = (self.world.wall_us(), self.world.now_us());
        let mut shelves = self.shelves();
        let Shelves { resources, inboxes, steps } = &mut *shelves;
        *steps = steps.wrapping_add(1);
        if steps.is_multiple_of(SWEEP) {
            resources.retain(|_, resource| !resource.is_forgotten(wall_us, lease_us));
        }
        let env = Env { wall_us, lease_us, attached: &|session| inboxes.contains_key(&session) };
        let (answer, deliveries) = match resources.get_mut(name) {
            Some(resource) => step(resource, &env, op),
            None => {
                let mut resource = Resource::default();
                let stepped = step(&mut resource, &env, op);
                if resource != Resource::default() {
                    resources.insert(name.clone(), resource);
                }
                stepped
            }
        };
        let messages: Vec<(Inbox, Delivery)> =
            deliveries.into_iter().filter_map(|d| Some((Arc::clone(inboxes.get(&d.to)?), d))).collect();
        // An inbox locks its session, which may call this store: never call an inbox under our lock.
        drop(shelves);
        for (inbox, delivery) in messages {
            inbox(Message::Delivery(name.clone(), delivery));
        }
        answer
    }
}

impl Hub {
    /// Acquires all of these mutexes, or none (P46). This ends no lease, so there is no message.
    fn acquire_all(&self, members: &[(Name, Acquire)]) -> Option<Vec<Answer>> {
        let (wall_us, lease_us) = (self.world.wall_us(), self.world.now_us());
        let mut shelves = self.shelves();
        let Shelves { resources, inboxes, .. } = &mut *shelves;
        let env = Env { wall_us, lease_us, attached: &|session| inboxes.contains_key(&session) };
        let known = |(name, _): &(Name, Acquire)| resources.get(name).cloned().unwrap_or_default();
        let mut records: Vec<Resource> = members.iter().map(known).collect();
        let mut asked: Vec<_> = records.iter_mut().zip(members.iter().map(|(_, acquire)| acquire)).collect();
        let answers = acquire_all(&mut asked, &env)?;
        resources.extend(members.iter().map(|(name, _)| name.clone()).zip(records));
        Some(answers)
    }
}

struct Path {
    hub: Arc<Hub>,
    attached: OnceLock<(SessionId, Inbox)>,
    closed: AtomicBool,
}

impl Path {
    fn gone(&self) -> Option<Fault> {
        self.is_closed().then(|| Fault::Gone(Error::new(ErrorKind::Unreachable, "the connection was closed")))
    }
}

impl Link for Path {
    fn apply(&self, name: &Name, op: &Op, _guess: Guess) -> Pending<Result<Answer, Fault>> {
        if let Some(gone) = self.gone() {
            return Box::pin(std::future::ready(Err(gone)));
        }
        // The first poll carries the request out, as with every other store: a future that is never polled does nothing.
        let (hub, name, op) = (Arc::clone(&self.hub), name.clone(), op.clone());
        Box::pin(async move { Ok(hub.apply(&name, &op)) })
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        inspect_whole(self, name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)], _kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
        let (hub, batch) = (Arc::clone(&self.hub), batch.to_vec());
        Box::pin(async move {
            let renew = |(name, renew): (Name, Renew)| Ok(hub.apply(&name, &Op::Renew(renew)));
            batch.into_iter().map(renew).collect()
        })
    }

    fn acquire_all(&self, members: &[(Name, Acquire)]) -> Pending<Result<Option<Vec<Answer>>, Fault>> {
        if let Some(gone) = self.gone() {
            return Box::pin(std::future::ready(Err(gone)));
        }
        let (hub, members) = (Arc::clone(&self.hub), members.to_vec());
        Box::pin(async move { Ok(hub.acquire_all(&members)) })
    }

    fn names(&self, _from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        let (wall_us, lease_us) = (self.hub.world.wall_us(), self.hub.world.now_us());
        let shelves = self.hub.shelves();
        let live = shelves.resources.iter().filter(|(_, resource)| !resource.is_forgotten(wall_us, lease_us));
        let names = live.map(|(name, _)| name.clone()).collect();
        Box::pin(std::future::ready(Ok((names, 0))))
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        self.hub.shelves().inboxes.insert(session, Arc::clone(&inbox));
        self.attached.get_or_init(|| (session, inbox));
        Box::pin(std::future::ready(Ok(())))
    }

    fn detach(&self, _: SessionId) -> Pending<Result<(), Fault>> {
        refuse_detach()
    }

    fn check_read(&self) -> Progress {
        self.check_driven()
    }

    fn run_id(&self) -> &str {
        "memory"
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let now_us = self.hub.world.now_us();
        Box::pin(std::future::ready(match self.gone() {
            Some(gone) => Err(gone),
            None => Ok(now_us),
        }))
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
        self.closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let Some((session, inbox)) = self.attached.get() else { return };
        let mut shelves = self.hub.shelves();
        // The session may have attached a newer inbox by another link. That inbox stays.
        if shelves.inboxes.get(session).is_some_and(|known| Arc::ptr_eq(known, inbox)) {
            shelves.inboxes.remove(session);
        }
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        self.close();
    }
}
