//! Swarm testing: the plan of a seed.
//!
//! A world in which everything fails all the time shows little: if connections live for a second, a lease is never
//! renewed three times. So each seed takes a few kinds of faults and leaves out the others, and some seeds take none.
//! The sizes (the distance of the server, the lengths of leases and sections, the numbers of everything) are chosen
//! anew. So is the handing on inside clients: in some seeds many tasks of each client want one lease for a moment, all
//! of the time, and in some no client hands anything on.

use leasehold_spec::limits::{RANGE_MAX, recheck_floor_ms, run_silent_us};

use super::kind::Kind;
use super::quorum::Settings;
use super::rng::Rng;

/// A millisecond, in microseconds.
pub(super) const MS: u64 = 1000;

/// The longest that a ready task is kept waiting.
pub(super) const HICCUP_US: u64 = 20_000;

/// Faults of runtimes and of the tasks that wait on them, and of nothing else.
pub(super) const OF_RUNTIMES: &[Kind] = &[Kind::Block, Kind::EndRuntime, Kind::Storm];

/// Faults of holders, and of the clocks of the stores that keep their leases.
const OF_HOLDERS: &[Kind] = &[Kind::KillHolder, Kind::PauseHolder, Kind::JumpBack, Kind::EndRuntime];

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    /// How long faults are injected.
    pub(super) chaos_us: u64,
    pub(super) clients: u64,
    /// Tasks of each client.
    pub(super) workers: u64,
    pub(super) names: Vec<String>,
    /// How many of ten choices of a name take the first name.
    pub(super) heat: u64,
    pub(super) leases_ms: Vec<u64>,
    /// The delay in one direction: the least, and usually the most.
    pub(super) delay_us: (u64, u64),
    /// One of this many messages takes ten times as long.
    pub(super) slow_in: u64,
    /// The time between two actions of a task.
    pub(super) think_us: u64,
    pub(super) section_us: u64,
    pub(super) faults: Vec<(Kind, u64)>,
    pub(super) fault_every_us: u64,
    /// The rate of each clock differs by at most this from true time.
    pub(super) drift_ppm: i64,
    pub(super) hiccup_in: u64,
    /// How many of a hundred actions drop their future.
    pub(super) cancels: u64,
    /// How many of a hundred actions are revocations.
    pub(super) revokes: u64,
    /// How many of a hundred clients hand nothing on inside.
    pub(super) remote: u64,
    /// How many of a hundred dropped guards are dropped in a panic.
    pub(super) panics: u64,
    /// How many of a hundred actions only lock for a moment.
    pub(super) plain: u64,
    /// How many of a hundred sections last to the end of their lease.
    pub(super) lingers: u64,
    /// How many of a hundred locks may share one local queue with all others of their client.
    pub(super) alike: u64,
    /// How many of a hundred locks are sticky when they are given back.
    pub(super) sticky: u64,
    /// How many tokens a client requests at once: few, so that they run out.
    pub(super) range: u64,
    /// How many runtimes each program has.
    pub(super) runtimes: u64,
    /// How many of a hundred workers are on a thread that has no runtime.
    pub(super) threads: u64,
    /// How many of a hundred guards are given back on another runtime than the one on which they were acquired.
    pub(super) abroad: u64,
    /// How many of a hundred actions begin on one runtime and are awaited on another.
    pub(super) wanders: u64,
    /// How many of a hundred actions block their runtime.
    pub(super) blocks: u64,
    /// `None` if there is one server.
    pub(super) quorum: Option<Settings>,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x706c_616e);
        let names = (0..rng.between(1, 4)).map(|n| format!("name-{n}")).collect();
        let near = rng.scaled(50, 30_000);
        let leases_ms = match rng.below(10) {
            // Long leases, so that a waiter notices a lease that is not given back.
            0..3 => vec![60_000, 300_000],
            3..6 => vec![rng.scaled(100, 1_000), rng.scaled(500, 3_000)],
            _ => vec![rng.scaled(300, 10_000), rng.scaled(1_000, 10_000), 2_000],
        };
        let faults = Self::choose(&mut rng);
        let delay_us = (near, near + rng.scaled(1, near * 3));
        // No holder ever has a lease that ends before the message about it arrives.
        let leases_ms = leases_ms.into_iter().map(|ms: u64| ms.max(8 * delay_us.1 / 1000)).collect();
        let mut plan = Self {
            seed,
            chaos_us: rng.between(15, 60) * 1_000_000,
            clients: rng.between(2, 6),
            workers: rng.between(1, 3),
            names,
            heat: rng.between(3, 9),
            leases_ms,
            delay_us,
            slow_in: *rng.pick(&[0, 0, 20, 200]),
            think_us: rng.scaled(20_000, 3_000_000),
            section_us: rng.scaled(5_000, 3_000_000),
            fault_every_us: rng.scaled(300_000, 8_000_000),
            faults,
            drift_ppm: *rng.pick(&[0, 50, 500, 500, 4_000]),
            hiccup_in: *rng.pick(&[0, 0, 8, 50]),
            cancels: *rng.pick(&[0, 5, 20, 50]),
            revokes: *rng.pick(&[0, 0, 0, 4]),
            remote: *rng.pick(&[0, 0, 0, 50, 100]),
            panics: *rng.pick(&[0, 5, 30]),
            plain: 0,
            lingers: 30,
            alike: 0,
            sticky: *rng.pick(&[0, 0, 20]),
            range: *rng.pick(&[RANGE_MAX, RANGE_MAX, 16, 2]),
            runtimes: *rng.pick(&[1, 1, 2, 2, 3]),
            threads: *rng.pick(&[0, 0, 0, 20]),
            abroad: *rng.pick(&[0, 0, 10, 40]),
            wanders: *rng.pick(&[0, 0, 0, 8]),
            blocks: *rng.pick(&[0, 0, 0, 4]),
            quorum: None,
        };
        if rng.percent(40) {
            plan.in_line(&mut rng);
        }
        if rng.percent(8) {
            plan.of_holders(&mut rng);
        }
        plan.with_pools(&mut rng);
        if rng.percent(3) {
            plan.revoked_in_silence(&mut rng);
        }
        plan
    }

    /// Sets up a plan in which leases are revoked, and the messages about it are lost. No other client wants the lock, so
    /// the former holder learns of the loss by its next request. Then the reason that its guards report is judged.
    fn revoked_in_silence(&mut self, rng: &mut Rng) {
        self.leases_ms.truncate(1);
        self.leases_ms[0] = self.leases_ms[0].max(2_000);
        self.alone();
        (self.cancels, self.revokes) = (0, 4);
        self.faults = vec![(Kind::LosePushes, 1)];
        self.chaos_us = rng.between(4, 12) * 1_000_000;
        self.fault_every_us = rng.scaled(100_000, 2_000_000);
    }

    /// Leaves one client that always wants the lock, so local hand-over continues for as long as answers and tokens
    /// arrive.
    fn alone(&mut self) {
        (self.clients, self.workers, self.alike, self.plain) = (1, 8, 100, 100);
        (self.remote, self.panics, self.lingers) = (0, 0, 0);
        (self.think_us, self.section_us) = (1_000, 1_000);
        self.names.truncate(1);
    }

    /// Sets up a plan in which holders die, or stand still until an operator revokes; clocks are set back; and messages
    /// arrive.
    pub(super) fn of_holders(&mut self, rng: &mut Rng) {
        self.faults = OF_HOLDERS.iter().map(|kind| (*kind, rng.between(1, 6))).collect();
        // Short leases, so that the next grant after a death is made before everything heals.
        self.leases_ms = vec![rng.scaled(1_000, 8_000), *rng.pick(&[2_000, 20_000])];
        self.revokes = *rng.pick(&[0, 5]);
        if rng.percent(50) {
            // A few waiters, with re-checks that are seconds apart: if a waiter is not notified, no other waiter
            // re-checks in time.
            self.faults = vec![(Kind::PauseHolder, 4), (Kind::EndRuntime, 1)];
            self.leases_ms = vec![*rng.pick(&[20_000, 60_000])];
            (self.workers, self.revokes) = (rng.between(1, 2), 0);
        }
        self.leases_ms.iter_mut().for_each(|ms| *ms = (*ms).max(8 * self.delay_us.1 / 1000));
        self.slow_in = 0;
        self.names.truncate(2);
        self.clients = rng.between(3, 4);
        self.chaos_us = self.chaos_us.max(30_000_000);
        self.fault_every_us = self.fault_every_us.max(2_000_000);
    }

    /// Sets up many tasks of a client that want one lease for a moment. That is many steps in a second, so the run is
    /// shorter.
    fn in_line(&mut self, rng: &mut Rng) {
        self.workers = rng.between(3, 8);
        self.clients = rng.between(2, 4);
        if rng.percent(70) {
            // Near enough for many passes in the time that a client may hand on once others wait.
            let near = rng.scaled(20, 500);
            self.delay_us = (near, 2 * near);
        }
        self.leases_ms.truncate(1);
        self.alike = *rng.pick(&[50, 90, 100]);
        self.plain = *rng.pick(&[0, 50, 90]);
        self.lingers = *rng.pick(&[0, 0, 1, 5]);
        self.think_us = rng.scaled(2_000, 100_000);
        self.section_us = rng.scaled(1_000, 50_000);
        if rng.percent(25) {
            // The length of local hand-over is judged if no fault interferes.
            self.faults.clear();
            (self.slow_in, self.revokes) = (0, 0);
        }
        if rng.percent(25) {
            self.alone();
            if rng.percent(50) {
                // No fault interferes at all.
                self.faults.clear();
                (self.slow_in, self.revokes, self.cancels, self.hiccup_in) = (0, 0, 0, 0);
                (self.wanders, self.blocks) = (0, 0);
            }
        }
        self.chaos_us = rng.between(4, 12) * 1_000_000;
        self.fault_every_us = rng.scaled(100_000, 2_000_000);
    }

    /// Makes some of the names read-write locks and semaphores, in plans that are not about local hand-over.
    fn with_pools(&mut self, rng: &mut Rng) {
        if self.alike > 0 || !rng.percent(50) {
            return;
        }
        for (number, name) in self.names.iter_mut().enumerate() {
            *name = format!("{}-{number}", rng.pick(&["name", "rw", "pool"]));
        }
    }

    fn choose(rng: &mut Rng) -> Vec<(Kind, u64)> {
        if rng.percent(8) {
            return Vec::new();
        }
        if rng.percent(8) {
            // Faults occur only inside the programs.
            return OF_RUNTIMES.iter().map(|kind| (*kind, rng.between(1, 6))).collect();
        }
        let share = *rng.pick(&[8, 15, 30, 60]);
        let mut faults: Vec<(Kind, u64)> = Kind::ALL
            .iter()
            .filter_map(|kind| {
                let is_in = rng.percent(share);
                let weight = rng.between(1, 6);
                is_in.then_some((*kind, weight))
            })
            .collect();
        if faults.is_empty() {
            faults.push((*rng.pick(Kind::ALL), 1));
        }
        faults
    }

    pub(super) fn lease_max_us(&self) -> u64 {
        self.leases_ms.iter().max().copied().unwrap_or(0) * 1000
    }

    /// Returns whether nothing makes a waiter lose its turn: its inbox stays attached, its pushes come in time, and no
    /// client hands on past it. (For the limit of local hand-over see [`Worker::judge_passes`](super::worker::Worker).)
    pub(super) fn keeps_order(&self) -> bool {
        let shortest_us = self.lease_min_us();
        self.remote == 100 && self.faults.is_empty() && shortest_us.min(1_000_000) > 4 * (self.trip_us() + HICCUP_US)
    }

    /// Returns whether leases are long enough to be held at all, at such a distance.
    pub(super) fn serves(&self) -> bool {
        self.lease_min_us() > 4 * self.trip_us()
    }

    fn lease_min_us(&self) -> u64 {
        self.leases_ms.iter().min().copied().unwrap_or(0) * 1000
    }

    /// Returns whether nothing can take a lease from a holder that renews it, or keep a free lock from a waiter.
    pub(super) fn keeps_leases(&self) -> bool {
        let shortest_us = self.lease_min_us();
        let is_quick = self.slow_in == 0 && self.faults.is_empty();
        is_quick && (self.revokes, self.blocks) == (0, 0) && shortest_us > 2 * self.soon_us()
    }

    /// Returns whether no fault ever touches the store and the connections to it: everything that delays a call is in
    /// its own program.
    pub(super) fn is_well(&self) -> bool {
        // A node whose reply is late is a node that has not voted.
        let is_prompt = self.quorum.is_none() || self.hiccup_in == 0;
        // A request has a sixth of the lease for its answer.
        let has_time = self.lease_min_us() / 6 > self.answers_us();
        self.slow_in == 0 && is_prompt && has_time && self.faults.iter().all(|(kind, _)| OF_RUNTIMES.contains(kind))
    }

    /// Returns whether the store forgets nothing, and its clock only rises.
    pub(super) fn remembers(&self) -> bool {
        let forgets = [Kind::Amnesia, Kind::Failover, Kind::JumpForward, Kind::JumpBack, Kind::KillHolder];
        !self.faults.iter().any(|(kind, _)| forgets.contains(kind))
    }

    /// Returns whether every message reaches every receiver that is able to read it, and every request the store:
    /// programs die and stand still, and clocks are set back.
    pub(super) fn carries(&self) -> bool {
        let of_programs = [Kind::Pause, Kind::Suspend, Kind::Crash];
        let is_harmless =
            |kind: &Kind| OF_RUNTIMES.contains(kind) || OF_HOLDERS.contains(kind) || of_programs.contains(kind);
        self.slow_in == 0 && self.faults.iter().all(|(kind, _)| is_harmless(kind))
    }

    /// Returns the time within which a waiter re-checks (P15).
    pub(super) fn recheck_us(&self) -> u64 {
        recheck_floor_ms(self.lease_max_us() / 1000) * 1000 * 6 / 5
    }

    /// Returns the time within which a healthy store answers.
    pub(super) fn answers_us(&self) -> u64 {
        // Rounds of a quorum may lose to each other. `try_lock` tries three times, and waits for up to 6 and 12 round
        // trips in between.
        self.soon_us() + if self.quorum.is_some() { 100_000 + 20 * self.trip_us() } else { 0 }
    }

    /// Returns whether a local hand-over that is always wanted continues for as long as answers arrive, and whether
    /// they do.
    pub(super) fn is_steady(&self) -> bool {
        let is_wanted = self.clients == 1 && (self.alike, self.plain, self.cancels) == (100, 100, 0);
        is_wanted && self.keeps_leases() && run_silent_us(self.lease_min_us()) > 4 * self.soon_us()
    }

    /// Returns the time within which an immediate action is done if nothing fails: a few messages, and delays of a busy
    /// machine.
    pub(super) fn soon_us(&self) -> u64 {
        4 * self.trip_us() + if self.hiccup_in > 0 { 10 * HICCUP_US } else { 50_000 }
    }

    pub(super) fn trip_us(&self) -> u64 {
        self.delay_us.1 * 2 * if self.slow_in > 0 { 10 } else { 1 }
    }
}
