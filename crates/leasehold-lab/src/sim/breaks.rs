//! Faults of connections, of any network.

use std::sync::Arc;

use super::conns::{self, Fate, Network, sever};
use super::exec::{Pid, lock};
use super::kind::Kind;
use super::plan::MS;
use super::rng::Rng;
use super::stage::Sim;

/// Returns how long a fault lasts: at most until everything is to heal.
pub(super) fn lasting(sim: &Sim, rng: &mut Rng, most_us: u64) -> u64 {
    let left_us = sim.plan.chaos_us.saturating_sub(sim.exec.now_us());
    rng.scaled(10 * MS, most_us).min(left_us)
}

/// Returns whether the fault had a connection to act on.
pub(super) fn inject<N: Network>(sim: &Arc<Sim>, kind: Kind, rng: &mut Rng) -> bool {
    let for_us = lasting(sim, rng, 10_000 * MS);
    let mut net = lock(N::of(sim));
    let open = net.conns().alive();
    if open.is_empty() {
        return false;
    }
    let id = *rng.pick(&open);
    sim.note(id, || format!("FAULT {kind:?} of connection {id}"));
    let client_us = rng.scaled(1, 200 * MS);
    let server_us = if rng.percent(70) { client_us } else { rng.scaled(MS, 5_000 * MS) };
    let there = Arc::clone(sim);
    match kind {
        Kind::Cut => sever(sim, &mut *net, id, Fate::Gone, (client_us, server_us)),
        Kind::Ghosts => {
            let late_us = rng.scaled(MS, 3_000 * MS);
            // A late request arrives after the server has noticed the break, or before.
            sever(sim, &mut *net, id, Fate::Late(late_us), (client_us, server_us.max(late_us)));
        }
        Kind::LoseReply => {
            net.conns().get(id).into_iter().for_each(|conn| conn.loses_reply = true);
        }
        Kind::HalfOpen => {
            net.conns().get(id).into_iter().for_each(|conn| conn.is_half_open = true);
            sim.exec.after(for_us, move || sever(&there, &mut *lock(N::of(&there)), id, Fate::Gone, (0, 0)));
        }
        _ => {
            let ways = N::stalled(rng);
            net.conns().get(id).into_iter().for_each(|conn| (0..2).for_each(|way| conn.stalls[way] += ways[way]));
            sim.exec.after(for_us, move || {
                let mut net = lock(N::of(&there));
                net.conns().get(id).into_iter().for_each(|conn| (0..2).for_each(|way| conn.stalls[way] -= ways[way]));
                drop(net);
                conns::pump::<N>(&there, id);
            });
        }
    }
    true
}

/// Breaks all connections of a process that dies.
pub(super) fn of_process<N: Network>(sim: &Arc<Sim>, pid: Pid, rng: &mut Rng) {
    let mut net = lock(N::of(sim));
    for id in net.conns().of(|conn| conn.pid == pid) {
        let late_us = rng.scaled(MS, 3_000 * MS);
        let fate = if rng.percent(50) { Fate::Gone } else { Fate::Late(late_us) };
        // The server notices the death of a process. It does not notice the death of a machine for this time.
        let server_us = if rng.percent(60) { MS } else { rng.scaled(100 * MS, 20_000 * MS) };
        sever(sim, &mut *net, id, fate, (0, server_us));
    }
}

/// Breaks all connections of a server that ends.
pub(super) fn of_server<N: Network>(sim: &Arc<Sim>, net: &mut N, node: usize, rng: &mut Rng) {
    for id in net.conns().of(|conn| conn.node == node) {
        let client_us = rng.scaled(1, 100 * MS);
        sever(sim, net, id, Fate::Gone, (client_us, 0));
    }
}
