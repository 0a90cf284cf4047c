//! Runs: a client that releases a lock and asks for it again at once may get it again while others wait.
//!
//! A hand-over to another client takes two rounds, and wakes it twice. A client that comes back takes one round, and no
//! client is woken. So in relaxed order a client that comes back is served again, within the bounds of a local run (P20):
//! once others wait, [`RUN_PASSES`] times more, and for [`run_us`] more. The steps:
//!
//! 1. A client has released the lock, others waited, and it has asked for the lock again at once. So it will probably do
//!    that again after its next release.
//! 2. That release is a *pause*: the nodes take the vote back, and call nobody. At the first pause of a run they notify the
//!    next waiters, who ask by themselves after [`NOTICE_MS`], even if this client is dead by then.
//! 3. If the client comes back, its round wins as if nobody waited. It asks only the majority that voted for it last. If it
//!    does not come back within a millisecond, the session's thread has the nodes call the next waiter.
//! 4. The release at the end of the run is an ordinary one, which calls the next waiter.
//!
//! The lock is free in a pause, so no promise depends on this file: it only chooses who is called, and when. A client that
//! does not come back at once never pauses.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_spec::limits::{RUN_PASSES, run_us};
use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::mutant::{Mutant, is_on};
use leasehold_spec::{Acquire, Contention, GrantId, Name, Order, Patience};

use super::attempts::Nodes;
use super::timers::Alarm;

/// After this time the next waiters ask by themselves. It is longer than a run with short sections, so that they need not
/// ask while the run goes on.
const NOTICE_MS: u64 = 50;
/// The longest time between a release and the next acquire of a client that comes back at once, if round trips are shorter.
const BACK_US: u64 = 200;
/// The most names with a run. More names have no runs until others are over.
const NAMES: usize = 4_096;
/// A run of which nothing happens for this long is forgotten if there are too many.
const IDLE_US: u64 = 1_000_000;

/// A release that calls nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// The time after which the next waiters ask by themselves. 0: they were notified before in this run.
    pub(super) notice_ms: u64,
}

/// The locks that this client has released while others waited.
#[derive(Default)]
pub(super) struct Runs(Mutex<HashMap<Name, Run>>);

#[derive(Default)]
struct Run {
    /// The time of the last event.
    noted_us: u64,
    /// When the client released the lock, unless it has asked again.
    released_us: Option<u64>,
    /// The attempt that came back at once after the last release, and the length of its lease.
    back: Option<(GrantId, u64)>,
    /// When the first grant of the run was made.
    began_us: Option<u64>,
    /// The number of pauses in the run.
    passes: u32,
    /// The nodes whose votes won the last round: the majority that replied first.
    near: Nodes,
    /// The attempt whose release began the pause; and, once the release has its answer, the alarm that ends the pause.
    paused: Option<(GrantId, Option<Alarm>)>,
}

impl Run {
    fn is_back(&self, id: &GrantId) -> bool {
        self.back.is_some_and(|(back, _)| back == *id)
    }
}

impl Runs {
    /// Notes that an attempt asks, which ends a pause. `rtt_us` returns a round trip to a majority.
    pub(super) fn note_ask(&self, name: &Name, acquire: &Acquire, now_us: u64, rtt_us: impl FnOnce() -> u64) {
        let mut runs = self.runs();
        let Some(run) = runs.get_mut(name) else { return };
        (run.noted_us, run.paused) = (now_us, None);
        let Some(released_us) = run.released_us.take() else { return };
        // The lease may be handed on inside this client, too: with other terms it has one token.
        let may_run =
            acquire.range > 1 && !matches!(&acquire.patience, Patience::Queue(place) if place.order == Order::Strict);
        let is_back = may_run && now_us <= released_us + rtt_us().max(BACK_US);
        run.back = is_back.then_some((acquire.id, acquire.lease_ms * 1000));
        if !is_back {
            (run.began_us, run.passes) = (None, 0);
        }
    }

    /// Notes a grant. The time of a run counts from its first grant.
    pub(super) fn note_grant(&self, name: &Name, id: &GrantId, near: Nodes, now_us: u64) {
        let mut runs = self.runs();
        if let Some(run) = runs.get_mut(name).filter(|run| run.is_back(id)) {
            run.began_us.get_or_insert(now_us);
            run.near = near;
        }
    }

    /// Returns the nodes that an attempt asks first, if it has come back in a run: those that voted for the client in its
    /// last round. A majority is enough. They are free, because the last release was a pause.
    pub(super) fn near(&self, name: &Name, id: &GrantId) -> Option<Nodes> {
        self.runs().get(name).filter(|run| run.is_back(id) && run.passes > 0).map(|run| run.near)
    }

    /// Begins a release. Returns the pause if the client is expected to come back, and may. `was_passed`: the lease was
    /// handed on inside this client, which was a run.
    pub(super) fn begin_release(&self, name: &Name, id: GrantId, was_passed: bool, now_us: u64) -> Option<Pause> {
        let mut runs = self.runs();
        let run = runs.get_mut(name)?;
        let (_, lease_us) = run.back.take().filter(|(back, _)| *back == id)?;
        run.noted_us = now_us;
        let is_over = run.passes >= RUN_PASSES || now_us >= run.began_us.unwrap_or(now_us) + run_us(lease_us);
        if was_passed || is_over && !is_on(Mutant::QRunsOn) {
            hit(Mark::QuorumRunOver);
            (run.began_us, run.passes) = (None, 0);
            return None;
        }
        hit(Mark::Paused);
        let notice_ms = if run.passes == 0 { NOTICE_MS } else { 0 };
        run.passes += 1;
        run.paused = Some((id, None));
        Some(Pause { notice_ms })
    }

    /// Notes the answer to a release, and whether others wait. `alarm` returns the alarm that ends the pause. Before the
    /// answer, a second release could overtake the pause, and the answer would be that nothing was held.
    pub(super) fn note_release(
        &self,
        name: &Name,
        id: &GrantId,
        contention: Contention,
        now_us: u64,
        alarm: impl FnOnce() -> Alarm,
    ) {
        let mut runs = self.runs();
        if contention == Contention::None {
            // An earlier release may end late: the pause of a later one stays.
            if runs.get(name).is_some_and(|run| run.paused.as_ref().is_none_or(|(paused, _)| paused == id)) {
                runs.remove(name);
            }
            return;
        }
        if runs.len() >= NAMES {
            runs.retain(|_, run| run.noted_us + IDLE_US > now_us);
        }
        if runs.len() < NAMES || runs.contains_key(name) {
            let run = runs.entry(name.clone()).or_default();
            (run.noted_us, run.released_us) = (now_us, Some(now_us));
            if let Some((_, ends)) = run.paused.as_mut().filter(|(paused, _)| paused == id) {
                *ends = Some(alarm());
            }
        }
    }

    /// Ends the pause that began with the release of this attempt. Returns whether it lasted until now.
    pub(super) fn end_pause(&self, name: &Name, id: &GrantId) -> bool {
        let mut runs = self.runs();
        let Some(run) = runs.get_mut(name) else { return false };
        let is_paused = run.paused.take_if(|(paused, _)| paused == id).is_some();
        if is_paused {
            (run.released_us, run.began_us, run.passes) = (None, None, 0);
        }
        is_paused
    }

    /// Ends all pauses, and returns the released attempts.
    pub(super) fn end_pauses(&self) -> Vec<(Name, GrantId)> {
        let mut runs = self.runs();
        let paused = |(name, run): (&Name, &mut Run)| Some((name.clone(), run.paused.take()?.0));
        runs.iter_mut().filter_map(paused).collect()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<Name, Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
