//! The connections between clients and servers.
//!
//! A connection is two ordered pipes. Each message takes a time of its own, and no message overtakes another of its
//! pipe. While a pipe is blocked (a partition, a stall, a half-open connection), messages stay in the pipe. When the
//! connection breaks, the messages are lost, or they reach the server seconds later: TCP and a frozen server do both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::exec::{Pid, lock};
use super::pipe::Pipe;
use super::rng::Rng;
use super::stage::Sim;
use super::wire::{Incoming, Way, Wire};

/// A network, with servers at its end.
pub(super) trait Network: Sized + 'static {
    type Route: Way;

    fn of(sim: &Sim) -> &Mutex<Self>;

    fn conns(&mut self) -> &mut Conns<Self::Route>;

    /// Returns whether a client is cut off from a server.
    fn is_cut_off(&self, pid: Pid, node: usize) -> bool;

    /// Returns how long a message to or from a server takes.
    fn delay_us(&mut self, node: usize) -> u64;

    /// Chooses which directions a stall blocks: up and down.
    fn stalled(rng: &mut Rng) -> [u32; 2];

    /// Handles a request that has reached a server.
    fn receive(&mut self, sim: &Arc<Sim>, to: (usize, u64), reply: Option<u64>, ask: Ask<Self>);

    /// Ends a connection at its server.
    fn detach(&mut self, node: usize, id: u64);

    /// Returns the last message of a client that closes a connection.
    fn end() -> Ask<Self>;
}

type Ask<N> = <<N as Network>::Route as Way>::Ask;

/// The connections of a network, by number.
pub(super) struct Conns<W: Way> {
    all: BTreeMap<u64, Conn<W>>,
    last: u64,
}

pub(super) struct Conn<W: Way> {
    pub(super) pid: Pid,
    pub(super) node: usize,
    wire: Arc<Wire<W>>,
    up: Pipe<(Option<u64>, W::Ask)>,
    down: Pipe<Incoming<W>>,
    /// The number of reasons for which nothing flows, up and down.
    pub(super) stalls: [u32; 2],
    pub(super) is_half_open: bool,
    /// The next reply is lost, and the connection with it.
    pub(super) loses_reply: bool,
    /// The client has closed it, or it broke: nothing more reaches the client.
    is_left: bool,
}

/// A message, by its direction.
pub(super) enum Sending<W: Way> {
    Up { reply: Option<u64>, ask: W::Ask },
    Down(Incoming<W>),
}

/// The fate of the requests that are in flight when a connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Gone,
    /// It is carried out after this time.
    Late(u64),
}

/// How long a client that finds no server under the address hangs at first, if it hangs at all.
pub(super) const HANG_US: u64 = 10_000_000;

impl<W: Way> Conns<W> {
    pub(super) fn new() -> Self {
        Self { all: BTreeMap::new(), last: 0 }
    }

    /// Adds a connection. Returns its number, and the client's end.
    pub(super) fn open(&mut self, pid: Pid, node: usize) -> (u64, Arc<Wire<W>>) {
        let wire = Arc::new(Wire::default());
        let conn = Conn {
            pid,
            node,
            wire: Arc::clone(&wire),
            up: Pipe::new(),
            down: Pipe::new(),
            stalls: [0, 0],
            is_half_open: false,
            loses_reply: false,
            is_left: false,
        };
        self.last += 1;
        self.all.insert(self.last, conn);
        (self.last, wire)
    }

    pub(super) fn get(&mut self, id: u64) -> Option<&mut Conn<W>> {
        self.all.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.all.remove(&id);
    }

    /// Returns the numbers of these connections.
    pub(super) fn of(&self, which: impl Fn(&Conn<W>) -> bool) -> Vec<u64> {
        self.all.iter().filter(|(_, conn)| which(conn)).map(|(id, _)| *id).collect()
    }

    /// Returns the open connections of live clients.
    pub(super) fn alive(&self) -> Vec<u64> {
        self.of(|conn| !conn.is_left && !conn.is_half_open)
    }
}

/// Sends a message to or from a server.
pub(super) fn send<N: Network>(sim: &Arc<Sim>, (node, id): (usize, u64), message: Sending<N::Route>) {
    let mut net = lock(N::of(sim));
    let us = net.delay_us(node);
    push(sim, &mut *net, id, us, message);
}

/// Sends a message that takes this time.
pub(super) fn push<N: Network>(sim: &Arc<Sim>, net: &mut N, id: u64, us: u64, message: Sending<N::Route>) {
    let now_us = sim.exec.now_us();
    let Some(conn) = net.conns().get(id) else { return };
    let at_us = match message {
        Sending::Up { reply, ask } => conn.up.push(now_us + us, (reply, ask)),
        Sending::Down(_) if conn.is_left => return,
        Sending::Down(message) => conn.down.push(now_us + us, message),
    };
    let there = Arc::clone(sim);
    sim.exec.after(at_us - now_us, move || pump::<N>(&there, id));
}

/// Sends a reply, if its connection is not to lose it.
pub(super) fn answer<N: Network>(
    sim: &Arc<Sim>,
    net: &mut N,
    id: u64,
    us: u64,
    (number, reply): (u64, <N::Route as Way>::Reply),
) {
    if net.conns().get(id).is_some_and(|conn| std::mem::take(&mut conn.loses_reply)) {
        sim.note(id, || format!("a reply on connection {id} is lost, and the connection breaks"));
        sever(sim, net, id, Fate::Gone, (us, 0));
        return;
    }
    push(sim, net, id, us, Sending::Down(Incoming::Reply(number, reply)));
}

/// Sends the replies to the requests of one message. If the first is lost, the connection breaks, and so all of them are.
pub(super) fn answer_all<N: Network>(
    sim: &Arc<Sim>,
    net: &mut N,
    id: u64,
    us: u64,
    replies: impl IntoIterator<Item = (u64, <N::Route as Way>::Reply)>,
) {
    for reply in replies {
        answer(sim, net, id, us, reply);
    }
}

/// Delivers the messages that are due.
pub(super) fn pump<N: Network>(sim: &Arc<Sim>, id: u64) {
    let now_us = sim.exec.now_us();
    loop {
        let mut net = lock(N::of(sim));
        let Some(&mut Conn { pid, node, is_half_open, .. }) = net.conns().get(id) else { return };
        if is_half_open || net.is_cut_off(pid, node) {
            return;
        }
        let Some(conn) = net.conns().get(id) else { return };
        let [up, down] = conn.stalls.map(|stalls| stalls == 0);
        if down && conn.down.is_due(now_us) {
            if let Some(message) = conn.down.pop() {
                conn.wire.arrive(message);
            }
        } else if up && conn.up.is_due(now_us) {
            let Some((reply, ask)) = conn.up.pop() else { return };
            net.receive(sim, (node, id), reply, ask);
        } else {
            return;
        }
    }
}

/// Delivers again on connections whose block has ended.
pub(super) fn unblocked<N: Network>(sim: &Arc<Sim>, which: impl Fn(&Conn<N::Route>) -> bool) {
    let ids = lock(N::of(sim)).conns().of(which);
    ids.into_iter().for_each(|id| pump::<N>(sim, id));
}

/// Closes the client's end: the requests that it has sent arrive, and then the end of the stream.
pub(super) fn client_closes<N: Network>(sim: &Arc<Sim>, (node, id): (usize, u64)) {
    let mut net = lock(N::of(sim));
    let us = net.delay_us(node);
    let Some(conn) = net.conns().get(id) else { return };
    if std::mem::replace(&mut conn.is_left, true) {
        return;
    }
    conn.down.clear();
    sim.note(id, || format!("connection {id} is closed by its client"));
    push(sim, &mut *net, id, us, Sending::Up { reply: None, ask: N::end() });
}

/// Breaks a connection. The client notices it after `client_us`, the server after `server_us`.
pub(super) fn sever<N: Network>(sim: &Arc<Sim>, net: &mut N, id: u64, fate: Fate, (client_us, server_us): (u64, u64)) {
    let Some(conn) = net.conns().get(id) else { return };
    let (pid, node, wire) = (conn.pid, conn.node, Arc::clone(&conn.wire));
    let was_left = std::mem::replace(&mut conn.is_left, true);
    let under_way = conn.up.drain();
    let count = under_way.len() as u64;
    conn.down.clear();
    if !was_left {
        // A client that is cut off does not notice the break either.
        let client_us = if net.is_cut_off(pid, node) { client_us + HANG_US } else { client_us };
        sim.exec.after(client_us, move || wire.arrive(Incoming::Broken));
    }
    if let Fate::Late(us) = fate {
        for (nth, (reply, ask)) in under_way.into_iter().enumerate() {
            let there = Arc::clone(sim);
            sim.book.count("a request outlives its connection");
            let arrive = move || lock(N::of(&there)).receive(&there, (node, id), reply, ask);
            sim.exec.after(us + nth as u64, arrive);
        }
    }
    // The server ends a connection after the last request that it has read from it.
    let read_us = if let Fate::Late(us) = fate { us + count + 1 } else { 0 };
    let there = Arc::clone(sim);
    sim.exec.after(server_us.max(read_us), move || {
        let mut net = lock(N::of(&there));
        net.detach(node, id);
        net.conns().remove(id);
    });
}
