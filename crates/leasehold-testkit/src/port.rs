//! Ports that no two tests share.
//!
//! Asking the kernel for "any free port" and closing it again has two holes. Between closing it here and opening it in a
//! server, another test may be given the same one; and while a test has its server down, the port is free for anybody,
//! so that a restart on the same port fails once in a while. Worse, the kernel chooses from the range that it also takes
//! the *near* ends of connections from: a client that keeps trying to reach its dead server is, once in some 28,000
//! tries, given the server's own port, and is then connected to itself.
//!
//! So ports are taken from below that range, and reserved: whoever owns TCP port *p* here keeps *UDP* port *p* open for
//! as long as it owns it. The kernel lets only one process have that, and takes it back however the process ends.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

/// Below Linux' ephemeral ports (32,768 and up), with room for a Redis Cluster's bus ports (port + 10,000).
const PORTS: std::ops::Range<u16> = 10_200..21_800;
const TRIES: usize = 1_000;
/// How long a process may take from its fork to its program, on a machine that is busy.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// A TCP port on 127.0.0.1 at which nothing listens, reserved until this is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UdpSocket,
}

/// Reserves a free port. Nothing listens there until the caller (or what the caller starts) does.
///
/// # Panics
/// When a thousand ports in a row were taken.
#[must_use]
pub fn free_port() -> Port {
    let span = u64::from(PORTS.end - PORTS.start);
    for _ in 0..TRIES {
        // Every new `RandomState` hashes differently: processes that start at the same moment do not collide in step.
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
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Listens there.
    ///
    /// A process that another thread starts has a copy of the socket by which [`free_port`] tried the port, from its fork
    /// until it executes its program. For that long the port is in use.
    ///
    /// # Panics
    /// When somebody who knows nothing of our reservations has taken it.
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
    fn no_port_is_given_twice() {
        let ports: Vec<Port> = (0..200).map(|_| free_port()).collect();
        let numbers: HashSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
    }

    #[test]
    fn a_reserved_port_can_be_listened_at() {
        drop(free_port().listen());
    }

    /// As a process has the trial socket that another thread is just starting.
    #[test]
    fn a_port_that_is_in_use_for_a_moment_is_waited_for() {
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
