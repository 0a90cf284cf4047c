//! Faults of a holder: it dies, or it stands still until an operator revokes its lease.

use std::sync::Arc;

use leasehold_spec::limits::REVOKE_GRACE_MS;

use super::crew::Crew;
use super::exec::{Halt, Pid, lock};
use super::faults::{crash, set_clock};
use super::kind::Kind;
use super::plan::MS;
use super::quorum;
use super::rng::Rng;
use super::stage::Sim;
use super::words::client;

const GRACE_US: u64 = REVOKE_GRACE_MS * MS;

/// Injects the fault into one of the holders. Returns whether there was a holder.
pub(super) fn inject(sim: &Arc<Sim>, crew: &Arc<Crew>, kind: Kind, rng: &mut Rng) -> bool {
    let holders: Vec<Pid> = crew.everybody().into_iter().filter(|pid| !sim.held_by(*pid).is_empty()).collect();
    if holders.is_empty() {
        return false;
    }
    let pid = *rng.pick(&holders);
    sim.note(pid as u64, || format!("FAULT {kind:?}: {}", client(pid)));
    if kind == Kind::PauseHolder {
        let is_revoked = rng.percent(60);
        // Mostly the holder stands still for longer than the grace: a holder that resumes within the grace releases the
        // lease.
        let least_us = if is_revoked && rng.percent(75) { GRACE_US } else { 10 * MS };
        let left_us = sim.plan.chaos_us.saturating_sub(sim.exec.now_us());
        let for_us = rng.scaled(least_us, 20_000 * MS).min(left_us);
        let there = Arc::clone(sim);
        sim.exec.halt(pid, Halt::All);
        sim.exec.after(for_us, move || there.exec.resume(pid, Halt::All));
        if is_revoked {
            let (there, crew, mut rng) = (Arc::clone(sim), Arc::clone(crew), rng.fork());
            sim.exec.after(rng.scaled(MS, 2_000 * MS), move || revoke(&there, &crew, pid, &mut rng));
        }
        return true;
    }
    crash(sim, crew, pid, rng);
    if rng.percent(70) {
        let (there, mut rng) = (Arc::clone(sim), rng.fork());
        sim.exec.after(rng.scaled(1, 1_000 * MS), move || set_back(&there, &mut rng));
    }
    true
}

/// Makes another client revoke the leases. That client may die at once.
fn revoke(sim: &Arc<Sim>, crew: &Arc<Crew>, holder: Pid, rng: &mut Rng) {
    let others: Vec<Pid> = crew.everybody().into_iter().filter(|pid| *pid != holder).collect();
    if others.is_empty() || sim.exec.now_us() >= sim.plan.chaos_us {
        return;
    }
    let pid = *rng.pick(&others);
    crew.revoke(pid);
    if rng.percent(60) {
        let (there, crew, mut rng) = (Arc::clone(sim), Arc::clone(crew), rng.fork());
        // About when the store marks the lease: the operator inspects the holders first, and then revokes.
        let soon_us = rng.between(sim.plan.trip_us(), 4 * sim.plan.trip_us());
        sim.exec.after(soon_us, move || {
            if there.exec.is_alive(pid) && there.exec.now_us() < there.plan.chaos_us {
                there.note(pid as u64, || format!("FAULT: the operator dies, {}", client(pid)));
                crash(&there, &crew, pid, &mut rng);
            }
        });
    }
}

/// Sets the clock of the store back after a holder has died.
fn set_back(sim: &Arc<Sim>, rng: &mut Rng) {
    if sim.exec.now_us() >= sim.plan.chaos_us {
        return;
    }
    match &sim.plan.quorum {
        Some(settings) => quorum::set_back(sim, settings, rng),
        None => {
            let by_us = rng.scaled(100 * MS, 20_000 * MS).cast_signed();
            set_clock(sim, &mut lock(&sim.net), -by_us);
            sim.book.count(Kind::JumpBack.name());
        }
    }
}
