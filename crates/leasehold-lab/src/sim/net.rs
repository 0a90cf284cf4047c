//! The network of one server, and the server at its end.
//!
//! Only this module and `faults.rs` know the state of the network; a client has its end of the connection and nothing
//! else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use leasehold::ErrorKind;
use leasehold::Result;
use leasehold::seam::error;
use leasehold_spec::{Answer, GrantId, Name, Op, Order, Outcome, SessionId, Was};

use super::book::Grant;
use super::conns::{self, Conns, HANG_US, Network, Sending, push};
use super::exec::{Pid, lock};
use super::follow;
use super::holders;
use super::link::Route;
use super::node::{Ask, Clock, Done, Node, Reply, Role, label};
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
    pub(super) conns: Conns<Route>,
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

impl Net {
    pub(super) fn new(mut rng: Rng, plan: &Plan) -> Self {
        let clock = Clock { offset_us: 0, rate_ppm: drift(&mut rng, plan.drift_ppm) };
        Self {
            nodes: vec![Node::new("run 1".into(), clock)],
            rng,
            primary: 0,
            conns: Conns::new(),
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

    /// Returns the grant of the server to which this hold belongs, as the server has it now.
    pub(super) fn hand_over_of(&self, hold: &Grant) -> Option<HandOver> {
        let records = &self.nodes[self.primary].records;
        let (_, record) = records.iter().find(|(name, _)| name.as_str() == hold.name)?;
        let is_its = |grant: &&leasehold_spec::Grant| {
            grant.is_held() && (!record.kind.is_pool() || grant.token.get() == hold.token)
        };
        let grant = record.grants.iter().find(is_its)?;
        let (token, last) = (grant.token.get(), grant.reserved().get());
        let since_us = |orders: &[Order]| {
            let waits = record.queue.iter().filter(|entry| orders.contains(&entry.order));
            waits.filter_map(|entry| self.queued_us.get(&entry.id)).min().copied().unwrap_or(u64::MAX / 2)
        };
        let (waited_us, strict_us) = (since_us(&[Order::Relaxed, Order::Strict]), since_us(&[Order::Strict]));
        let run = HandOver { token, waited_us, strict_us };
        (token <= hold.token && hold.token <= last).then_some(run)
    }
}

impl Network for Net {
    type Route = Route;

    fn of(sim: &Sim) -> &Mutex<Self> {
        &sim.net
    }

    fn conns(&mut self) -> &mut Conns<Route> {
        &mut self.conns
    }

    fn is_cut_off(&self, pid: Pid, _: usize) -> bool {
        self.cut_off.get(&pid).is_some_and(|reasons| *reasons > 0)
    }

    fn delay_us(&mut self, _: usize) -> u64 {
        let us = self.rng.between(self.delay_us.0, self.delay_us.1);
        let is_slow = self.slow_in > 0 && !self.is_calm && self.rng.below(self.slow_in) == 0;
        if is_slow { us * 10 } else { us }
    }

    fn stalled(_: &mut Rng) -> [u32; 2] {
        [1, 1]
    }

    fn receive(&mut self, sim: &Arc<Sim>, (node, id): (usize, u64), reply: Option<u64>, ask: Ask) {
        if self.nodes[node].freezes > 0 {
            self.nodes[node].pending.push_back((id, reply, ask));
        } else {
            carry_out(sim, self, node, id, reply, &ask);
        }
    }

    fn detach(&mut self, node: usize, id: u64) {
        self.nodes[node].detach(id);
    }

    fn end() -> Ask {
        Ask::End
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
            let hangs = net.is_cut_off(pid, net.primary) || node.freezes > 0;
            (2 * net.delay_us(0), refused, hangs)
        };
        sim.sleep_true(if hangs { HANG_US } else { us }).await;
        if refused || hangs {
            return Err(error(ErrorKind::Unreachable, "no server listens there"));
        }
    }
    let mut net = lock(&sim.net);
    let node = net.primary;
    if net.nodes[node].role != Role::Primary || net.is_cut_off(pid, node) || net.refuses > 0 {
        return Err(error(ErrorKind::Unreachable, "the server is not the primary"));
    }
    let run = net.nodes[node].run.clone();
    let (id, wire) = net.conns.open(pid, node);
    drop(net);
    sim.note(id, || format!("{}: connection {id} is open", words::client(pid)));
    Ok((id, run, wire))
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
        net.conns.remove(id);
        return;
    }
    let now_us = sim.exec.now_us();
    if let Ask::Attach(session) = ask {
        // A request to subscribe that arrives after its connection is gone subscribes nothing.
        let Some(conn) = net.conns.get(id) else { return };
        net.pids.insert(*session, conn.pid);
    }
    let Done { said, deliveries, steps, wrong } = net.nodes[node].serve(id, ask, now_us);
    if matches!(said, Reply::NoMemory) {
        sim.book.count("an acquire finds no memory");
    }
    if let Reply::Each(each) = &said
        && each.iter().any(|(_, said)| matches!(said, Reply::SendAlone))
    {
        sim.book.count("a message of several requests is refused");
    }
    wrong.into_iter().for_each(|what| sim.book.wrong(now_us, what));
    for (name, op, answer) in &steps {
        observe(sim, net, (node, now_us), name, op, answer);
    }
    let us = net.delay_us(node);
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
            let us = net.delay_us(node);
            push(sim, net, to, us, Sending::Down(Incoming::Push((name.clone(), delivery.clone()))));
        }
    }
    match (reply, said) {
        (None, _) => {}
        (Some(_), Reply::Each(each)) => {
            conns::answer_all(sim, net, id, us, each.into_iter().map(|(number, said)| (number, (said, now_us))));
        }
        (Some(number), said) => conns::answer(sim, net, id, us, (number, (said, now_us))),
    }
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
    for grant in net.nodes[node].records.get(name).into_iter().flat_map(|record| record.grants.iter()) {
        sim.book.given(name.as_str(), grant.token.get(), grant.id, now_us);
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
    if let (Op::CoolDown { for_ms, .. }, Outcome::Left { was: Was::Granted }) = (op, &answer.outcome) {
        sim.book.cools(now_us + for_ms * 1000);
    }
    holders::judge_revocation(sim, net, node, name, op, answer);
    sim.note(answer.highest.get() ^ answer.now_us, || words::step(net, node, name, op, answer));
}
