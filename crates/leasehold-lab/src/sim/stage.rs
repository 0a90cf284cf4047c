//! One simulated world: the executor, the network with its server, the registers, and the book. And the seam: the world
//! as a session sees it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::seam::{Address, Pending, RuntimeId, Socket, World};

use leasehold_spec::{Name, Resource};

use super::acts::Ledgers;
use super::book::Book;
use super::exec::{Exec, Part, Pid, WORLD, lock};
use super::follow::{Follow, Held, Waiter};
use super::net::Net;
use super::plan::Plan;
use super::quorum;
use super::registers::Registers;
use super::rng::Rng;

pub(super) struct Sim {
    pub(super) exec: Arc<Exec>,
    pub(super) net: Mutex<Net>,
    /// The nodes of a quorum, if the plan has one.
    pub(super) votes: Mutex<quorum::Net>,
    pub(super) registers: Mutex<Registers>,
    pub(super) book: Book,
    pub(super) follow: Follow,
    pub(super) ledgers: Ledgers,
    pub(super) plan: Plan,
}

impl Sim {
    pub(super) fn new(plan: Plan, book: Book) -> Arc<Self> {
        let mut rng = Rng::new(plan.seed);
        let exec = Arc::new(Exec::new(rng.fork(), plan.hiccup_in));
        let net = Mutex::new(Net::new(rng.fork(), &plan));
        let registers = Mutex::new(Registers::new(rng.fork(), &plan));
        let votes = Mutex::new(quorum::Net::new(rng.fork(), &plan));
        Arc::new(Self {
            exec,
            net,
            votes,
            registers,
            book,
            follow: Follow::default(),
            ledgers: Ledgers::default(),
            plan,
        })
    }

    /// Records an event: in the hash, and in the trace.
    pub(super) fn note(&self, number: u64, words: impl FnOnce() -> String) {
        self.exec.mix(number);
        self.book.trace(self.exec.now_us(), words);
    }

    /// Returns whether no client holds this name at the server, and none waits. Of a quorum this cannot be known.
    pub(super) fn is_free(&self, name: &str) -> bool {
        let (net, now_us) = (lock(&self.net), self.exec.now_us());
        let node = &net.nodes[net.primary];
        let record = node.records.iter().find(|(known, _)| known.as_str() == name);
        let is_free = |(_, record): (&Name, &Resource)| {
            let clock_us = node.clock.at_us(now_us);
            record.is_idle() && record.grants.iter().all(|grant| grant.end_us() <= clock_us)
        };
        self.plan.quorum.is_none() && record.is_none_or(is_free)
    }

    /// Returns the waiters of a name that can be notified.
    pub(super) fn waiters(&self, name: &str) -> Vec<Waiter> {
        let waiters = match self.plan.quorum {
            Some(_) => lock(&self.votes).waiters(name),
            None => lock(&self.net).waiters(name),
        };
        waiters.into_iter().map(|waiter| Waiter::new(self, waiter)).collect()
    }

    /// Returns those of them that know the end of this grant. The waiters of a quorum ask again whenever it changes
    /// hands.
    pub(super) fn waiters_that_know(&self, held: &Held) -> Vec<Waiter> {
        if self.plan.quorum.is_some() {
            return self.waiters(&held.name);
        }
        let waiters = lock(&self.net).waiters_that_know(held);
        waiters.into_iter().map(|waiter| Waiter::new(self, waiter)).collect()
    }

    /// Returns the leases that a process holds at the store.
    pub(super) fn held_by(&self, pid: Pid) -> Vec<Held> {
        let now_us = self.exec.now_us();
        match self.plan.quorum {
            Some(_) => lock(&self.votes).held_by(pid, now_us),
            None => lock(&self.net).held_by(pid, now_us),
        }
    }

    /// Sleeps in true time.
    pub(super) fn sleep_true(&self, us: u64) -> Pending<()> {
        self.exec.sleep(WORLD, Duration::from_micros(us))
    }
}

/// The view that a process has of the world.
pub(super) struct Host {
    sim: Arc<Sim>,
    pid: Pid,
    rng: Mutex<Rng>,
}

impl Host {
    pub(super) fn new(sim: &Arc<Sim>, pid: Pid, rng: Rng) -> Arc<Self> {
        Arc::new(Self { sim: Arc::clone(sim), pid, rng: Mutex::new(rng) })
    }
}

impl World for Host {
    fn now_us(&self) -> u64 {
        self.sim.exec.local_us(self.pid)
    }

    fn wall_us(&self) -> u64 {
        self.sim.exec.local_us(self.pid)
    }

    fn random(&self, bytes: &mut [u8]) {
        let mut rng = lock(&self.rng);
        for chunk in bytes.chunks_mut(8) {
            let number = rng.next().to_le_bytes();
            chunk.copy_from_slice(&number[..chunk.len()]);
        }
    }

    fn host(&self) -> String {
        "host".into()
    }

    fn process(&self) -> u32 {
        self.pid as u32
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        if self.sim.exec.part_of(self.pid) == Some(Part::Thread) {
            self.sim.book.wrong(self.sim.exec.now_us(), "the product sleeps where there is no runtime");
        }
        self.sim.exec.sleep(self.pid, duration)
    }

    fn connect(&self, _: &Address) -> Pending<io::Result<Box<dyn Socket>>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }

    fn runtime(&self) -> Option<RuntimeId> {
        match self.sim.exec.part_of(self.pid)? {
            Part::Session => Some(RuntimeId::Simulated(0)),
            Part::Runtime(number) | Part::Inside(number) => Some(RuntimeId::Simulated(1 + number as u64)),
            Part::Thread => None,
        }
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        self.sim.exec.spawn_beside(self.pid, "a request of the session", task)
    }

    fn spawn_session(&self, session: Pending<()>) -> io::Result<()> {
        self.sim.exec.spawn(self.pid, Part::Session, "the session", session);
        Ok(())
    }
}
