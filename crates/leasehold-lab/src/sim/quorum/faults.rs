//! Faults of nodes and of the connections to them. The faults of clients are those of one server: the other
//! `faults.rs`.

use std::sync::Arc;

use leasehold_testkit::history::Promise;

use super::super::book::Excuse;
use super::super::breaks::{self, lasting};
use super::super::conns::unblocked;
use super::super::crew::Crew;
use super::super::exec::{Pid, lock};
use super::super::faults::process;
use super::super::follow;
use super::super::kind::Kind;
use super::super::plan::MS;
use super::super::rng::Rng;
use super::super::stage::Sim;
use super::net::{self, Net};
use super::pledges::Broken;
use super::settings::Settings;

/// Returns whether the fault had anything to act on.
pub(in super::super) fn inject(
    sim: &Arc<Sim>,
    crew: &Arc<Crew>,
    settings: &Settings,
    kind: Kind,
    rng: &mut Rng,
) -> bool {
    match kind {
        Kind::Partition => crew.anybody(rng).is_some_and(|pid| {
            partition(sim, &[pid], settings, rng);
            true
        }),
        Kind::Isolate => {
            partition(sim, &crew.everybody(), settings, rng);
            true
        }
        kind if kind.is_of_a_process() => crew.anybody(rng).is_some_and(|pid| process(sim, crew, kind, pid, rng)),
        _ => node(sim, settings, kind, rng),
    }
}

/// Cuts these clients off from some nodes.
fn partition(sim: &Arc<Sim>, pids: &[Pid], settings: &Settings, rng: &mut Rng) {
    let for_us = lasting(sim, rng, 15_000 * MS);
    let from = rng.between(0, settings.nodes as u64 - 1) as usize;
    let count = rng.between(1, settings.nodes as u64) as usize;
    let nodes: Vec<usize> = (0..count).map(|nth| (from + nth) % settings.nodes).collect();
    sim.note(from as u64, || format!("FAULT clients {pids:?} are cut off from {nodes:?} for {} ms", for_us / MS));
    let pairs: Vec<(Pid, usize)> = pids.iter().flat_map(|pid| nodes.iter().map(|node| (*pid, *node))).collect();
    {
        let mut net = lock(&sim.votes);
        pairs.iter().for_each(|pair| *net.cut_off.entry(*pair).or_default() += 1);
    }
    let there = Arc::clone(sim);
    sim.exec.after(for_us, move || {
        {
            let mut net = lock(&there.votes);
            pairs.iter().for_each(|pair| *net.cut_off.entry(*pair).or_default() -= 1);
        }
        unblocked::<Net>(&there, |conn| pairs.contains(&(conn.pid, conn.node)));
    });
}

fn node(sim: &Arc<Sim>, settings: &Settings, kind: Kind, rng: &mut Rng) -> bool {
    let for_us = lasting(sim, rng, 8_000 * MS);
    let (there, now_us) = (Arc::clone(sim), sim.exec.now_us());
    let mut net = lock(&sim.votes);
    let at = rng.below(settings.nodes as u64) as usize;
    let out = net.nodes.iter().filter(|voter| voter.is_out(now_us)).count();
    let forgets = match kind {
        Kind::Amnesia | Kind::Flush | Kind::Rollback => true,
        Kind::Restart => net.nodes[at].forgets,
        _ => false,
    };
    // Mostly, after one node was lost, the next one is lost only after the quarantine of the first.
    if forgets && out + 1 >= settings.majority() && rng.percent(80) {
        return false;
    }
    if kind == Kind::Rollback && !net.nodes[at].forgets {
        return false;
    }
    sim.note(at as u64, || format!("FAULT {kind:?} of {} for {} ms", net.nodes[at].run(), for_us / MS));
    if forgets {
        sim.book.count("a node forgets");
    }
    match kind {
        Kind::Refuse => {
            net.nodes[at].refuses += 1;
            sim.exec.after(for_us, move || lock(&there.votes).nodes[at].refuses -= 1);
        }
        Kind::LosePushes => {
            net.lost_pushes = rng.between(10, 100);
            sim.exec.after(for_us, move || lock(&there.votes).lost_pushes = 0);
        }
        Kind::Freeze => {
            net.nodes[at].freezes += 1;
            sim.exec.after(for_us, move || net::thaw(&there, at));
        }
        Kind::NoMemory => {
            net.nodes[at].full += 1;
            sim.exec.after(for_us, move || lock(&there.votes).nodes[at].full -= 1);
        }
        Kind::Flush => {
            net.nodes[at].is_emptied();
        }
        Kind::JumpForward | Kind::JumpBack => {
            return jump(sim, settings, &mut net, at, kind == Kind::JumpForward, rng);
        }
        _ => {
            let tail_us = rng.scaled(MS, 3_000 * MS);
            restart(sim, &mut net, at, rng);
            match kind {
                Kind::Amnesia => net.nodes[at].is_emptied(),
                Kind::Rollback => net.nodes[at].falls_back(now_us.saturating_sub(tail_us)),
                _ => {}
            }
            sim.exec.after(for_us.min(5_000 * MS), move || lock(&there.votes).nodes[at].downs -= 1);
        }
    }
    if net.nodes.iter().all(|voter| voter.is_out(now_us)) {
        sim.book.count("all nodes are quarantined or away");
    }
    true
}

/// Sets a node's clock by some time, as far as the bounds permit.
fn jump(sim: &Arc<Sim>, settings: &Settings, net: &mut Net, at: usize, is_forward: bool, rng: &mut Rng) -> bool {
    let (offset_us, most_us) = (net.nodes[at].clock.offset_us, settings.clocks_us);
    let room_us = if is_forward { most_us - offset_us } else { most_us + offset_us };
    if room_us < 10_000 {
        return false;
    }
    let by_us = rng.scaled(5 * MS, room_us.unsigned_abs().max(5 * MS)).cast_signed();
    set_clock(sim, net, at, offset_us + if is_forward { by_us } else { -by_us });
    true
}

/// Sets back the clocks of some nodes: of one, or of all.
pub(in super::super) fn set_back(sim: &Arc<Sim>, settings: &Settings, rng: &mut Rng) {
    let mut net = lock(&sim.votes);
    let count = rng.between(1, settings.nodes as u64) as usize;
    let first = rng.below(settings.nodes as u64) as usize;
    for at in (first..first + count).map(|at| at % settings.nodes) {
        jump(sim, settings, &mut net, at, false, rng);
    }
}

fn restart(sim: &Arc<Sim>, net: &mut Net, at: usize, rng: &mut Rng) {
    breaks::of_server(sim, net, at, rng);
    net.nodes[at].restarts();
    net.nodes[at].downs += 1;
}

/// Sets a node's clock.
pub(super) fn set_clock(sim: &Arc<Sim>, net: &mut Net, at: usize, offset_us: i64) {
    let by_us = offset_us - net.nodes[at].clock.offset_us;
    if by_us < 0 {
        let shown_us = net.nodes[at].clock.at_us(sim.exec.now_us());
        net.nodes[at].relives_until_us = shown_us.max(net.nodes[at].relives_until_us);
        follow::set_back(sim, at);
    }
    net.nodes[at].clock.offset_us = offset_us;
    sim.note(by_us.unsigned_abs(), || format!("  {}: by {} ms", net.nodes[at].at, by_us / 1000));
    if by_us > 0 {
        for broken in net.pledges.jumps(at, by_us.unsigned_abs(), sim.exec.now_us()) {
            sim.book.count("a jump leaves no majority");
            promise_ends(sim, Some(broken), "clocks that were set forward left no majority");
        }
    }
}

/// Excuses two holders for a while.
pub(super) fn promise_ends(sim: &Sim, broken: Option<Broken>, why: &'static str) {
    let Some(Broken { name, token, from_us, to_us }) = broken else { return };
    sim.book.ended_early(name.as_str(), token.get(), (from_us, to_us));
    let name = Some(name.as_str().to_owned());
    sim.book.excuse(Excuse { name, breaks: Promise::Exclusion, from_us, to_us, why });
}
