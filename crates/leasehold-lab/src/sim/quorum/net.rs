//! The network between clients and nodes, and the nodes at its end. Each direction of a connection can be blocked alone:
//! votes are split if requests arrive and their replies do not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use leasehold::seam::error;
use leasehold::{ErrorKind, Result};
use leasehold_spec::node::{Request, Rings, Said, Vote};
use leasehold_spec::{GrantId, Name, SessionId, Token, Was};

use super::super::conns::{self, Conns, HANG_US, Network, Sending, push};
use super::super::exec::{Pid, lock};
use super::super::follow::{self, Waiter, Why};
use super::super::net::drift;
use super::super::node::Clock;
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
    pub(super) conns: Conns<Route>,
    delays_us: Vec<(u64, u64)>,
    slow_in: u64,
    /// For how many reasons a client is cut off from a node.
    pub(super) cut_off: BTreeMap<(Pid, usize), u32>,
    /// How many of a hundred messages of nodes are lost.
    pub(super) lost_pushes: u64,
    /// The client of each session.
    pub(super) pids: BTreeMap<SessionId, Pid>,
    pub(super) is_calm: bool,
    /// Until then a lease may end because healing has set the clocks of a majority forward.
    pub(in super::super) set_right_until_us: u64,
    pub(super) pledges: Pledges,
    /// The nodes at which a grant was revoked.
    marked: BTreeMap<(Name, Token), BTreeSet<usize>>,
    /// The nodes that have voted for a grant, at any time.
    voted: BTreeMap<(Name, GrantId, Token), BTreeSet<usize>>,
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
            conns: Conns::new(),
            delays_us,
            slow_in: plan.slow_in,
            cut_off: BTreeMap::new(),
            lost_pushes: 0,
            pids: BTreeMap::new(),
            is_calm: false,
            set_right_until_us: 0,
            pledges,
            marked: BTreeMap::new(),
            voted: BTreeMap::new(),
        }
    }
}

impl Network for Net {
    type Route = Route;

    fn of(sim: &Sim) -> &Mutex<Self> {
        &sim.votes
    }

    fn conns(&mut self) -> &mut Conns<Route> {
        &mut self.conns
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

    /// Only requests, only replies, or both.
    fn stalled(rng: &mut Rng) -> [u32; 2] {
        *rng.pick(&[[1, 0], [0, 1], [0, 1], [1, 1]])
    }

    fn receive(&mut self, sim: &Arc<Sim>, (node, id): (usize, u64), reply: Option<u64>, ask: Query) {
        if self.nodes[node].freezes > 0 {
            self.nodes[node].pending.push_back((id, reply, ask));
        } else if self.nodes[node].downs == 0 {
            carry_out(sim, self, node, id, reply, &ask);
        }
    }

    fn detach(&mut self, node: usize, id: u64) {
        self.nodes[node].detach(id);
    }

    fn end() -> Query {
        Query::End
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
    let run = net.nodes[node].run();
    let (id, wire) = net.conns.open(pid, node);
    sim.note(id, || format!("{}: connection {id} to {} is open", client(pid), net.nodes[node].at));
    Ok((id, run, wire))
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
        net.conns.remove(id);
        return;
    }
    if let Query::Attach(session) = ask {
        // A request to subscribe that arrives after its connection is gone subscribes nothing.
        let Some(conn) = net.conns.get(id) else { return };
        net.pids.insert(*session, conn.pid);
    }
    let Done { said, bells, steps, wrong } = net.nodes[node].serve(id, ask, sim.exec.now_us());
    wrong.into_iter().for_each(|what| sim.book.wrong(sim.exec.now_us(), what));
    if matches!(said, Reply::NoMemory) {
        sim.book.count("an acquire finds no memory");
    }
    for (name, request, vote) in &steps {
        sim.book.count(label(request, vote));
        if let Request::CoolDown { for_ms, .. } = request {
            sim.book.cools(sim.exec.now_us() + for_ms * 1000);
        }
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
            push(sim, net, to, us, Sending::Down(Incoming::Push((name.clone(), bell.clone()))));
        }
    }
    let us = net.delay_us(node);
    if let Some(number) = reply {
        conns::answer(sim, net, id, us, (number, said));
    }
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
            sim.book.given(name.as_str(), token.get(), id, now_us);
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
