//! The seam: one trait with everything that a session takes from its environment, so that a simulation can replace it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// A boxed future that any thread can run.
pub type Pending<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A byte stream to a store.
pub trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// The address at which a store listens.
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

/// An async runtime, which polls a caller's futures and drives the connections that were opened on it.
///
/// The ID is unique among the runtimes that exist. A runtime that has ended may leave its ID to a later one, but its
/// connections have ended, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuntimeId {
    /// A tokio runtime.
    Tokio(tokio::runtime::Id),
    /// A runtime of a simulation.
    Simulated(u64),
}

/// Clock, randomness, spawning and connecting.
pub trait World: Send + Sync + 'static {
    /// Returns the time in microseconds of a clock that is never set, and that runs while the machine sleeps
    /// (CLOCK_BOOTTIME).
    fn now_us(&self) -> u64;

    /// Returns the wall time in microseconds. The stores of this host make tokens from it, and certificates are checked
    /// against it. No lease is measured by it.
    fn wall_us(&self) -> u64;

    /// Fills the buffer with unpredictable random bytes.
    fn random(&self, bytes: &mut [u8]);

    /// Returns the name of the machine, for labels.
    fn host(&self) -> String;

    /// Returns the ID of this process: a session does not survive a fork.
    fn process(&self) -> u32;

    /// Returns the process ID as far as it is known without a system call. It is used for each lock and each release.
    /// It may miss the child of a `clone` that ran no fork handlers, so [`World::process`] is checked before anything
    /// leaves the process.
    fn process_as_known(&self) -> u32 {
        self.process()
    }

    /// Sleeps, on the session's thread or on a caller's runtime with a timer. The sleep may pause while the machine
    /// sleeps, so callers check [`World::now_us`].
    fn sleep(&self, duration: Duration) -> Pending<()>;

    /// Opens a byte stream.
    fn connect(&self, to: &Address) -> Pending<io::Result<Box<dyn Socket>>>;

    /// Returns the runtime of the caller, on which [`World::spawn`] runs futures, or `None` if there is none.
    fn runtime(&self) -> Option<RuntimeId> {
        Some(RuntimeId::Simulated(0))
    }

    /// Runs a future on the caller's runtime. Returns the future if there is no runtime.
    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>>;

    /// Runs work that may block, such as reading a file, where it delays nothing else. In a simulation nothing blocks,
    /// so the work runs at once.
    fn offload(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }

    /// Runs a session's loop on a thread of its own, apart from every runtime of the program (P17).
    fn spawn_session(&self, session: Pending<()>) -> io::Result<()>;
}
