//! Ports that no two tests share.
//!
//! A test could ask the kernel for "any free port" and close it again, but that has two holes. Between the close and the
//! listen of the server, another test may get the same port. And while the server is down, the port is free for anybody,
//! so that a restart on the same port fails once in a while. Worse, the kernel chooses from the range from which it also
//! takes the *near* ends of connections: a client that keeps trying to reach its dead server is given the server's own
//! port once in some 28,000 tries, and is then connected to itself.
//!
//! So ports are taken from below that range, and reserved: the owner of TCP port *p* keeps *UDP* port *p* open for as
//! long as it owns it. The kernel gives the UDP port to one process only, and frees it however the process ends.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Below Linux' ephemeral ports (32,768 and up), with room for a Redis Cluster's bus ports (port + 10,000).
const PORTS: std::ops::Range<u16> = 10_200..21_800;
const TRIES: usize = 1_000;
/// How long a process may take from its fork to the start of its program on a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// A TCP port on 127.0.0.1 at which nothing listens, reserved until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UdpSocket,
}

/// Reserves a free port. Nothing listens there until the caller, or a server that it starts, does.
///
/// # Panics
/// When a thousand ports in a row were taken.
#[must_use]
pub fn free_port() -> Port {
    let span = u64::from(PORTS.end - PORTS.start);
    for _ in 0..TRIES {
        // Every new `RandomState` hashes differently, so processes that start at the same moment do not try the same
        // ports.
        let offset = RandomState::new().hash_one(0) % span;
        let number = PORTS.start + u16::try_from(offset).expect("less than the span of the range");
        let Ok(reservation) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
            return Port { number, _reservation: reservation };
        }
    }
    panic!("no free port on 127.0.0.1 in {PORTS:?} in {TRIES} tries: do servers of earlier runs still run?");
}

impl Port {
    /// Returns its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Listens on the port.
    ///
    /// While another thread starts a process, that process has a copy of the socket by which [`free_port`] tried the
    /// port, from its fork until it executes its program. The port is in use for that long.
    ///
    /// # Panics
    /// If a process that ignores our reservations has taken the port.
    #[must_use]
    pub fn listen(&self) -> TcpListener {
        let until = Instant::now() + STARTS_WITHIN;
        loop {
            match TcpListener::bind((Ipv4Addr::LOCALHOST, self.number)) {
                Ok(listener) => return listener,
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < until => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("port {} was reserved for us: {error}", self.number),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_port_is_reserved_twice() {
        let ports: Vec<Port> = (0..200).map(|_| free_port()).collect();
        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
    }

    #[test]
    fn listening_on_a_reserved_port_works() {
        drop(free_port().listen());
    }

    /// Another process, which a thread is starting just then, has a copy of the trial socket.
    #[test]
    fn listening_waits_for_a_port_that_is_in_use_for_a_moment() {
        let port = free_port();
        let trial = port.listen();
        let holding = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(trial);
        });
        drop(port.listen());
        holding.join().unwrap();
    }
}
