//! Runs: a client that releases a lock and asks for it again at once may get it again while others wait.
//!
//! A hand-over to another client takes two rounds, and wakes it twice. A client that comes back takes one round, and no
//! client is woken. So in relaxed order a client that comes back is served again, within the bounds of a local run (P20):
//! at most [`RUN_PASSES`] times and for at most [`run_us`] while others wait. The steps:
//!
//! 1. A client has released the lock, others waited, and it has asked for the lock again at once. So it will probably do
//!    that again after its next release.
//! 2. That release is a *pause*: the nodes take the vote back, and call nobody. At the first pause of a run they notify the
//!    next waiters, who ask by themselves after [`NOTICE_MS`], even if this client is dead by then.
//! 3. If the client comes back, its round wins as if nobody waited. It asks only the majority that voted for it last. If it
//!    does not come back within a millisecond, the session's thread has the nodes call the next waiter.
//! 4. If the client then holds for as long as a run may last, it asks the other nodes, too. With their votes it survives
//!    the loss of a node.
//! 5. The release at the end of the run is an ordinary one, which calls the next waiter.
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
/// A client comes back if it asks again within this time after its release was answered, or within a round trip if that is
/// longer.
const BACK_US: u64 = 200;
/// A pause lasts this long after its answer, unless the client asks again before.
const PAUSE_US: u64 = 1_000;
/// The most names with a run. More names have no runs until others are over.
const NAMES: usize = 4_096;
/// A run of which nothing happens for this long is forgotten if there are too many. A pause without an answer is given up
/// after this time.
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
    bounds: Bounds,
    /// The nodes whose votes won the last round: the majority that replied first.
    last_voters: Nodes,
    state: State,
}

/// How long a run has lasted.
#[derive(Default)]
struct Bounds {
    /// When the first grant of the run was made.
    began_us: Option<u64>,
    /// The number of pauses.
    passes: u32,
}

#[derive(Default)]
enum State {
    /// No run goes on: a pause has ended, the client came back late, or its release has no answer yet.
    #[default]
    Idle,
    /// The client has released the lock, and has not asked for it again.
    Released { at_us: u64 },
    /// The release of this attempt began a pause. `since_us`: when it began, and then when it was answered. The alarm ends
    /// the pause. Before the answer, a second release could overtake the pause, and the answer to it would be that nothing
    /// was held. So no alarm is set until then.
    Paused { id: GrantId, since_us: u64, alarm: Option<Alarm> },
    /// This attempt came back at once after the last release. If it was granted by a bare majority, the client asks the
    /// other nodes when the alarm rings.
    Back { id: GrantId, lease_ms: u64, others: Option<Alarm> },
}

impl Bounds {
    fn is_over(&self, lease_us: u64, now_us: u64) -> bool {
        self.passes >= RUN_PASSES || now_us >= self.began_us.unwrap_or(now_us) + run_us(lease_us)
    }
}

impl Run {
    fn is_back(&self, id: &GrantId) -> bool {
        matches!(&self.state, State::Back { id: back, .. } if back == id)
    }

    fn is_paused_by(&self, id: &GrantId) -> bool {
        matches!(&self.state, State::Paused { id: paused, .. } if paused == id)
    }

    fn is_back_or_paused(&self) -> bool {
        matches!(self.state, State::Back { .. } | State::Paused { .. })
    }

    /// Ends the pause and the run, and returns the attempt whose release began the pause.
    fn end_pause(&mut self) -> Option<GrantId> {
        let State::Paused { id, .. } = self.state else { return None };
        (self.state, self.bounds) = (State::Idle, Bounds::default());
        Some(id)
    }
}

impl Runs {
    /// Notes that an attempt asks. This ends a pause whose release was answered. `rtt_us` returns the round-trip time to a
    /// majority.
    pub(super) fn note_ask(&self, name: &Name, acquire: &Acquire, now_us: u64, rtt_us: impl FnOnce() -> u64) {
        let mut runs = self.runs();
        let Some(run) = runs.get_mut(name) else { return };
        let released_us = match &run.state {
            State::Released { at_us } => *at_us,
            // This attempt may overtake the pause, lose, and wait. So the pause ends after its answer.
            State::Paused { alarm: None, since_us, .. } if since_us + IDLE_US > now_us => return,
            // Without an answer until now, the runtime of the release has probably ended.
            State::Paused { since_us, .. } => *since_us,
            State::Idle | State::Back { .. } => return,
        };
        run.noted_us = now_us;
        // A range of one token means that the lease must not be handed on inside this client. It has no run either.
        let may_run =
            acquire.range > 1 && !matches!(&acquire.patience, Patience::Queue(place) if place.order == Order::Strict);
        if may_run && now_us <= released_us + rtt_us().max(BACK_US) {
            run.state = State::Back { id: acquire.id, lease_ms: acquire.lease_ms, others: None };
        } else {
            (run.state, run.bounds) = (State::Idle, Bounds::default());
        }
    }

    /// Notes a grant. The time of a run counts from its first grant. `alarm(at_us, lease_ms)` returns an alarm. When it
    /// rings, the client asks the nodes that have not voted.
    pub(super) fn note_grant(
        &self,
        name: &Name,
        id: &GrantId,
        voters: Nodes,
        now_us: u64,
        alarm: impl FnOnce(u64, u64) -> Alarm,
    ) {
        let mut runs = self.runs();
        let Some(run) = runs.get_mut(name).filter(|run| run.is_back(id)) else { return };
        run.bounds.began_us.get_or_insert(now_us);
        run.last_voters = voters;
        if let State::Back { lease_ms, others, .. } = &mut run.state
            && run.bounds.passes > 0
            && !is_on(Mutant::QKeepsBareMajority)
        {
            *others = Some(alarm(now_us + run_us(*lease_ms * 1000), *lease_ms));
        }
    }

    /// Returns the nodes that an attempt asks first, if it has come back in a run: those that voted for the client in its
    /// last round. A majority is enough. They are free, because the last release was a pause.
    pub(super) fn last_voters(&self, name: &Name, id: &GrantId) -> Option<Nodes> {
        self.runs().get(name).filter(|run| run.is_back(id) && run.bounds.passes > 0).map(|run| run.last_voters)
    }

    /// Begins a release. Returns the pause if the client is expected to come back, and may. `was_passed`: the lease was
    /// handed on inside this client, which was a run.
    pub(super) fn begin_release(&self, name: &Name, id: GrantId, was_passed: bool, now_us: u64) -> Option<Pause> {
        let mut runs = self.runs();
        let run = runs.get_mut(name)?;
        let State::Back { id: back, lease_ms, .. } = run.state else { return None };
        run.state = State::Idle;
        if back != id {
            run.bounds = Bounds::default();
            return None;
        }
        run.noted_us = now_us;
        if was_passed || run.bounds.is_over(lease_ms * 1000, now_us) && !is_on(Mutant::QRunsOn) {
            hit(Mark::QuorumRunOver);
            run.bounds = Bounds::default();
            return None;
        }
        hit(Mark::Paused);
        let notice_ms = if run.bounds.passes == 0 { NOTICE_MS } else { 0 };
        run.bounds.passes += 1;
        run.state = State::Paused { id, since_us: now_us, alarm: None };
        Some(Pause { notice_ms })
    }

    /// Notes the answer to a release, and whether others wait. `alarm` returns an alarm that ends a pause at that time.
    pub(super) fn note_release(
        &self,
        name: &Name,
        id: &GrantId,
        contention: Contention,
        now_us: u64,
        alarm: impl FnOnce(u64) -> Alarm,
    ) {
        let mut runs = self.runs();
        if contention == Contention::None {
            // An earlier release may end late: what came after it stays.
            if runs.get(name).is_some_and(|run| !run.is_back_or_paused() || run.is_paused_by(id)) {
                runs.remove(name);
            }
            return;
        }
        if runs.len() >= NAMES {
            runs.retain(|_, run| run.noted_us + IDLE_US > now_us);
        }
        if runs.len() >= NAMES && !runs.contains_key(name) {
            return;
        }
        let run = runs.entry(name.clone()).or_default();
        run.noted_us = now_us;
        match &mut run.state {
            State::Paused { id: paused, since_us, alarm: ends } if paused == id => {
                (*since_us, *ends) = (now_us, Some(alarm(now_us + PAUSE_US)));
            }
            // An earlier release ends late.
            State::Paused { .. } | State::Back { .. } => {}
            state @ (State::Idle | State::Released { .. }) => *state = State::Released { at_us: now_us },
        }
    }

    /// Ends the pause that began with the release of this attempt. Returns whether it lasted until now.
    pub(super) fn end_pause(&self, name: &Name, id: &GrantId) -> bool {
        self.runs().get_mut(name).filter(|run| run.is_paused_by(id)).and_then(Run::end_pause).is_some()
    }

    /// Ends all pauses, and returns the released attempts.
    pub(super) fn end_pauses(&self) -> Vec<(Name, GrantId)> {
        let mut runs = self.runs();
        runs.iter_mut().filter_map(|(name, run)| Some((name.clone(), run.end_pause()?))).collect()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<Name, Run>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
