//! The plan of a seed of the quorum.

use leasehold_spec::Token;
use leasehold_spec::limits::CLOCK_ERROR_MS;
use leasehold_spec::mark::Mark;
use leasehold_spec::node::{Charter, rest_ms};

use super::super::kind::Kind;
use super::super::plan::{MS, OF_RUNTIMES, Plan};
use super::super::rng::Rng;

/// The part of a plan that concerns the nodes.
#[derive(Clone, Debug)]
pub(in super::super) struct Settings {
    pub(super) nodes: usize,
    pub(in super::super) max_lease_ms: u64,
    /// Whether each node may lose acknowledged writes in a restart.
    pub(super) forgets: Vec<bool>,
    /// The delay of each node in one direction.
    pub(super) delays_us: Vec<(u64, u64)>,
    /// How far a clock may be from true time. If that exceeds the bound that the promise about tokens permits, no node
    /// of the seed forgets.
    pub(super) clocks_us: i64,
}

impl Settings {
    pub(super) const fn charter(&self) -> Charter {
        Charter { nodes: self.nodes, max_lease_ms: self.max_lease_ms }
    }

    pub(super) const fn majority(&self) -> usize {
        self.nodes / 2 + 1
    }

    /// Returns by how much a token can be ahead of all clocks at most.
    pub(super) const fn ahead_us(&self) -> u64 {
        2 * self.clocks_us.unsigned_abs()
    }

    pub(super) fn quarantine_us(&self) -> u64 {
        rest_ms(self.max_lease_ms) * MS
    }
}

/// Faults after which a node has forgotten something.
const FORGET: [Kind; 3] = [Kind::Amnesia, Kind::Flush, Kind::Rollback];

/// The plan of a seed.
pub(in super::super) fn plan(seed: u64) -> Plan {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7175_6f72_756d);
    let mut plan = Plan::of(rng.next());
    plan.seed = seed;
    // A quorum has only mutexes.
    plan.names = (0..plan.names.len()).map(|number| format!("name-{number}")).collect();
    let nodes = *rng.pick(&[3, 3, 5]);
    let near = rng.scaled(50, 20_000);
    let delay = |rng: &mut Rng| {
        let near = if rng.percent(70) { near } else { rng.scaled(50, 20_000) };
        (near, near + rng.scaled(1, near * 3))
    };
    let delays_us: Vec<(u64, u64)> = (0..nodes).map(|_| delay(&mut rng)).collect();
    // Judges of durations assume the farthest node.
    let farthest_us = delays_us.iter().map(|(_, most)| *most).max().unwrap_or(near);
    // All nodes may be nearer than most nodes of other seeds.
    plan.delay_us = (near.min(farthest_us), farthest_us);
    match rng.below(10) {
        0 => {
            // Faults occur only inside the programs, which are quick, so the nodes have to be quick, too.
            plan.faults = OF_RUNTIMES.iter().map(|kind| (*kind, rng.between(1, 6))).collect();
            (plan.hiccup_in, plan.slow_in) = (0, 0);
        }
        1 => plan.of_holders(&mut rng),
        _ => plan.faults = choose(&mut rng),
    }
    // A round has a tenth of the lease, and every message and every delay of a busy machine takes a part of it.
    let shortest_ms = (40 * plan.delay_us.1 / MS).max(if plan.hiccup_in > 0 { 2_000 } else { 300 });
    plan.leases_ms.iter_mut().for_each(|ms| *ms = (*ms).clamp(shortest_ms, 60_000));
    let longest_ms = plan.lease_max_us() / MS;
    let max_lease_ms = if rng.percent(70) { longest_ms } else { 60_000 };
    plan.drift_ppm = plan.drift_ppm.min(500);
    let is_wide = rng.percent(35);
    if is_wide {
        plan.faults.retain(|(kind, _)| !FORGET.contains(kind));
    }
    let forgets = (0..nodes).map(|_| !is_wide && rng.percent(60)).collect();
    let error_us = (CLOCK_ERROR_MS * MS).cast_signed();
    let clocks_us = if is_wide { 15 * error_us } else { error_us * 7 / 10 };
    if plan.faults.iter().any(|(kind, _)| FORGET.contains(kind) || *kind == Kind::Restart) {
        // Quarantines are long.
        plan.chaos_us = plan.chaos_us.max(30_000 * MS) * 3 / 2;
        plan.fault_every_us = plan.fault_every_us.max(1_000 * MS);
    }
    plan.quorum = Some(Settings { nodes, max_lease_ms, forgets, delays_us, clocks_us });
    plan
}

fn choose(rng: &mut Rng) -> Vec<(Kind, u64)> {
    if rng.percent(8) {
        return Vec::new();
    }
    let share = *rng.pick(&[8, 15, 30, 60]);
    let drawn = Kind::OF_QUORUM.iter().filter_map(|kind| {
        let (is_in, weight) = (rng.percent(share), rng.between(1, 6));
        is_in.then_some((*kind, weight))
    });
    let mut faults: Vec<(Kind, u64)> = drawn.collect();
    if faults.is_empty() {
        faults.push((*rng.pick(Kind::OF_QUORUM), 1));
    }
    faults
}

/// Returns by how much a token is ahead of a clock beyond what a node accepts.
pub(super) fn too_far_us(token: Token, clock_us: u64) -> u64 {
    token.get().saturating_sub(clock_us + leasehold_spec::limits::TOKEN_WINDOW_MS * MS)
}

/// The events that many seeds must meet. Otherwise the simulation has become weak.
pub(in super::super) const MUST: &[&str] = &[
    "ask: granted",
    "ask: refused",
    "ask: called before",
    "ask: below",
    "ask: late",
    "renew: renewed",
    "renew: filled",
    "renew: lost",
    "renew: revoked",
    "renew: late",
    "give back: held",
    "give back: waited",
    "give back: absent",
    "stand back",
    "pause",
    "revoke: marked",
    "settle",
    "inspect",
    "a call",
    "no vote: quarantined",
    "no vote: unmarked",
    "a majority votes",
    "a push is lost",
    "an acquire finds no memory",
    "a request outlives its connection",
    "a jump leaves no majority",
    "a node forgets",
    "all nodes are quarantined or away",
    "a write arrives after its lease",
    "a dropped future",
    "a dropped release",
    "a release on another runtime",
    "a future that continues on another runtime",
    "a runtime that its caller blocks",
    "a worker on another runtime",
    "the next waiter is served after a death",
    "the next waiter is served after a revocation",
    "a panic under the lock",
    "a re-entry",
    "released",
    "released: not held",
    "lost: expired",
    "lost: revoked",
    "error: quorum",
];

/// Paths that one seed in a thousand takes, or fewer.
pub(in super::super) const RARE: &[Mark] = &[Mark::KeptLate, Mark::RoundWonLate, Mark::StoodBackGone];
