//! A TCP proxy in front of a server that understands what passes through it, and breaks it on demand.
//!
//! A proxy that cuts and delays bytes finds half of the faults that matter. The other half has a place in the protocol:
//! *this* reply is lost although the server acted, *that* script arrives after its client has given up, a message is
//! dropped and the replies around it are not. So this one reads both directions and knows which reply answers which
//! request (see `replies`). What it cannot do is what TCP cannot do: it never reorders, and never loses a part of a
//! direction that goes on, except for the faults that say so.
//!
//! Each fault is counted where it strikes, not where it is asked for: a test that injects one asserts through its
//! [`Injected`] that it happened, and so cannot pass because nothing did.
//!
//! The proxy runs on threads of its own. It goes on when every runtime of the test is blocked or gone.
//!
//! ```
//! use std::time::Duration;
//! use leasehold_testkit::{RedisServer, Resp, Value};
//! use leasehold_testkit::proxy::{Fault, FaultProxy, Requests};
//!
//! let server = RedisServer::start();
//! let proxy = FaultProxy::start(server.port());
//! let lost = proxy.inject(Fault::drop_reply(Requests::named("INCR")).once());
//!
//! let mut client = Resp::try_connect(proxy.port(), Duration::from_millis(100)).unwrap();
//! assert!(client.try_command(&["INCR", "n"]).is_err()); // no answer …
//! lost.wait(1, Duration::from_secs(10));                // … because of our fault,
//! assert_eq!(server.command(&["GET", "n"]), Value::from("1")); // and the server has counted
//! ```

mod connection;
mod control;
mod fault;
mod lane;
mod replies;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use connection::{Connection, Cut};
use control::{Armed, Control, FaultId, Shared};

pub use control::Seen;
pub use fault::{Command, Fault, Latency, Requests};

use crate::port::{Port, free_port};

/// A proxy in front of a server. Dropping it cuts what goes through it.
#[derive(Debug)]
pub struct FaultProxy {
    port: Port,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// What a stall is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From clients to the server.
    Requests,
    /// From the server to clients, messages included.
    Replies,
    /// Both.
    Both,
}

/// An injected fault, to look at and to lift. Dropping this does not lift it.
#[derive(Debug)]
#[must_use = "assert that the fault has struck"]
pub struct Injected {
    id: FaultId,
    shared: Arc<Shared>,
}

impl FaultProxy {
    /// A proxy in front of the server at this port of 127.0.0.1, which lets everything pass.
    #[must_use]
    pub fn start(target: u16) -> Self {
        let port = free_port();
        let listener = port.listen();
        let shared = Arc::new(Shared::new(target));
        let accepting = {
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new().name("proxy-accept".into());
            thread.spawn(move || accept(&listener, &shared)).expect("the system has threads left")
        };
        Self { port, shared, accepting: Some(accepting) }
    }

    /// Its own port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Sends new connections to another server. Those that are open stay where they are: see [`cut_all`](Self::cut_all).
    pub fn set_target(&self, port: u16) {
        self.shared.change(|control| control.target = port);
    }

    /// Arms a fault. Of several that could strike, the one injected first does.
    pub fn inject(&self, fault: Fault) -> Injected {
        let id = self.shared.change(|control| {
            control.faults.push(Armed { fault, hits: 0, lifted: false });
            control.faults.len() - 1
        });
        Injected { id, shared: Arc::clone(&self.shared) }
    }

    /// Holds up one way or both, without closing anything; new connections are still made. What is held up is counted in
    /// [`Seen`].
    pub fn stall(&self, way: Way) {
        self.shared.change(|control| {
            control.requests_stalled |= way != Way::Replies;
            control.replies_stalled |= way != Way::Requests;
        });
    }

    /// Ends a stall: what was held up goes on, in order, although its sender may have gone.
    pub fn resume(&self) {
        self.shared.release(|control| {
            control.requests_stalled = false;
            control.replies_stalled = false;
        });
    }

    /// Cuts every connection: clients see a reset, and what was held up is lost. Says how many there were.
    pub fn cut_all(&self) -> usize {
        let cut = |connection: &Arc<Connection>| connection.cut(&self.shared) == Cut::Now;
        self.shared.connections().iter().filter(|connection| cut(connection)).count()
    }

    /// Refuses new connections: they are reset as soon as they are made.
    pub fn refuse_connections(&self) {
        self.shared.change(|control| control.refusing = true);
    }

    /// Accepts new connections again.
    pub fn accept_connections(&self) {
        self.shared.change(|control| control.refusing = false);
    }

    /// Makes everything take longer from now on; `None` for as fast as it goes.
    pub fn set_latency(&self, latency: Option<Latency>) {
        self.shared.change(|control| control.latency = latency);
    }

    /// What it has seen.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.shared.lock().seen.clone()
    }

    /// Waits until it has seen what `enough` asks for.
    ///
    /// # Panics
    /// When `within` has passed, naming `what` was awaited.
    #[track_caller]
    pub fn wait_seen(&self, what: &str, within: Duration, enough: impl Fn(&Seen) -> bool) {
        let seen = self.shared.wait(within, |control| enough(&control.seen));
        assert!(seen, "the proxy waited {within:?} in vain until {what}: {:?}", self.seen());
    }

    /// The last ten thousand requests, as they came.
    #[must_use]
    pub fn commands(&self) -> Vec<Command> {
        self.shared.lock().log.iter().cloned().collect()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.change(|control| control.stopping = true);
        // The listener looks up for a connection only.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.cut_all();
    }
}

impl Injected {
    /// How often it has struck.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.shared.lock().faults[self.id].hits
    }

    /// Waits until it has struck so often.
    ///
    /// # Panics
    /// When it has not within that time.
    #[track_caller]
    pub fn wait(&self, hits: u64, within: Duration) {
        let struck = |control: &Control| control.faults[self.id].hits >= hits;
        if !self.shared.wait(within, struck) {
            let Armed { fault, hits: struck, .. } = self.shared.lock().faults[self.id].clone();
            panic!("in {within:?} this struck {struck} times, not {hits}: {fault:?}");
        }
    }

    /// Ends it: what it holds goes on, and it strikes no more.
    pub fn lift(&self) {
        self.shared.release(|control| control.faults[self.id].lifted = true);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    // Each turn waits for a connection; the last one comes from `drop`.
    for id in 1.. {
        let accepted = listener.accept();
        let (target, refusing, stopping) = {
            let control = shared.lock();
            (control.target, control.refusing, control.stopping)
        };
        let Ok((client, _)) = accepted else {
            if stopping {
                return;
            }
            // Out of file descriptors, mostly: asking at once would only make it worse.
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        if stopping {
            return;
        }
        if refusing {
            connection::refuse(client);
            shared.change(|control| control.seen.refused += 1);
        } else if Connection::open(shared, id, client, target).is_err() {
            shared.change(|control| control.seen.unreachable += 1);
        }
    }
}
