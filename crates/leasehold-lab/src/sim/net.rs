//! The network, and the server at its end.
//!
//! A connection is two ordered pipes. Each message takes a time of its own, and no message overtakes another of its
//! pipe. While a pipe is blocked (a partition, a stall, a half-open connection), messages stay in the pipe. When the
//! connection breaks, the messages are lost, or they reach the server seconds later: TCP and a frozen server do both.
//!
//! Only this module and `faults.rs` know the state of the network; a client has its end of the connection and nothing
//! else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold::ErrorKind;
use leasehold::Result;
use leasehold::seam::error;
use leasehold_spec::{Answer, GrantId, Name, Op, Order, Outcome, SessionId};

use super::book::Grant;
use super::exec::{Pid, lock};
use super::follow;
use super::holders;
use super::link::Route;
use super::node::{Ask, Clock, Done, Node, Reply, Role, label};
use super::pipe::Pipe;
use super::plan::Plan;
use super::rng::Rng;
use super::stage::Sim;
use super::wire::{Incoming, Wire};
use super::words;

pub(super) struct Net {
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Node>,
    /// The server that clients find under the address.
    pub(super) primary: usize,
    pub(super) conns: BTreeMap<u64, Conn>,
    next_conn: u64,
    delay_us: (u64, u64),
    slow_in: u64,
    /// For how many reasons a client is cut off.
    pub(super) cut_off: BTreeMap<Pid, u32>,
    /// For how many reasons new connections are refused.
    pub(super) refuses: u32,
    /// How many of a hundred pushes are lost.
    pub(super) lost_pushes: u64,
    /// The client of each session, for the trace.
    pub(super) pids: BTreeMap<SessionId, Pid>,
    /// When an attempt first was in the queue.
    queued_us: BTreeMap<GrantId, u64>,
    /// The tokens of revoked grants whose holders were notified.
    pub(super) notified: BTreeSet<u64>,
    pub(super) is_calm: bool,
    /// The highest token that a server may have forgotten.
    pub(super) forgotten: u64,
}

/// A grant that is handed on inside its client.
pub(super) struct HandOver {
    pub(super) token: u64,
    /// Since when a client waits in the queue.
    pub(super) waited_us: u64,
    /// The same for waiters in strict order.
    pub(super) strict_us: u64,
}

pub(super) struct Conn {
    pub(super) pid: Pid,
    pub(super) node: usize,
    wire: Arc<Wire<Route>>,
    up: Pipe<(Option<u64>, Ask)>,
    down: Pipe<Incoming<Route>>,
    /// For how many reasons nothing flows.
    pub(super) stalls: u32,
    pub(super) is_half_open: bool,
    /// The next reply is lost, and the connection with it.
    pub(super) loses_reply: bool,
    /// The client knows that it is over.
    is_left: bool,
}

/// The direction of a message.
pub(super) enum Way {
    Up { reply: Option<u64>, ask: Ask },
    Down(Incoming<Route>),
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

impl Net {
    pub(super) fn new(mut rng: Rng, plan: &Plan) -> Self {
        let clock = Clock { offset_us: 0, rate_ppm: drift(&mut rng, plan.drift_ppm) };
        Self {
            nodes: vec![Node::new("run 1".into(), clock)],
            rng,
            primary: 0,
            conns: BTreeMap::new(),
            next_conn: 1,
            delay_us: plan.delay_us,
            slow_in: plan.slow_in,
            cut_off: BTreeMap::new(),
            refuses: 0,
            lost_pushes: 0,
            pids: BTreeMap::new(),
            queued_us: BTreeMap::new(),
            notified: BTreeSet::new(),
            is_calm: false,
            forgotten: 0,
        }
    }

    pub(super) fn is_cut_off(&self, pid: Pid) -> bool {
        self.cut_off.get(&pid).is_some_and(|reasons| *reasons > 0)
    }

    fn delay_us(&mut self) -> u64 {
        let us = self.rng.between(self.delay_us.0, self.delay_us.1);
        let is_slow = self.slow_in > 0 && !self.is_calm && self.rng.below(self.slow_in) == 0;
        if is_slow { us * 10 } else { us }
    }

    fn is_blocked(&self, conn: &Conn) -> bool {
        conn.stalls > 0 || conn.is_half_open || self.is_cut_off(conn.pid)
    }

    /// Returns the grant of the server to which this hold belongs, as the server has it now.
    pub(super) fn hand_over_of(&self, hold: &Grant) -> Option<HandOver> {
        let records = &self.nodes[self.primary].records;
        let (_, record) = records.iter().find(|(name, _)| name.as_str() == hold.name)?;
        let grant = record.grants.sole().filter(|grant| grant.is_held())?;
        let (token, last) = (grant.token.get(), grant.reserved().get());
        let since_us = |orders: &[Order]| {
            let waits = record.queue.iter().filter(|entry| orders.contains(&entry.order));
            waits.filter_map(|entry| self.queued_us.get(&entry.id)).min().copied().unwrap_or(u64::MAX / 2)
        };
        let (waited_us, strict_us) = (since_us(&[Order::Relaxed, Order::Strict]), since_us(&[Order::Strict]));
        let run = HandOver { token, waited_us, strict_us };
        (token <= hold.token && hold.token <= last).then_some(run)
    }

    /// Returns the open connections of live clients.
    pub(super) fn open_conns(&self) -> Vec<u64> {
        self.conns.iter().filter(|(_, conn)| !conn.is_left && !conn.is_half_open).map(|(id, _)| *id).collect()
    }
}

/// Returns by how much the rate of a clock differs from true time.
pub(super) fn drift(rng: &mut Rng, most_ppm: i64) -> i64 {
    rng.below(2 * most_ppm.unsigned_abs() + 1).cast_signed() - most_ppm
}

/// Connects a client: this takes two round trips, and then the client knows the run ID of the server. Returns the
/// number of the connection, the run ID, and the client's end.
pub(super) async fn open(sim: &Arc<Sim>, pid: Pid) -> Result<(u64, String, Arc<Wire<Route>>)> {
    for _ in 0..2 {
        let (us, refused, hangs) = {
            let mut net = lock(&sim.net);
            let node = &net.nodes[net.primary];
            let refused = net.refuses > 0 || node.role == Role::Down;
            let hangs = net.is_cut_off(pid) || node.freezes > 0;
            (2 * net.delay_us(), refused, hangs)
        };
        sim.sleep_true(if hangs { HANG_US } else { us }).await;
        if refused || hangs {
            return Err(error(ErrorKind::Unreachable, "no server listens there"));
        }
    }
    let mut net = lock(&sim.net);
    let node = net.primary;
    if net.nodes[node].role != Role::Primary || net.is_cut_off(pid) || net.refuses > 0 {
        return Err(error(ErrorKind::Unreachable, "the server is not the primary"));
    }
    let id = net.next_conn;
    net.next_conn += 1;
    let (run, wire) = (net.nodes[node].run.clone(), Arc::new(Wire::default()));
    let conn = Conn {
        pid,
        node,
        wire: Arc::clone(&wire),
        up: Pipe::new(),
        down: Pipe::new(),
        stalls: 0,
        is_half_open: false,
        loses_reply: false,
        is_left: false,
    };
    net.conns.insert(id, conn);
    drop(net);
    sim.note(id, || format!("{}: connection {id} is open", words::client(pid)));
    Ok((id, run, wire))
}

/// Sends a message.
pub(super) fn send(sim: &Arc<Sim>, id: u64, way: Way) {
    let mut net = lock(&sim.net);
    let us = net.delay_us();
    push(sim, &mut net, id, us, way);
}

fn push(sim: &Arc<Sim>, net: &mut Net, id: u64, us: u64, way: Way) {
    let now_us = sim.exec.now_us();
    let Some(conn) = net.conns.get_mut(&id) else { return };
    let at_us = match way {
        Way::Up { reply, ask } => conn.up.push(now_us + us, (reply, ask)),
        Way::Down(_) if conn.is_left => return,
        Way::Down(message) => conn.down.push(now_us + us, message),
    };
    pump_at(sim, id, at_us - now_us);
}

fn pump_at(sim: &Arc<Sim>, id: u64, us: u64) {
    let there = Arc::clone(sim);
    sim.exec.after(us, move || pump(&there, id));
}

/// Delivers the messages that are due.
pub(super) fn pump(sim: &Arc<Sim>, id: u64) {
    let now_us = sim.exec.now_us();
    loop {
        let mut net = lock(&sim.net);
        let Some(conn) = net.conns.get(&id) else { return };
        if net.is_blocked(conn) {
            return;
        }
        let node = conn.node;
        let Some(conn) = net.conns.get_mut(&id) else { return };
        if conn.down.is_due(now_us) {
            if let Some(message) = conn.down.pop() {
                conn.wire.arrive(message);
            }
        } else if conn.up.is_due(now_us) {
            let Some((reply, ask)) = conn.up.pop() else { return };
            receive(sim, &mut net, node, id, reply, ask);
        } else {
            return;
        }
    }
}

/// Delivers again on connections whose block has ended.
pub(super) fn unblocked(sim: &Arc<Sim>, which: impl Fn(&Conn) -> bool) {
    let ids: Vec<u64> = lock(&sim.net).conns.iter().filter(|(_, conn)| which(conn)).map(|(id, _)| *id).collect();
    ids.into_iter().for_each(|id| pump(sim, id));
}

/// A request has reached a server.
fn receive(sim: &Arc<Sim>, net: &mut Net, node: usize, id: u64, reply: Option<u64>, ask: Ask) {
    if net.nodes[node].freezes > 0 {
        net.nodes[node].pending.push_back((id, reply, ask));
        return;
    }
    carry_out(sim, net, node, id, reply, &ask);
}

/// Thaws a frozen server: it carries out the requests that have piled up, whether anyone still waits for them or not.
pub(super) fn thaw(sim: &Arc<Sim>, node: usize) {
    let mut net = lock(&sim.net);
    net.nodes[node].freezes -= 1;
    while net.nodes[node].freezes == 0 {
        let Some((id, reply, ask)) = net.nodes[node].pending.pop_front() else { return };
        carry_out(sim, &mut net, node, id, reply, &ask);
    }
}

fn carry_out(sim: &Arc<Sim>, net: &mut Net, node: usize, id: u64, reply: Option<u64>, ask: &Ask) {
    if matches!(ask, Ask::End) {
        net.nodes[node].detach(id);
        net.conns.remove(&id);
        return;
    }
    let now_us = sim.exec.now_us();
    if let Ask::Attach(session) = ask {
        // A request to subscribe that arrives after its connection is gone subscribes nothing.
        let Some(conn) = net.conns.get(&id) else { return };
        net.pids.insert(*session, conn.pid);
    }
    let Done { said, deliveries, steps, wrong } = net.nodes[node].serve(id, ask, now_us);
    if matches!(said, Reply::NoMemory) {
        sim.book.count("an acquire finds no memory");
    }
    wrong.into_iter().for_each(|what| sim.book.wrong(now_us, what));
    for (name, op, answer) in &steps {
        observe(sim, net, (node, now_us), name, op, answer);
    }
    let us = net.delay_us();
    // The pushes are sent first, as on Redis 7.0. They use other connections than the answer, or arrive before it on
    // the same connection.
    for (name, delivery) in deliveries {
        if net.rng.percent(net.lost_pushes) {
            sim.book.count("a push is lost");
            sim.note(delivery.token.get(), || format!("{}: a push of {name} is lost", net.nodes[node].run));
            continue;
        }
        sim.note(delivery.token.get(), || words::push(net, &name, &delivery));
        for to in net.nodes[node].inboxes.get(&delivery.to).cloned().unwrap_or_default() {
            let us = net.delay_us();
            push(sim, net, to, us, Way::Down(Incoming::Push((name.clone(), delivery.clone()))));
        }
    }
    let Some(reply) = reply else { return };
    if net.conns.get_mut(&id).is_some_and(|conn| std::mem::take(&mut conn.loses_reply)) {
        sim.note(id, || format!("a reply on connection {id} is lost, and the connection breaks"));
        sever(sim, net, id, Fate::Gone, us, 0);
        return;
    }
    push(sim, net, id, us, Way::Down(Incoming::Reply(reply, (said, now_us))));
}

/// Records the facts that the laboratory learns from a step of the server.
fn observe(sim: &Arc<Sim>, net: &mut Net, (node, now_us): (usize, u64), name: &Name, op: &Op, answer: &Answer) {
    sim.book.count(label(op, answer));
    if answer.rest == leasehold_spec::Rest::More {
        sim.book.count("more to settle");
    }
    if answer.handed_claim_ms.is_some() {
        sim.book.count("a hand-over");
    }
    let queued = match (op, &answer.outcome) {
        (Op::Acquire(acquire), Outcome::Queued { .. }) => Some(acquire.id),
        _ => None,
    };
    if let Some(id) = queued {
        net.queued_us.entry(id).or_insert(now_us);
    }
    if let Some(grant) = net.nodes[node].records.get(name).and_then(|record| record.grants.sole()) {
        sim.book.given(name.as_str(), grant.token.get(), now_us);
        if let Some(since_us) = net.queued_us.get(&grant.id) {
            sim.book.waited(name.as_str(), grant.token.get(), *since_us);
        }
    }
    if let (Op::Renew(renew), Outcome::Renewed { left_us }) = (op, &answer.outcome) {
        sim.book.renewed(name.as_str(), renew.token.get(), now_us);
        follow::renewed(sim, name.as_str(), renew.token.get(), *left_us);
    }
    if let (Op::Revoke { token, .. }, Outcome::Revoking { left_us }) = (op, &answer.outcome) {
        super::faults::revoked(sim, name, *token, *left_us);
    }
    holders::judge_revocation(sim, net, node, name, op, answer);
    sim.note(answer.highest.get() ^ answer.now_us, || words::step(net, node, name, op, answer));
}

/// Closes the client's end: the requests that it has sent arrive, and then the end of the stream.
pub(super) fn client_closes(sim: &Arc<Sim>, id: u64) {
    let mut net = lock(&sim.net);
    let us = net.delay_us();
    let Some(conn) = net.conns.get_mut(&id) else { return };
    if std::mem::replace(&mut conn.is_left, true) {
        return;
    }
    conn.down.clear();
    sim.note(id, || format!("connection {id} is closed by its client"));
    push(sim, &mut net, id, us, Way::Up { reply: None, ask: Ask::End });
}

/// Breaks a connection. The client notices it after `client_us`, the server after `server_us`.
pub(super) fn sever(sim: &Arc<Sim>, net: &mut Net, id: u64, fate: Fate, client_us: u64, server_us: u64) {
    let Some(conn) = net.conns.get_mut(&id) else { return };
    let (pid, node, wire) = (conn.pid, conn.node, Arc::clone(&conn.wire));
    let was_left = std::mem::replace(&mut conn.is_left, true);
    let under_way = conn.up.drain();
    let under_way_count = under_way.len() as u64;
    conn.down.clear();
    if !was_left {
        // A client that is cut off does not notice the break either.
        let client_us = if net.is_cut_off(pid) { client_us + HANG_US } else { client_us };
        sim.exec.after(client_us, move || wire.arrive(Incoming::Broken));
    }
    if let Fate::Late(us) = fate {
        for (nth, (reply, ask)) in under_way.into_iter().enumerate() {
            let there = Arc::clone(sim);
            sim.book.count("a request outlives its connection");
            sim.exec.after(us + nth as u64, move || receive(&there, &mut lock(&there.net), node, id, reply, ask));
        }
    }
    // The server ends a connection after the last request that it has read from it.
    let read_us = if let Fate::Late(us) = fate { us + under_way_count + 1 } else { 0 };
    let there = Arc::clone(sim);
    sim.exec.after(server_us.max(read_us), move || {
        let mut net = lock(&there.net);
        net.nodes[node].detach(id);
        net.conns.remove(&id);
    });
}
