//! The faults: each kind of fault, what it does, and which promise it breaks by its nature.
//!
//! Excuses are as narrow as possible. A fault that breaks no promise by its nature has no excuse, whatever follows from
//! it. A fault that breaks exclusion excuses it until the longest lease has expired that a client believed to hold at
//! the time of the fault. No fault excuses the fenced register.

use std::sync::Arc;

use leasehold_spec::{Name, Token};
use leasehold_testkit::history::Promise;

use super::aimed;
use super::book::Excuse;
use super::breaks::{self, lasting};
use super::conns::unblocked;
use super::crew::Crew;
use super::exec::{Halt, Part, Pid, lock};
use super::follow::{self, Waiter, Why};
use super::kind::Kind;
use super::net::{self, Net};
use super::node::Role;
use super::plan::MS;
use super::quorum;
use super::rng::Rng;
use super::stage::Sim;
use super::words::client;

/// Injects faults until it is time to heal.
pub(super) async fn go_wrong(sim: Arc<Sim>, crew: Arc<Crew>, mut rng: Rng) {
    let total: u64 = sim.plan.faults.iter().map(|(_, weight)| weight).sum();
    if total == 0 {
        return;
    }
    loop {
        sim.sleep_true(rng.between(1, 2 * sim.plan.fault_every_us)).await;
        if sim.exec.now_us() >= sim.plan.chaos_us {
            return;
        }
        let mut at = rng.below(total);
        let chosen = sim.plan.faults.iter().find(|(_, weight)| {
            let is_it = at < *weight;
            at = at.saturating_sub(*weight);
            is_it
        });
        if let Some((kind, _)) = chosen {
            inject(&sim, &crew, *kind, &mut rng);
        }
    }
}

fn inject(sim: &Arc<Sim>, crew: &Arc<Crew>, kind: Kind, rng: &mut Rng) {
    let is_done = match (&sim.plan.quorum, kind) {
        (_, Kind::KillHolder | Kind::PauseHolder) => aimed::inject(sim, crew, kind, rng),
        (plan, Kind::Cut | Kind::Ghosts | Kind::HalfOpen | Kind::Stall | Kind::LoseReply) => match plan {
            Some(_) => breaks::inject::<quorum::Net>(sim, kind, rng),
            None => breaks::inject::<Net>(sim, kind, rng),
        },
        (Some(settings), _) => quorum::inject(sim, crew, settings, kind, rng),
        (None, kind) if kind.is_of_a_process() => {
            crew.anybody(rng).is_some_and(|pid| process(sim, crew, kind, pid, rng))
        }
        (None, _) => server(sim, kind, rng),
    };
    if is_done {
        sim.book.count(kind.name());
    }
}

/// Returns whether the fault had anything to act on.
pub(super) fn process(sim: &Arc<Sim>, crew: &Arc<Crew>, kind: Kind, pid: Pid, rng: &mut Rng) -> bool {
    let for_us = lasting(sim, rng, 15_000 * MS);
    sim.note(pid as u64, || format!("FAULT {kind:?} of {} for {} ms", client(pid), for_us / MS));
    let there = Arc::clone(sim);
    match kind {
        Kind::Partition => {
            *lock(&sim.net).cut_off.entry(pid).or_default() += 1;
            sim.exec.after(for_us, move || {
                *lock(&there.net).cut_off.entry(pid).or_default() -= 1;
                unblocked::<Net>(&there, |conn| conn.pid == pid);
            });
        }
        Kind::Pause => {
            sim.exec.halt(pid, Halt::All);
            sim.exec.after(for_us, move || there.exec.resume(pid, Halt::All));
        }
        Kind::Block | Kind::EndRuntime => {
            let runtimes = sim.exec.runtimes(pid);
            if runtimes.is_empty() {
                return false;
            }
            let number = *rng.pick(&runtimes);
            sim.note(number as u64, || format!("  runtime {number}"));
            if kind == Kind::EndRuntime {
                return sim.exec.end_runtime(pid, number);
            }
            let blocked = Halt::Only(Part::Runtime(number));
            sim.exec.halt(pid, blocked);
            sim.exec.after(for_us, move || there.exec.resume(pid, blocked));
        }
        Kind::Suspend => {
            sim.exec.suspend(pid);
            sim.exec.after(for_us, move || there.exec.awake(pid));
        }
        Kind::Storm => crew.storm(pid),
        _ => crash(sim, crew, pid, rng),
    }
    true
}

/// Disconnects the network first: no message that a dying process still sends arrives.
pub(super) fn crash(sim: &Arc<Sim>, crew: &Arc<Crew>, pid: Pid, rng: &mut Rng) {
    for held in sim.held_by(pid) {
        let others = |waiters: Vec<Waiter>| waiters.into_iter().filter(|waiter| waiter.pid != pid).collect();
        let (know, all) = (others(sim.waiters_that_know(&held)), others(sim.waiters(&held.name)));
        follow::begins(sim, held.clone(), Why::Death, know);
        follow::begins(sim, held, Why::UnseenDeath, all);
    }
    breaks::of_process::<Net>(sim, pid, rng);
    breaks::of_process::<quorum::Net>(sim, pid, rng);
    crew.dies(pid);
    sim.exec.kill(pid);
    let (crew, again_us) = (Arc::clone(crew), rng.scaled(10 * MS, 3_000 * MS));
    sim.exec.after(again_us, move || crew.replace());
}

fn server(sim: &Arc<Sim>, kind: Kind, rng: &mut Rng) -> bool {
    let for_us = lasting(sim, rng, 8_000 * MS);
    let there = Arc::clone(sim);
    let mut net = lock(&sim.net);
    let at = net.primary;
    if net.nodes[at].role != Role::Primary {
        return false;
    }
    sim.note(at as u64, || format!("FAULT {kind:?} of {} for {} ms", net.nodes[at].run, for_us / MS));
    match kind {
        Kind::Refuse => {
            net.refuses += 1;
            sim.exec.after(for_us, move || lock(&there.net).refuses -= 1);
        }
        Kind::LosePushes => {
            net.lost_pushes = rng.between(10, 100);
            sim.exec.after(for_us, move || lock(&there.net).lost_pushes = 0);
        }
        Kind::Freeze => {
            net.nodes[at].freezes += 1;
            sim.exec.after(for_us, move || net::thaw(&there, at));
        }
        Kind::NoMemory => {
            net.nodes[at].full += 1;
            sim.exec.after(for_us, move || lock(&there.net).nodes[at].full -= 1);
        }
        Kind::JumpForward | Kind::JumpBack => {
            let by_us = rng.scaled(5 * MS, 40_000 * MS).cast_signed();
            set_clock(sim, &mut net, if kind == Kind::JumpForward { by_us } else { -by_us });
        }
        Kind::Restart | Kind::Amnesia => {
            drop(net);
            super::failover::restart(sim, kind, for_us.min(5_000 * MS), rng);
        }
        _ => {
            drop(net);
            super::failover::failover(sim, for_us, rng);
        }
    }
    true
}

/// Sets the server's clock.
pub(super) fn set_clock(sim: &Arc<Sim>, net: &mut Net, by_us: i64) {
    let node = &mut net.nodes[net.primary];
    let (before, shown_us) = (node.clock, node.clock.at_us(sim.exec.now_us()));
    node.clock.offset_us += by_us;
    sim.note(by_us.unsigned_abs(), || format!("  by {} ms", by_us / 1000));
    if by_us < 0 {
        node.relives_until_us = shown_us.max(node.relives_until_us);
        follow::set_back(sim, net.primary);
    }
    super::failover::end_early(sim, &net.nodes[net.primary], before, 0);
    super::failover::tokens_may_fall(sim, net);
    if by_us > 0 {
        sim.book.jumps(sim.exec.now_us(), by_us.unsigned_abs());
        exclusion(sim, sim.plan.lease_max_us(), "the server's clock was set forward");
    }
}

/// Excuses two holders from now on, for this time.
pub(super) fn exclusion(sim: &Sim, for_us: u64, why: &'static str) {
    excuse(sim, Promise::Exclusion, for_us, why);
}

pub(super) fn excuse(sim: &Sim, breaks: Promise, for_us: u64, why: &'static str) {
    let from_us = sim.exec.now_us();
    sim.book.excuse(Excuse { name: None, breaks, from_us, to_us: from_us + for_us, why });
}

/// Records that a grant was marked as revoked. If the holder has not been notified when the grace is over, it
/// continues, and so does the next holder.
pub(super) fn revoked(sim: &Arc<Sim>, name: &Name, token: Token, left_us: u64) {
    let (there, name) = (Arc::clone(sim), name.as_str().to_owned());
    let now_us = sim.exec.now_us();
    sim.book.revoked(&name, token.get(), now_us + left_us - left_us / 100);
    // A waiter that was just granted may not have entered yet. Its turn is spent, and it comes back behind the next
    // waiter.
    let (spent, why) = (Some(name.clone()), "a revocation spent the turn of a waiter");
    sim.book.excuse(Excuse { name: spent, breaks: Promise::Order, from_us: now_us, to_us: now_us, why });
    // Clocks differ in rate: this runs a little before the server ends the grant.
    sim.exec.after(left_us - left_us / 100, move || {
        if lock(&there.net).notified.contains(&token.get()) {
            return;
        }
        let (from_us, why) = (there.exec.now_us(), "a revocation of which its holder was not notified");
        let to_us = from_us + there.plan.lease_max_us();
        there.book.excuse(Excuse { name: Some(name), breaks: Promise::Exclusion, from_us, to_us, why });
    });
}
