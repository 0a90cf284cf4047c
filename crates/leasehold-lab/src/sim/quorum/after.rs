//! After healing: how long the effects of faults may last, and what clients that have ended may leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_spec::Name;
use leasehold_spec::node::Granted;

use super::super::crew::Fate;
use super::super::exec::{Pid, lock};
use super::super::stage::Sim;
use super::super::words::client;
use super::faults::set_clock;
use super::settings::{Settings, too_far_us};

/// Every client is connected again after this.
const CONNECTED_US: u64 = 20_000_000;

/// Sets the clocks right again.
pub(in super::super) fn heal(sim: &Arc<Sim>) {
    let mut net = lock(&sim.votes);
    net.is_calm = true;
    let forward = net.nodes.iter().filter(|voter| voter.clock.offset_us < 0).count();
    if forward > net.nodes.len() / 2 {
        net.set_right_until_us = sim.exec.now_us() + sim.plan.lease_max_us();
    }
    for at in 0..net.nodes.len() {
        set_clock(sim, &mut net, at, 0);
    }
}

/// Returns whether healing may have ended a lease of this name: forward jumps of a majority end leases, some of them for
/// the client only (P12).
pub(in super::super) fn heal_ends(sim: &Sim, name: &str) -> bool {
    let (healed_us, now_us) = (sim.plan.chaos_us, sim.exec.now_us());
    let is_ended = || now_us < lock(&sim.votes).set_right_until_us || sim.book.is_excused(name, healed_us, now_us);
    now_us > healed_us && sim.plan.quorum.is_some() && is_ended()
}

/// Returns for how long a waiter may have to wait because of earlier faults: nodes in quarantine, leases of dead
/// clients, tokens ahead of all clocks.
pub(in super::super) fn kept(sim: &Sim, settings: &Settings, fates: &BTreeMap<Pid, Fate>) -> u64 {
    let (net, now_us) = (lock(&sim.votes), sim.exec.now_us());
    let is_alive = |session| net.pids.get(&session).is_some_and(|pid| fates.get(pid) == Some(&Fate::Alive));
    let mut longest_us = 0;
    for voter in &net.nodes {
        let clock_us = voter.clock.at_us(now_us);
        longest_us = longest_us.max(voter.quarantine_us(now_us).min(settings.quarantine_us()));
        for record in voter.records.values() {
            let is_kept = |grant: &&Granted| !grant.is_held() || !is_alive(grant.id.session);
            let grant = record.grant.as_ref().filter(is_kept);
            let ahead_us = too_far_us(record.highest, clock_us).min(settings.ahead_us());
            longest_us = longest_us.max(grant.map_or(0, |grant| grant.left_us(clock_us))).max(ahead_us);
        }
    }
    longest_us
}

/// Checks that clients that have closed left nothing.
pub(in super::super) fn residue(sim: &Sim, fates: &BTreeMap<Pid, Fate>) {
    let (net, now_us) = (lock(&sim.votes), sim.exec.now_us());
    let wrong = |what: String| sim.book.wrong(now_us, &what);
    if net.nodes.iter().any(|voter| voter.downs + voter.freezes + voter.refuses + voter.full > 0) {
        wrong("the simulation has not healed".into());
    }
    // Clients whose votes and places must be gone: they closed with everything given back, when nothing had interfered
    // for long.
    let is_clean = |pid: &Pid| {
        matches!(fates.get(pid), Some(Fate::Closed { unconfirmed, at_us, .. })
            if unconfirmed.is_empty() && *at_us > sim.plan.chaos_us + CONNECTED_US)
    };
    // If a fault has broken a connection silently, the client finds that out at the next use, perhaps by a release. If
    // the client closes at that moment, the vote stays to the end of its lease.
    let owes_nothing = |pid: &Pid| {
        is_clean(pid) && matches!(fates.get(pid), Some(Fate::Closed { has_settled: true, .. }))
            || is_clean(pid) && sim.plan.faults.is_empty()
    };
    // A client that has closed since has notified at least a majority.
    let has_gone = |pid: &Pid| {
        matches!(fates.get(pid), Some(Fate::Closed { unconfirmed, at_us, .. })
            if unconfirmed.is_empty() && *at_us > sim.plan.chaos_us)
    };
    let mut kept: BTreeMap<(&Name, Pid), usize> = BTreeMap::new();
    for voter in &net.nodes {
        for (name, record) in &voter.records {
            let lasts = |grant: &&Granted| grant.is_held() && grant.left_us(voter.clock.at_us(now_us)) > 0;
            let grant = record.grant.as_ref().filter(lasts);
            if let Some(pid) = grant.and_then(|grant| net.pids.get(&grant.id.session)).filter(|pid| has_gone(pid)) {
                *kept.entry((name, *pid)).or_default() += 1;
            }
        }
    }
    for ((name, pid), _) in kept.iter().filter(|(_, count)| **count > net.nodes.len() / 2) {
        wrong(format!("{name} is still held at a majority by {}, which has closed", client(*pid)));
    }
    for voter in &net.nodes {
        for (session, conns) in &voter.inboxes {
            if net.pids.get(session).is_none_or(is_clean) {
                wrong(format!("{}: an inbox is still attached, on connections {conns:?}", voter.at));
            }
        }
        if voter.fell_back {
            continue;
        }
        let clock_us = voter.clock.at_us(now_us);
        for (name, record) in &voter.records {
            let held = record.grant.as_ref().filter(|grant| grant.is_held() && grant.left_us(clock_us) > 0);
            let of = |grant: &Granted| net.pids.get(&grant.id.session).filter(|pid| is_clean(pid));
            if let Some((grant, pid)) = held.and_then(|grant| Some((grant, of(grant)?))) {
                sim.book.count("a vote is left behind");
                if owes_nothing(pid) && grant.since_us >= voter.relives_until_us {
                    wrong(format!("{}: {name} is still held by {}, which has closed", voter.at, client(*pid)));
                }
            }
            // A place that a node could not be notified of in time is passed over at its turn, and costs no client
            // anything.
            for (_, id) in record.queue.keys() {
                let Some(pid) = net.pids.get(&id.session).filter(|pid| is_clean(pid)) else { continue };
                sim.book.count("a place is left behind");
                if sim.plan.faults.is_empty() {
                    wrong(format!("{}: {} has closed, and still waits for {name}", voter.at, client(*pid)));
                }
            }
        }
    }
}
