//! The clients: who there is, how they come, and how they go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::seam::{QuorumStore, Store, World};
use tokio::sync::{Notify, oneshot};

use super::exec::{Part, Pid, lock};
use super::link::Shop;
use super::net::drift;
use super::quorum::Seat;
use super::rng::Rng;
use super::stage::{Host, Sim};
use super::words::client;
use super::worker::Worker;

/// How long some who have done their work wait before they close.
const CONNECTED: Duration = Duration::from_secs(21);

pub(super) struct Crew {
    sim: Arc<Sim>,
    members: Mutex<Members>,
}

struct Members {
    rng: Rng,
    known: BTreeMap<Pid, Member>,
}

struct Member {
    fate: Fate,
    /// Its work is done.
    is_served: bool,
    storm: Arc<Notify>,
}

/// What became of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Alive,
    Crashed,
    /// Closed, when things had healed or before; with the names that were not surely given back.
    Closed {
        unconfirmed: Vec<String>,
        at_us: u64,
        /// Whether it had waited until all its nodes were connected, and told what they were owed.
        has_rested: bool,
    },
}

impl Crew {
    pub(super) fn new(sim: &Arc<Sim>, rng: Rng) -> Arc<Self> {
        Arc::new(Self { sim: Arc::clone(sim), members: Mutex::new(Members { rng, known: BTreeMap::new() }) })
    }

    /// One more client.
    pub(super) fn start(self: &Arc<Self>) {
        let sim = &self.sim;
        let mut members = lock(&self.members);
        let mut rng = members.rng.fork();
        let pid = sim.exec.start(rng.between(1, 1 << 40), drift(&mut rng, sim.plan.drift_ppm));
        let storm = Arc::new(Notify::new());
        members.known.insert(pid, Member { fate: Fate::Alive, is_served: false, storm: Arc::clone(&storm) });
        drop(members);
        sim.note(pid as u64, || format!("{} starts", client(pid)));
        let life = live(Arc::clone(self), pid, storm, rng);
        sim.exec.spawn(pid, Part::Runtime, "the program", Box::pin(life));
    }

    /// A new client in place of one that has gone, while things go on.
    pub(super) fn replace(self: &Arc<Self>) {
        if self.sim.exec.now_us() < self.sim.plan.chaos_us {
            self.start();
        }
    }

    pub(super) fn anybody(&self, rng: &mut Rng) -> Option<Pid> {
        let members = lock(&self.members);
        let alive: Vec<Pid> =
            members.known.iter().filter(|(_, member)| member.fate == Fate::Alive).map(|(pid, _)| *pid).collect();
        if alive.is_empty() { None } else { Some(*rng.pick(&alive)) }
    }

    pub(super) fn everybody(&self) -> Vec<Pid> {
        let members = lock(&self.members);
        members.known.iter().filter(|(_, member)| member.fate == Fate::Alive).map(|(pid, _)| *pid).collect()
    }

    pub(super) fn dies(&self, pid: Pid) {
        self.fare(pid, Fate::Crashed);
    }

    pub(super) fn storm(&self, pid: Pid) {
        let storm = lock(&self.members).known.get(&pid).map(|member| Arc::clone(&member.storm));
        storm.into_iter().for_each(|storm| storm.notify_waiters());
    }

    pub(super) fn fates(&self) -> BTreeMap<Pid, Fate> {
        lock(&self.members).known.iter().map(|(pid, member)| (*pid, member.fate.clone())).collect()
    }

    /// Whether everybody has gone.
    pub(super) fn is_done(&self) -> bool {
        lock(&self.members).known.values().all(|member| member.fate != Fate::Alive)
    }

    /// Whether nobody has work to do.
    pub(super) fn is_served(&self) -> bool {
        lock(&self.members).known.values().all(|member| member.fate != Fate::Alive || member.is_served)
    }

    fn fare(&self, pid: Pid, fate: Fate) {
        if let Some(member) = lock(&self.members).known.get_mut(&pid) {
            member.fate = fate;
        }
    }
}

/// The store, as a process reaches it.
fn shop(sim: &Arc<Sim>, pid: Pid, world: &Arc<dyn World>) -> Arc<dyn Store> {
    match &sim.plan.quorum {
        Some(settings) => Arc::new(QuorumStore::new(Seat::all(sim, pid), settings.max_lease_ms, Arc::clone(world))),
        None => Arc::new(Shop { sim: Arc::clone(sim), pid }),
    }
}

/// A client's life: connect, work, close.
async fn live(crew: Arc<Crew>, pid: Pid, storm: Arc<Notify>, mut rng: Rng) {
    let sim = Arc::clone(&crew.sim);
    let host = Host::new(&sim, pid, rng.fork());
    let is_remote = rng.percent(sim.plan.remote);
    let leasehold = loop {
        let world: Arc<dyn World> = Arc::clone(&host) as Arc<dyn World>;
        let shop = shop(&sim, pid, &world);
        let builder = Leasehold::builder("").holder(client(pid));
        let builder = if is_remote { builder.remote_hand_over() } else { builder };
        match builder.connect_to(shop, world).await {
            Ok(leasehold) => break leasehold,
            Err(error) => sim.note(0, || format!("{} cannot connect: {error}", client(pid))),
        }
        host.sleep(Duration::from_millis(rng.between(20, 1000))).await;
    };
    let leaves_us = if rng.percent(10) { rng.between(1, sim.plan.chaos_us) } else { sim.plan.chaos_us };
    let mut workers = Vec::new();
    for number in 0..sim.plan.workers {
        let (alive, ended) = oneshot::channel::<()>();
        let worker = Worker {
            sim: Arc::clone(&sim),
            host: Arc::clone(&host),
            pid,
            who: format!("{}.{number}", client(pid)),
            leasehold: leasehold.clone(),
            storm: Arc::clone(&storm),
            rng: rng.fork(),
            until_us: leaves_us,
            is_renewed: true,
            is_kept: false,
        };
        let work = async move {
            worker.work().await;
            drop(alive);
        };
        sim.exec.spawn(pid, Part::Runtime, "a worker", Box::pin(work));
        workers.push(ended);
    }
    for ended in workers {
        let _ended = ended.await;
    }
    if let Some(member) = lock(&crew.members).known.get_mut(&pid) {
        member.is_served = true;
    }
    let has_rested = sim.plan.quorum.is_some() && rng.percent(60);
    if has_rested {
        // Until its nodes are connected again: it owes nothing to any of them then.
        host.sleep(CONNECTED).await;
    }
    let closed = leasehold.close().await;
    let unconfirmed = closed.unconfirmed().to_vec();
    sim.note(pid as u64, || format!("{} is closed; not confirmed: {unconfirmed:?}", client(pid)));
    crew.fare(pid, Fate::Closed { unconfirmed, at_us: sim.exec.now_us(), has_rested });
    crew.replace();
}
