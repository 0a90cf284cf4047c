//! The world of a simulated client: turmoil's network, tokio's paused clock, and the randomness of the seed.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::seam::{Address, Pending, Socket, World};
use leasehold_testkit::Random;
use tokio::runtime::Handle;

/// The time of a whole simulation. It advances once a tick, between the turns of the hosts: everything within a tick
/// has the same time.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock(Arc<AtomicU64>);

impl Clock {
    /// Returns the time since the simulation began.
    pub(super) fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, now_us: u64) {
        self.0.store(now_us, Ordering::Relaxed);
    }
}

/// When the machines were started, by their own clocks: no two agree, and they must not be compared.
const BOOTED_US: u64 = 3_600_000_000;
/// The server's wall clock when the simulation begins.
const WALL_US: u64 = 1_795_000_000_000_000;

/// Returns the server's wall clock.
pub(super) fn wall_us(clock: &Clock) -> u64 {
    WALL_US + clock.now_us()
}

/// One machine's world.
pub(super) struct Simulated {
    clock: Clock,
    booted_us: u64,
    host: String,
    random: Mutex<Random>,
}

impl Simulated {
    pub(super) fn new(clock: &Clock, host: &str, mut random: Random) -> Self {
        let booted_us = BOOTED_US + random.below(BOOTED_US);
        Self { clock: clock.clone(), booted_us, host: host.to_owned(), random: Mutex::new(random) }
    }
}

impl World for Simulated {
    fn now_us(&self) -> u64 {
        self.booted_us + self.clock.now_us()
    }

    fn wall_us(&self) -> u64 {
        wall_us(&self.clock)
    }

    fn random(&self, bytes: &mut [u8]) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&random.number().to_le_bytes()[..chunk.len()]);
        }
    }

    fn host(&self) -> String {
        self.host.clone()
    }

    fn process(&self) -> u32 {
        1
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn connect(&self, to: &Address) -> Pending<io::Result<Box<dyn Socket>>> {
        let to = (to.host.clone(), to.port);
        Box::pin(async move {
            let stream = turmoil::net::TcpStream::connect(to).await?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        match Handle::try_current() {
            Ok(runtime) => {
                drop(runtime.spawn(task));
                Ok(())
            }
            Err(_) => Err(task),
        }
    }

    /// The session is a task: one thread runs all tasks, and the seed decides their order.
    fn spawn_session(&self, session: Pending<()>) -> io::Result<()> {
        self.spawn(session).map_err(|_| io::Error::other("outside of the simulation"))
    }
}
