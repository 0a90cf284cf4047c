//! The network between clients and nodes, and the nodes at its end.
//!
//! As in the `net.rs` of one server, a connection is two ordered pipes. Messages stay in a pipe while it is blocked, or
//! are carried out seconds after the connection broke. Here each direction can be blocked alone: votes are split if
//! requests arrive and their replies do not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold::seam::error;
use leasehold::{ErrorKind, Result};
use leasehold_spec::node::{Request, Rings, Said, Vote};
use leasehold_spec::{GrantId, Name, SessionId, Token, Was};

use super::super::exec::{Pid, lock};
use super::super::follow::{self, Waiter, Why};
use super::super::net::{Fate, HANG_US, drift};
use super::super::node::Clock;
use super::super::pipe::Pipe;
use super::super::plan::Plan;
use super::super::rng::Rng;
use super::super::stage::Sim;
use super::super::wire::{Incoming, Wire};
use super::super::words::client;
use super::faults::promise_ends;
use super::pledges::Pledges;
use super::seat::Route;
use super::voter::{Done, Query, Reply, Voter, label};

pub(in super::super) struct Net {
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Voter>,
    pub(super) conns: BTreeMap<u64, Conn>,
    next_conn: u64,
    delays_us: Vec<(u64, u64)>,
    slow_in: u64,
    /// For how many reasons a client is cut off from a node.
    pub(super) cut_off: BTreeMap<(Pid, usize), u32>,
    /// How many of a hundred messages of nodes are lost.
    pub(super) lost_pushes: u64,
    /// The client of each session.
    pub(super) pids: BTreeMap<SessionId, Pid>,
    pub(super) is_calm: bool,
    pub(super) pledges: Pledges,
    /// The nodes at which a grant was revoked.
    marked: BTreeMap<(Name, Token), BTreeSet<usize>>,
    /// The nodes that have voted for a grant, at any time.
    voted: BTreeMap<(Name, GrantId, Token), BTreeSet<usize>>,
}

pub(super) struct Conn {
    pub(super) pid: Pid,
    pub(super) node: usize,
    wire: Arc<Wire<Route>>,
    up: Pipe<(Option<u64>, Query)>,
    down: Pipe<Incoming<Route>>,
    /// For how many reasons nothing flows, up and down.
    pub(super) stalls: [u32; 2],
    pub(super) is_half_open: bool,
    /// The next reply is lost, and the connection with it.
    pub(super) loses_reply: bool,
    /// The client knows that it is over.
    is_left: bool,
}

/// The direction of a message.
pub(super) enum Way {
    Up { reply: Option<u64>, ask: Query },
    Down(Incoming<Route>),
}

impl Net {
    pub(in super::super) fn new(mut rng: Rng, plan: &Plan) -> Self {
        let mut nodes = Vec::new();
        for (number, forgets) in plan.quorum.iter().flat_map(|settings| settings.forgets.iter().enumerate()) {
            let offset_us = rng.between(0, 600_000).cast_signed() - 300_000;
            let clock = Clock { offset_us, rate_ppm: drift(&mut rng, plan.drift_ppm) };
            nodes.extend(plan.quorum.as_ref().map(|s| Voter::new(number, *forgets, clock, s.charter())));
        }
        let delays_us = plan.quorum.as_ref().map(|settings| settings.delays_us.clone()).unwrap_or_default();
        let pledges = Pledges::new(nodes.len());
        Self {
            rng,
            nodes,
            conns: BTreeMap::new(),
            next_conn: 1,
            delays_us,
            slow_in: plan.slow_in,
            cut_off: BTreeMap::new(),
            lost_pushes: 0,
            pids: BTreeMap::new(),
            is_calm: false,
            pledges,
            marked: BTreeMap::new(),
            voted: BTreeMap::new(),
        }
    }

    fn is_cut_off(&self, pid: Pid, node: usize) -> bool {
        self.cut_off.get(&(pid, node)).is_some_and(|reasons| *reasons > 0)
    }

    fn delay_us(&mut self, node: usize) -> u64 {
        let (least, most) = self.delays_us[node];
        let us = self.rng.between(least, most);
        let is_slow = self.slow_in > 0 && !self.is_calm && self.rng.below(self.slow_in) == 0;
        if is_slow { us * 10 } else { us }
    }

    /// Returns the open connections of live clients.
    pub(super) fn open_conns(&self) -> Vec<u64> {
        self.conns.iter().filter(|(_, conn)| !conn.is_left && !conn.is_half_open).map(|(id, _)| *id).collect()
    }
}

/// Connects a client: this takes two round trips. Returns the number of the connection, the run ID, and the client's
/// end.
pub(super) async fn open(sim: &Arc<Sim>, pid: Pid, node: usize) -> Result<(u64, String, Arc<Wire<Route>>)> {
    for _ in 0..2 {
        let (us, refused, hangs) = {
            let mut net = lock(&sim.votes);
            let voter = &net.nodes[node];
            let refused = voter.refuses > 0 || voter.downs > 0;
            let hangs = voter.freezes > 0 || net.is_cut_off(pid, node);
            (2 * net.delay_us(node), refused, hangs)
        };
        sim.sleep_true(if hangs { HANG_US } else { us }).await;
        if refused || hangs {
            return Err(error(ErrorKind::Unreachable, "no node listens there"));
        }
    }
    let mut net = lock(&sim.votes);
    if net.nodes[node].downs > 0 || net.is_cut_off(pid, node) || net.nodes[node].refuses > 0 {
        return Err(error(ErrorKind::Unreachable, "no node listens there"));
    }
    let id = net.next_conn;
    net.next_conn += 1;
    let (run, wire) = (net.nodes[node].run(), Arc::new(Wire::default()));
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
    net.conns.insert(id, conn);
    sim.note(id, || format!("{}: connection {id} to {} is open", client(pid), net.nodes[node].at));
    Ok((id, run, wire))
}

/// Sends a message.
pub(super) fn send(sim: &Arc<Sim>, id: u64, node: usize, way: Way) {
    let mut net = lock(&sim.votes);
    let us = net.delay_us(node);
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
    let there = Arc::clone(sim);
    sim.exec.after(at_us - now_us, move || pump(&there, id));
}

/// Delivers the messages that are due.
pub(super) fn pump(sim: &Arc<Sim>, id: u64) {
    let now_us = sim.exec.now_us();
    loop {
        let mut net = lock(&sim.votes);
        let Some(conn) = net.conns.get(&id) else { return };
        if conn.is_half_open || net.is_cut_off(conn.pid, conn.node) {
            return;
        }
        let node = conn.node;
        let Some(conn) = net.conns.get_mut(&id) else { return };
        let [up, down] = conn.stalls.map(|stalls| stalls == 0);
        if down && conn.down.is_due(now_us) {
            if let Some(message) = conn.down.pop() {
                conn.wire.arrive(message);
            }
        } else if up && conn.up.is_due(now_us) {
            let Some((reply, ask)) = conn.up.pop() else { return };
            receive(sim, &mut net, node, id, reply, ask);
        } else {
            return;
        }
    }
}

/// Delivers again on connections whose block has ended.
pub(super) fn unblocked(sim: &Arc<Sim>, which: impl Fn(&Conn) -> bool) {
    let ids: Vec<u64> = lock(&sim.votes).conns.iter().filter(|(_, conn)| which(conn)).map(|(id, _)| *id).collect();
    ids.into_iter().for_each(|id| pump(sim, id));
}

/// A request has reached a node.
fn receive(sim: &Arc<Sim>, net: &mut Net, node: usize, id: u64, reply: Option<u64>, ask: Query) {
    if net.nodes[node].freezes > 0 {
        net.nodes[node].pending.push_back((id, reply, ask));
    } else if net.nodes[node].downs == 0 {
        carry_out(sim, net, node, id, reply, &ask);
    }
}

/// Thaws a frozen node: it carries out the requests that have piled up, whether anyone still waits for them or not.
pub(super) fn thaw(sim: &Arc<Sim>, node: usize) {
    let mut net = lock(&sim.votes);
    net.nodes[node].freezes -= 1;
    while net.nodes[node].freezes == 0 && net.nodes[node].downs == 0 {
        let Some((id, reply, ask)) = net.nodes[node].pending.pop_front() else { return };
        carry_out(sim, &mut net, node, id, reply, &ask);
    }
}

fn carry_out(sim: &Arc<Sim>, net: &mut Net, node: usize, id: u64, reply: Option<u64>, ask: &Query) {
    if matches!(ask, Query::End) {
        net.nodes[node].detach(id);
        net.conns.remove(&id);
        return;
    }
    if let Query::Attach(session) = ask {
        // A request to subscribe that arrives after its connection is gone subscribes nothing.
        let Some(conn) = net.conns.get(&id) else { return };
        net.pids.insert(*session, conn.pid);
    }
    let Done { said, bells, steps } = net.nodes[node].serve(id, ask, sim.exec.now_us());
    if matches!(said, Reply::NoMemory) {
        sim.book.count("an acquire finds no memory");
    }
    for (name, request, vote) in &steps {
        sim.book.count(label(request, vote));
        if let Ok(vote) = vote {
            observe(sim, net, node, name, request, vote);
        }
        let number = vote.as_ref().map_or(3, |vote| vote.highest.get() ^ vote.now_us);
        sim.note(number, || {
            let voter = &net.nodes[node];
            format!("{}: {name}: {request:?} of connection {id}: {:?}", voter.run(), vote.as_ref().map(|v| &v.said))
        });
    }
    // The messages are sent first. They use another connection than the answer, or arrive before it on the same
    // connection.
    for (name, bell) in bells {
        if bell.rings == Rings::Call {
            sim.book.count("a call");
        }
        if net.rng.percent(net.lost_pushes) {
            sim.book.count("a push is lost");
            sim.note(4, || format!("{}: {bell:?} is lost", net.nodes[node].at));
            continue;
        }
        sim.note(bell.highest.get(), || format!("{}: {name}: {bell:?}", net.nodes[node].at));
        for to in net.nodes[node].inboxes.get(&bell.to).cloned().unwrap_or_default() {
            let us = net.delay_us(node);
            push(sim, net, to, us, Way::Down(Incoming::Push((name.clone(), bell.clone()))));
        }
    }
    let us = net.delay_us(node);
    let Some(reply) = reply else { return };
    if net.conns.get_mut(&id).is_some_and(|conn| std::mem::take(&mut conn.loses_reply)) {
        sim.note(id, || format!("a reply on connection {id} is lost, and the connection breaks"));
        sever(sim, net, id, Fate::Gone, us, 0);
        return;
    }
    push(sim, net, id, us, Way::Down(Incoming::Reply(reply, said)));
}

/// Notes the facts that the laboratory learns from a step of a node.
fn observe(sim: &Arc<Sim>, net: &mut Net, node: usize, name: &Name, request: &Request, vote: &Vote) {
    let now_us = sim.exec.now_us();
    let known = match request {
        Request::Ask(ask) => match vote.said {
            Said::Granted { token, left_us, .. } => Some((ask.id, token, left_us)),
            _ => None,
        },
        Request::Renew(renewal) => match vote.said {
            Said::Renewed { left_us } | Said::Filled { left_us } => Some((renewal.id, renewal.token, left_us)),
            _ => None,
        },
        _ => None,
    };
    if let Some((id, token, left_us)) = known {
        let (grant, until_us) = ((name.clone(), id, token), now_us + left_us);
        follow::renewed(sim, name.as_str(), token.get(), left_us);
        if matches!(vote.said, Said::Filled { .. }) {
            net.pledges.keeps(node, grant.clone(), until_us);
        } else {
            let broken = net.pledges.record(node, grant.clone(), until_us, now_us);
            if broken.is_none() {
                sim.book.renewed(name.as_str(), token.get(), now_us);
            }
            promise_ends(sim, broken, "clocks that were set forward left no majority");
        }
        let majority = net.nodes.len() / 2 + 1;
        let voted = net.voted.entry(grant).or_default();
        if matches!(request, Request::Ask(_)) && voted.insert(node) && voted.len() == majority {
            sim.book.count("a majority votes");
            sim.book.given(name.as_str(), token.get(), now_us);
        }
    }
    // A revocation, and each leave of a waiter while the vote is marked, have to notify the waiters that are next (P10).
    let must_notify = matches!(vote.said, Said::Revoking { .. } | Said::GivenBack { was: Was::Queued });
    if let Some(held) = net.revoked(node, name.as_str(), now_us).filter(|_| must_notify) {
        follow::notified(sim, &held, &net.next_waiters(node, name.as_str()));
    }
    if let (Request::Revoke { token, .. }, Said::Revoking { left_us }) = (request, &vote.said) {
        let at_us = now_us + left_us - left_us / 100;
        sim.book.revoked(name.as_str(), token.get(), at_us);
        let majority = net.nodes.len() / 2 + 1;
        let marked = net.marked.entry((name.clone(), *token)).or_default();
        let is_majority = marked.insert(node) && marked.len() == majority;
        let held = net.revoked(node, name.as_str(), now_us).filter(|_| is_majority);
        if let Some(held) = held {
            let next = net.marked[&(name.clone(), *token)].iter().flat_map(|at| net.next_waiters(*at, name.as_str()));
            follow::begins(sim, held, Why::Revocation, next.map(|waiter| Waiter::new(sim, waiter)).collect());
        }
        let grants: Vec<_> =
            net.voted.keys().filter(|(known, _, won)| (known, won) == (name, token)).cloned().collect();
        for grant in grants {
            let broken = net.pledges.ends(node, grant, at_us, now_us);
            promise_ends(sim, broken, "a revocation of which its holder may not know");
        }
    }
}

/// Closes the client's end: the requests that it has sent arrive, and then the end of the stream.
pub(super) fn client_closes(sim: &Arc<Sim>, id: u64, node: usize) {
    let mut net = lock(&sim.votes);
    let us = net.delay_us(node);
    let Some(conn) = net.conns.get_mut(&id) else { return };
    if std::mem::replace(&mut conn.is_left, true) {
        return;
    }
    conn.down.clear();
    sim.note(id, || format!("connection {id} is closed by its client"));
    push(sim, &mut net, id, us, Way::Up { reply: None, ask: Query::End });
}

/// Breaks a connection. The client notices it after `client_us`, the node after `node_us`.
pub(super) fn sever(sim: &Arc<Sim>, net: &mut Net, id: u64, fate: Fate, client_us: u64, node_us: u64) {
    let Some(conn) = net.conns.get_mut(&id) else { return };
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
            sim.exec.after(us + nth as u64, move || receive(&there, &mut lock(&there.votes), node, id, reply, ask));
        }
    }
    // The node ends a connection after the last request that it has read from it.
    let read_us = if let Fate::Late(us) = fate { us + count + 1 } else { 0 };
    let there = Arc::clone(sim);
    sim.exec.after(node_us.max(read_us), move || {
        let mut net = lock(&there.votes);
        net.nodes[node].detach(id);
        net.conns.remove(&id);
    });
}
