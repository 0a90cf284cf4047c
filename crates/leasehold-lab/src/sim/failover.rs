//! Servers that are replaced: a restart, with the data or without, and a replica that takes over.

use std::sync::Arc;

use leasehold_testkit::history::Promise;

use super::breaks;
use super::exec::lock;
use super::faults::{exclusion, excuse};
use super::kind::Kind;
use super::net::Net;
use super::node::{Clock, Node, Role};
use super::plan::MS;
use super::rng::Rng;
use super::stage::Sim;

/// The client uses the tokens that were reserved with the lease, and the next holder already has larger ones.
const FORGOTTEN_LEASE: &str = "a client hands on a lease that the server has forgotten";

/// The time for which a client hands on without an answer from the store (P20). Clocks differ in rate.
fn hand_over_us(sim: &Sim) -> u64 {
    let hand_over_us = (sim.plan.lease_max_us() / 3).min(1_000 * MS);
    hand_over_us + hand_over_us / 50
}

/// Ends the server, and starts it again with a new run ID.
pub(super) fn restart(sim: &Arc<Sim>, kind: Kind, down_us: u64, rng: &mut Rng) {
    let mut net = lock(&sim.net);
    let old = net.primary;
    break_all(sim, &mut net, old, rng);
    net.nodes[old].role = Role::Down;
    let (run, clock) = (format!("run {}", net.nodes.len() + 1), net.nodes[old].clock);
    let mut node = match kind {
        Kind::Amnesia => Node::new(run, clock),
        _ => net.nodes[old].promoted(run, clock, u64::MAX),
    };
    node.role = Role::Down;
    let highest = net.nodes[old].highest();
    let new = net.nodes.len();
    net.nodes.push(node);
    net.primary = new;
    drop(net);
    if kind == Kind::Amnesia {
        exclusion(sim, down_us + sim.plan.lease_max_us(), "the server restarted without its data");
        excuse(sim, Promise::Tokens, hand_over_us(sim), FORGOTTEN_LEASE);
        forgets(sim, highest);
    }
    let there = Arc::clone(sim);
    sim.exec.after(down_us, move || lock(&there.net).nodes[new].role = Role::Primary);
}

/// Makes a replica take over that lacks the last writes. The old primary may continue for a while with the clients that
/// are connected to it, and is a replica then.
pub(super) fn failover(sim: &Arc<Sim>, for_us: u64, rng: &mut Rng) {
    let now_us = sim.exec.now_us();
    let elect_us = rng.scaled(50 * MS, 3_000 * MS).min(for_us);
    let goes_on = rng.percent(50);
    let split_us = if goes_on { for_us } else { 0 };
    let tail_us = if rng.percent(30) { 0 } else { rng.scaled(MS, 2_000 * MS) };
    let skew_us = if rng.percent(50) { 0 } else { rng.scaled(1, 500 * MS).cast_signed() };
    let skew_us = if rng.percent(50) { skew_us } else { -skew_us };
    let mut net = lock(&sim.net);
    let (old, new) = (net.primary, net.nodes.len());
    let old_clock = net.nodes[old].clock;
    let clock = Clock { offset_us: net.nodes[old].clock.offset_us + skew_us, ..net.nodes[old].clock };
    let since_us = if tail_us == 0 { u64::MAX } else { now_us.saturating_sub(tail_us) };
    let mut node = net.nodes[old].promoted(format!("run {}", new + 1), clock, since_us);
    node.role = Role::Down;
    end_early(sim, &node, old_clock, split_us);
    let highest = net.nodes[old].highest();
    net.nodes.push(node);
    net.primary = new;
    if !goes_on {
        break_all(sim, &mut net, old, rng);
        net.nodes[old].role = Role::Down;
    }
    drop(net);
    sim.note(skew_us.unsigned_abs(), || {
        format!(
            "  the last {} ms are lost, the clock differs by {skew_us} µs, both serve for {} ms",
            tail_us / MS,
            split_us / MS
        )
    });
    exclusion(sim, split_us.max(elect_us) + sim.plan.lease_max_us(), "a failover");
    if (goes_on && skew_us != 0) || skew_us.unsigned_abs() > elect_us {
        let for_us = split_us + elect_us + skew_us.unsigned_abs();
        excuse(sim, Promise::Tokens, for_us, "two lineages whose clocks differ");
    }
    if goes_on || tail_us > 0 {
        excuse(sim, Promise::Tokens, split_us + hand_over_us(sim), FORGOTTEN_LEASE);
    }
    // The old primary may grant by its own clock until that is over.
    forgets(sim, highest.max(old_clock.at_us(now_us)) + split_us);
    let there = Arc::clone(sim);
    sim.exec.after(elect_us, move || lock(&there.net).nodes[new].role = Role::Primary);
    if goes_on {
        sim.book.count("an old primary continues");
        let there = Arc::clone(sim);
        sim.exec.after(split_us, move || lock(&there.net).nodes[old].role = Role::Replica);
    }
}

/// The server's clock is ahead of its former time, so the server ends its grants earlier by that difference. A client
/// that does not know this hands on inside itself, for as long as P20 lets it do so without an answer, from
/// `silent_from_us` on.
pub(super) fn end_early(sim: &Sim, node: &Node, before: Clock, silent_from_us: u64) {
    let now_us = sim.exec.now_us();
    let (was_us, is_us) = (before.at_us(now_us), node.clock.at_us(now_us));
    for (name, record) in node.records.iter().filter(|_| is_us > was_us) {
        for grant in record.grants.iter() {
            let [left_us, said_us] = [is_us, was_us].map(|clock_us| grant.left_us(clock_us));
            let to_us = now_us + said_us.min(silent_from_us + hand_over_us(sim));
            sim.book.ended_early(name.as_str(), grant.token.get(), (now_us + left_us, to_us));
        }
    }
}

/// Records that a token of this height was forgotten. Tokens can fall while it is ahead of the clock, which was set
/// back before or is set back later.
fn forgets(sim: &Sim, highest: u64) {
    let mut net = lock(&sim.net);
    net.forgotten = net.forgotten.max(highest);
    tokens_may_fall(sim, &net);
}

/// Excuses falling tokens. The caller must call this after each change of the clock, too.
pub(super) fn tokens_may_fall(sim: &Sim, net: &Net) {
    let clock_us = net.nodes[net.primary].clock.at_us(sim.exec.now_us());
    let ahead_us = net.forgotten.saturating_sub(clock_us);
    if ahead_us > 0 {
        excuse(sim, Promise::Tokens, ahead_us + ahead_us / 100, "a forgotten token is ahead of the clock");
    }
}

fn break_all(sim: &Arc<Sim>, net: &mut Net, node: usize, rng: &mut Rng) {
    breaks::of_server(sim, net, node, rng);
    net.nodes[node].pending.clear();
    net.nodes[node].inboxes.clear();
}
