//! A TCP proxy in front of a server. It understands the traffic, and breaks it on demand.
//!
//! A proxy that only cuts and delays bytes finds half of the faults that matter. The other half has a place in the
//! protocol: *this* reply is lost although the server acted, *that* script arrives after its client has given up, a
//! message is dropped and the replies around it are not. So this proxy reads both directions and knows which reply
//! answers which request (see `replies`). It keeps to what TCP can do: it never reorders, and never loses a part of a
//! direction that goes on, except for the faults that are documented to do so.
//!
//! Each fault is counted where it strikes, not where it is injected. A test asserts through [`Injected`] that its fault
//! struck, so it cannot pass because nothing happened.
//!
//! The proxy runs on threads of its own. It works on when every runtime of the test is blocked or gone.
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

/// A proxy in front of a server. Dropping it cuts its connections.
#[derive(Debug)]
pub struct FaultProxy {
    port: Port,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// The direction of a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From clients to the server.
    Requests,
    /// From the server to clients, messages included.
    Replies,
    /// Both.
    Both,
}

/// A handle of an injected fault, to observe and to lift it. Dropping this does not lift it.
#[derive(Debug)]
#[must_use = "assert that the fault has struck"]
pub struct Injected {
    id: FaultId,
    shared: Arc<Shared>,
}

impl FaultProxy {
    /// Starts a proxy in front of the server at this port of 127.0.0.1. It forwards everything at first.
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

    /// Returns its own port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Sends new connections to another server. Open connections stay: see [`cut_all`](Self::cut_all).
    pub fn set_target(&self, port: u16) {
        self.shared.change(|control| control.target = port);
    }

    /// Arms a fault. If several could strike, the one injected first does.
    pub fn inject(&self, fault: Fault) -> Injected {
        let id = self.shared.change(|control| {
            control.faults.push(Armed { fault, hits: 0, lifted: false });
            control.faults.len() - 1
        });
        Injected { id, shared: Arc::clone(&self.shared) }
    }

    /// Holds up one direction or both, without closing anything; new connections are still accepted. Everything held up
    /// is counted in [`Seen`].
    pub fn stall(&self, way: Way) {
        self.shared.change(|control| {
            control.requests_stalled |= way != Way::Replies;
            control.replies_stalled |= way != Way::Requests;
        });
    }

    /// Ends a stall: everything held up is forwarded, in order, although its sender may have gone.
    pub fn resume(&self) {
        self.shared.release(|control| {
            control.requests_stalled = false;
            control.replies_stalled = false;
        });
    }

    /// Cuts every connection: clients see a reset, and everything held up is lost. Returns how many connections there
    /// were.
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

    /// Delays everything from now on; `None` for no delay.
    pub fn set_latency(&self, latency: Option<Latency>) {
        self.shared.change(|control| control.latency = latency);
    }

    /// Returns what it has seen.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.shared.lock().seen.clone()
    }

    /// Waits until `enough` accepts what it has seen.
    ///
    /// # Panics
    /// If that has not happened within `within`. The message names `what` was awaited.
    #[track_caller]
    pub fn wait_seen(&self, what: &str, within: Duration, enough: impl Fn(&Seen) -> bool) {
        let seen = self.shared.wait(within, |control| enough(&control.seen));
        assert!(seen, "the proxy waited {within:?} in vain until {what}: {:?}", self.seen());
    }

    /// Returns the last ten thousand requests, in the order of their arrival.
    #[must_use]
    pub fn commands(&self) -> Vec<Command> {
        self.shared.lock().log.iter().cloned().collect()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.change(|control| control.stopping = true);
        // Only a connection wakes the listener.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port()));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.cut_all();
    }
}

impl Injected {
    /// Returns how often it has struck.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.shared.lock().faults[self.id].hits
    }

    /// Waits until it has struck `hits` times.
    ///
    /// # Panics
    /// If it has not struck so often within that time.
    #[track_caller]
    pub fn wait(&self, hits: u64, within: Duration) {
        let struck = |control: &Control| control.faults[self.id].hits >= hits;
        if !self.shared.wait(within, struck) {
            let Armed { fault, hits: struck, .. } = self.shared.lock().faults[self.id].clone();
            panic!("in {within:?} this struck {struck} times, not {hits}: {fault:?}");
        }
    }

    /// Ends the fault: everything it holds is forwarded, and it strikes no more.
    pub fn lift(&self) {
        self.shared.release(|control| control.faults[self.id].lifted = true);
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    // Each turn waits for a connection; `drop` makes the last one.
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
            // Mostly the process is out of file descriptors; an immediate retry would only make it worse.
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
