//! One simulated world: the executor, the network with its server, the registers, and the book. And the seam: what a
//! session sees of it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::seam::{Address, Pending, Socket, World};

use super::book::Book;
use super::exec::{Exec, NOBODY, Part, Pid, lock};
use super::net::Net;
use super::plan::Plan;
use super::quorum;
use super::registers::Registers;
use super::rng::Rng;

pub(super) struct Sim {
    pub(super) exec: Arc<Exec>,
    pub(super) net: Mutex<Net>,
    /// The nodes of a quorum, if that is what is played.
    pub(super) votes: Mutex<quorum::Net>,
    pub(super) registers: Mutex<Registers>,
    pub(super) book: Book,
    pub(super) plan: Plan,
}

impl Sim {
    pub(super) fn new(plan: Plan, book: Book) -> Arc<Self> {
        let mut rng = Rng::new(plan.seed);
        let exec = Arc::new(Exec::new(rng.fork(), plan.hiccup_in));
        let net = Mutex::new(Net::new(rng.fork(), &plan));
        let registers = Mutex::new(Registers::new(rng.fork(), &plan));
        let votes = Mutex::new(quorum::Net::new(rng.fork(), &plan));
        Arc::new(Self { exec, net, votes, registers, book, plan })
    }

    /// Something happened: into the hash, and into the trace.
    pub(super) fn note(&self, number: u64, words: impl FnOnce() -> String) {
        self.exec.mix(number);
        self.book.say(self.exec.now_us(), words);
    }

    /// A sleep in true time.
    pub(super) fn rest(&self, us: u64) -> Pending<()> {
        self.exec.sleep(NOBODY, Duration::from_micros(us))
    }
}

/// What a process sees of the world.
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
        self.sim.exec.sleep(self.pid, duration)
    }

    fn connect(&self, _: &Address) -> Pending<io::Result<Box<dyn Socket>>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        self.sim.exec.spawn_beside(self.pid, "a request of the session", task);
        Ok(())
    }

    fn spawn_session(&self, session: Pending<()>) -> io::Result<()> {
        self.sim.exec.spawn(self.pid, Part::Session, "the session", session);
        Ok(())
    }
}
