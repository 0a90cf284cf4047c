//! The seam: everything that a session takes from the world around it, in one trait, so that a simulation can own it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// A boxed future that goes to any thread.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A byte stream to a store.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// Where a store listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// An async runtime: what polls a caller's futures, and drives the connections that were opened on it.
///
/// Unique among the runtimes that exist. A runtime that has ended may leave its ID to a later one; its connections have
/// ended, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuntimeId {
    /// A tokio runtime.
    Tokio(tokio::runtime::Id),
    /// A runtime of a simulation.
    Simulated(u64),
}

/// Clock, randomness, spawning and connecting.
pub trait World: Send + Sync + 'static {
    /// A clock that nobody sets and that runs while the machine sleeps (CLOCK_BOOTTIME), in microseconds.
    fn now_us(&self) -> u64;

    /// Wall time in microseconds: the stores of this host make tokens of it, and certificates are judged by it. No lease is
    /// counted on it.
    fn wall_us(&self) -> u64;

    /// Fills the buffer with random bytes that nobody can guess.
    fn random(&self, bytes: &mut [u8]);

    /// What the machine is called, for labels.
    fn host(&self) -> String;

    /// Which process this is: a session does not survive a fork.
    fn process(&self) -> u32;

    /// The same, as far as known without asking the system: that is for each lock and each release. May miss the child of
    /// a `clone` that ran no fork handlers; what leaves the process asks [`World::process`].
    fn process_as_known(&self) -> u32 {
        self.process()
    }

    /// Sleeps, on the session's thread or on a caller's runtime with a timer. May stand still while the machine sleeps:
    /// callers look at [`World::now_us`].
    fn sleep(&self, duration: Duration) -> Pending<()>;

    /// Opens a byte stream.
    fn connect(&self, to: &Address) -> Pending<io::Result<Box<dyn Socket>>>;

    /// Returns the runtime of the caller: the one on which [`World::spawn`] runs futures. `None` if there is none.
    fn runtime(&self) -> Option<RuntimeId> {
        Some(RuntimeId::Simulated(0))
    }

    /// Runs a future on the caller's runtime; gives it back where there is none.
    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>>;

    /// Runs what may block, such as reading a file, where it holds nobody up. In a simulation nothing blocks: at once.
    fn offload(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    /// Runs a session's loop on a thread of its own, apart from every runtime of the program (P17).
    fn spawn_session(&self, session: Pending<()>) -> io::Result<()>;
}
