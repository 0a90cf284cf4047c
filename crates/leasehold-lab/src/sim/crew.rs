//! The clients: which there are, how they start, and how they end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::Leasehold;
use leasehold::seam::{QuorumStore, Store, World};
use tokio::sync::{Notify, oneshot};

use super::acts;
use super::call::Call;
use super::exec::{Part, Pid, lock};
use super::link::SimStore;
use super::net::drift;
use super::plan::MS;
use super::quorum::SimNode;
use super::rng::Rng;
use super::stage::{Host, Sim};
use super::words::client;
use super::worker::Worker;

/// How long some clients that have finished their work wait before they close.
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
    calls: Calls,
}

/// The signals that a program gets from outside.
#[derive(Clone, Default)]
pub(super) struct Calls {
    /// All waiters drop their futures.
    pub(super) storm: Arc<Notify>,
    /// The client's operator revokes.
    pub(super) revoke: Arc<Notify>,
}

/// The fate of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Alive,
    Crashed,
    /// It has closed, before or after everything healed. Contains the names whose release was not confirmed.
    Closed {
        unconfirmed: Vec<String>,
        at_us: u64,
        /// Whether it had waited until all its nodes were connected and had got their pending requests.
        has_settled: bool,
    },
}

impl Crew {
    pub(super) fn new(sim: &Arc<Sim>, rng: Rng) -> Arc<Self> {
        Arc::new(Self { sim: Arc::clone(sim), members: Mutex::new(Members { rng, known: BTreeMap::new() }) })
    }

    /// Starts one more client.
    pub(super) fn start(self: &Arc<Self>) {
        let sim = &self.sim;
        let mut members = lock(&self.members);
        let mut rng = members.rng.fork();
        let pid = sim.exec.start(rng.between(1, 1 << 40), drift(&mut rng, sim.plan.drift_ppm));
        let calls = Calls::default();
        members.known.insert(pid, Member { fate: Fate::Alive, is_served: false, calls: calls.clone() });
        drop(members);
        sim.note(pid as u64, || format!("{} starts", client(pid)));
        let life = live(Arc::clone(self), pid, calls, rng);
        sim.exec.spawn(pid, Part::Thread, "the program", Box::pin(life));
    }

    /// Starts a new client in place of one that has ended, while faults still occur.
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
        self.set_fate(pid, Fate::Crashed);
    }

    pub(super) fn storm(&self, pid: Pid) {
        let calls = lock(&self.members).known.get(&pid).map(|member| member.calls.clone());
        calls.into_iter().for_each(|calls| calls.storm.notify_waiters());
    }

    /// Makes the operator of this client revoke the leases that it finds held.
    pub(super) fn revoke(&self, pid: Pid) {
        let calls = lock(&self.members).known.get(&pid).map(|member| member.calls.clone());
        calls.into_iter().for_each(|calls| calls.revoke.notify_waiters());
    }

    pub(super) fn fates(&self) -> BTreeMap<Pid, Fate> {
        lock(&self.members).known.iter().map(|(pid, member)| (*pid, member.fate.clone())).collect()
    }

    /// Returns whether every client has ended.
    pub(super) fn is_done(&self) -> bool {
        lock(&self.members).known.values().all(|member| member.fate != Fate::Alive)
    }

    /// Returns whether no client has work left.
    pub(super) fn is_served(&self) -> bool {
        lock(&self.members).known.values().all(|member| member.fate != Fate::Alive || member.is_served)
    }

    fn set_fate(&self, pid: Pid, fate: Fate) {
        if let Some(member) = lock(&self.members).known.get_mut(&pid) {
            member.fate = fate;
        }
    }
}

/// Returns the store, as a process reaches it.
fn store(sim: &Arc<Sim>, pid: Pid, world: &Arc<dyn World>) -> Arc<dyn Store> {
    match &sim.plan.quorum {
        Some(settings) => Arc::new(QuorumStore::new(SimNode::all(sim, pid), settings.max_lease_ms, Arc::clone(world))),
        None => Arc::new(SimStore { sim: Arc::clone(sim), pid }),
    }
}

/// Returns a part on which a task of a program may run: one of its runtimes, or a thread that has none. If the program
/// has fewer runtimes than it should have, another one is started.
fn some_part(sim: &Sim, pid: Pid, rng: &mut Rng) -> Part {
    let runtimes = sim.exec.runtimes(pid);
    if rng.percent(sim.plan.threads) {
        return Part::Thread;
    }
    Part::Runtime(match runtimes.len() < sim.plan.runtimes as usize {
        true => sim.exec.start_runtime(pid),
        false => *rng.pick(&runtimes),
    })
}

/// The life of a client: connect, work, close. It runs on a thread of the program. All calls into the library run on
/// runtimes, and any of these may end.
async fn live(crew: Arc<Crew>, pid: Pid, calls: Calls, mut rng: Rng) {
    let sim = Arc::clone(&crew.sim);
    let host = Host::new(&sim, pid, rng.fork());
    let leasehold = connect(&sim, &host, pid, &mut rng).await;
    let leaves_us = if rng.percent(10) { rng.between(1, sim.plan.chaos_us) } else { sim.plan.chaos_us };
    let operator = operate(Arc::clone(&sim), pid, leasehold.clone(), Arc::clone(&calls.revoke), rng.fork());
    let mut posts = Vec::new();
    for number in 0..sim.plan.workers {
        let (alive, ended) = oneshot::channel::<()>();
        let part = some_part(&sim, pid, &mut rng);
        let worker = Worker {
            sim: Arc::clone(&sim),
            pid,
            part,
            caller: format!("{}.{number}", client(pid)),
            leasehold: leasehold.clone(),
            storm: Arc::clone(&calls.storm),
            rng: rng.fork(),
            until_us: leaves_us,
            is_renewed: true,
            is_kept: false,
            lease_us: 0,
        };
        let post = async move {
            keep_working(worker).await;
            drop(alive);
        };
        sim.exec.spawn(pid, Part::Thread, "a post", Box::pin(post));
        posts.push(ended);
    }
    let working = async {
        for ended in posts {
            let _ended = ended.await;
        }
    };
    tokio::select! {
        biased;
        () = working => {}
        () = operator => {}
    }
    if let Some(member) = lock(&crew.members).known.get_mut(&pid) {
        member.is_served = true;
    }
    let has_settled = sim.plan.quorum.is_some() && rng.percent(60);
    if has_settled {
        // Until its nodes are connected again: then it owes nothing to any of them.
        sim.exec.sleep(pid, CONNECTED).await;
    }
    let unconfirmed = close(&sim, leasehold, pid, &mut rng).await;
    sim.note(pid as u64, || format!("{} is closed; not confirmed: {unconfirmed:?}", client(pid)));
    crew.set_fate(pid, Fate::Closed { unconfirmed, at_us: sim.exec.now_us(), has_settled });
    crew.replace();
}

/// Connects, and retries until that succeeds.
async fn connect(sim: &Arc<Sim>, host: &Arc<Host>, pid: Pid, rng: &mut Rng) -> Leasehold {
    let is_remote = rng.percent(sim.plan.remote);
    loop {
        let world: Arc<dyn World> = Arc::clone(host) as Arc<dyn World>;
        let store = store(sim, pid, &world);
        let builder = Leasehold::builder("").holder(client(pid));
        let builder = if is_remote { builder.remote_hand_over() } else { builder };
        let (there, part) = (Arc::clone(sim), some_part(sim, pid, rng));
        let connecting = async move {
            let call = Call::begins(&there, "connect", &client(pid), (pid, part));
            let connected = builder.connect_to(store, world).await;
            call.returned_within(&there, 5_000 * MS);
            connected
        };
        match sim.exec.on(pid, part, "connecting", connecting).await {
            Some(Ok(leasehold)) => return leasehold,
            Some(Err(error)) => sim.note(0, || format!("{} cannot connect: {error}", client(pid))),
            None => sim.note(0, || format!("{} cannot connect: its runtime has ended", client(pid))),
        }
        sim.exec.sleep(pid, Duration::from_millis(rng.between(20, 1000))).await;
    }
}

/// Runs an operator: it revokes the leases that are held whenever it is signaled.
async fn operate(sim: Arc<Sim>, pid: Pid, leasehold: Leasehold, called: Arc<Notify>, mut rng: Rng) {
    loop {
        called.notified().await;
        for name in sim.plan.names.clone() {
            let grace = Duration::from_micros(*rng.pick(&[0, 100 * MS, 1_000 * MS, 5_000 * MS]));
            let revoking = (acts::of(&name).revoke)(&leasehold, &name, grace);
            let part = some_part(&sim, pid, &mut rng);
            if sim.exec.on(pid, part, "an operator", revoking).await == Some(true) {
                sim.book.count("an operator revokes");
            }
        }
    }
}

/// Runs a worker. If its runtime ends, starts another one on another runtime.
async fn keep_working(mut worker: Worker) {
    loop {
        let (sim, pid, part) = (Arc::clone(&worker.sim), worker.pid, worker.part);
        let mut next = Worker { rng: worker.rng.fork(), ..worker.clone() };
        if sim.exec.on(pid, part, "a worker", acts::work(worker)).await.is_some() {
            return;
        }
        sim.book.count("a worker on another runtime");
        sim.exec.sleep(pid, Duration::from_micros(next.rng.scaled(MS, 2_000 * MS))).await;
        next.part = some_part(&sim, pid, &mut next.rng);
        worker = next;
    }
}

/// Closes a client. Returns the names whose release was not confirmed.
async fn close(sim: &Arc<Sim>, leasehold: Leasehold, pid: Pid, rng: &mut Rng) -> Vec<String> {
    loop {
        let (there, leasehold, part) = (Arc::clone(sim), leasehold.clone(), some_part(sim, pid, rng));
        let closing = async move {
            let call = Call::begins(&there, "close", &client(pid), (pid, part));
            let closed = leasehold.close().await;
            call.returned_within(&there, 5_000 * MS);
            closed.unconfirmed().to_vec()
        };
        // If that runtime ends meanwhile, another task calls `close` again.
        if let Some(unconfirmed) = sim.exec.on(pid, part, "closing", closing).await {
            return unconfirmed;
        }
    }
}
