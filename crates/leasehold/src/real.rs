//! The real world: the one place that reads clocks, draws random numbers, spawns tasks and opens connections.

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_spec::mutant::{Mutant, is_on};
use rustix::time::{ClockId, clock_gettime};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::descriptors;
use crate::world::{Address, Pending, RuntimeId, Socket, World};

/// The real world.
pub struct Real;

impl Real {
    /// Returns the real world in the form that a session takes.
    #[must_use]
    pub fn world() -> Arc<dyn World> {
        Arc::new(Self)
    }
}

impl World for Real {
    // `Instant` is CLOCK_MONOTONIC on Linux: after an hour of sleep, a laptop would still rely on a lease of 30 s.
    fn now_us(&self) -> u64 {
        read_us(if is_on(Mutant::P12StandsStill) { ClockId::Monotonic } else { LEASE_CLOCK })
    }

    fn wall_us(&self) -> u64 {
        // Through the C library, so that a test can move the clock of a process.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
    }

    fn random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }

    fn host(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    fn process(&self) -> u32 {
        std::process::id()
    }

    // A system call takes longer than handing a lock on, so a fork handler marks the child, and no call checks for a
    // fork. A process that was forked after that asks the system each time: nearly all calls with its inherited objects
    // are refused anyway.
    fn process_as_known(&self) -> u32 {
        static KNOWN: LazyLock<(forkguard::Guard, u32)> = LazyLock::new(|| (forkguard::new(), std::process::id()));
        let (guard, process) = &*KNOWN;
        if guard.clone().detected_fork() { std::process::id() } else { *process }
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn connect(&self, to: &Address) -> Pending<io::Result<Box<dyn Socket>>> {
        let (host, port) = (to.host.clone(), to.port);
        Box::pin(async move {
            let stream = TcpStream::connect((host.as_str(), port)).await.map_err(descriptors::uncovered)?;
            // A hand-over is one small message. Nagle's algorithm would hold it back for an acknowledgement.
            stream.set_nodelay(true)?;
            keep_alive(&stream)?;
            Ok(Box::new(stream) as Box<dyn Socket>)
        })
    }

    fn runtime(&self) -> Option<RuntimeId> {
        Handle::try_current().ok().map(|runtime| RuntimeId::Tokio(runtime.id()))
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

    fn offload(&self, work: Box<dyn FnOnce() + Send>) {
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(work)),
            Err(_) => work(),
        }
    }

    fn spawn_session(&self, session: Pending<()>) -> io::Result<()> {
        let runtime = descriptors::runtime()?;
        let run = move || runtime.block_on(session);
        std::thread::Builder::new().name("leasehold".into()).spawn(run).map(drop)
    }
}

#[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
const LEASE_CLOCK: ClockId = ClockId::Boottime;
// On other systems the monotonic clock is the nearest. On macOS it stops while the machine sleeps.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "fuchsia")))]
const LEASE_CLOCK: ClockId = ClockId::Monotonic;

fn read_us(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, nanoseconds) = (now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned());
    seconds * 1_000_000 + nanoseconds / 1000
}

// The session's own deadlines are the first to notice a peer that vanished silently. This is for idle connections.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    #[cfg(target_os = "linux")]
    {
        rustix::net::sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
        rustix::net::sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
        rustix::net::sockopt::set_tcp_user_timeout(stream, 30_000)?;
    }
    Ok(())
}
