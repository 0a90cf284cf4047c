//! The properties that must always be true, and the states that a search must reach at least once so that it is not empty.
//!
//! Exclusion is stated over holders that *believe themselves valid*: a lease that ends during a pause of its process is
//! a case for the fence, since no lock can prevent it. Liveness is stated as safety, with bounded waits, because a
//! search to a bound proves nothing about "eventually".

use leasehold_spec::{Grant, GrantState};
use stateright::{Expectation, Property};

use super::ledger::Harm;
use super::scene::Scene;
use super::server::{attempt_of, grant_id};
use super::session::{Attempt, Holding, Life, Phase, Session, Task};
use super::world::{Play, World};

type Check = fn(&Play, &World) -> bool;
type Where = fn(&Scene) -> bool;

/// Properties that must never be violated. Only the first sight of a violation counts: a breadth-first search finds the
/// shortest schedule first, and the checker would keep the last one.
macro_rules! never {
    ($($harm:ident: $seen:expr),* $(,)?) => {
        &[$((Harm::$harm, |play, world| {
            let seen: Check = $seen;
            !seen(play, world) || play.was_found_before()
        })),*]
    };
}

const NEVER: &[(Harm, Check)] = never! {
    TwoHolders: |_, w| !w.ledger.forgot && w.believers() > 1,
    TokenFell: |_, w| w.has(Harm::TokenFell),
    // A lease that was given back can be held again after a failover. The model does not contain the repeated releases
    // (P13).
    UnknowingHolder: |p, w| p.scene.budget.failovers == w.budget.failovers && w.has_unknowing_holder(),
    LeftButHolds: |p, w| p.scene.is_whole() && w.is_left_but_holds(),
    HeadWaits: |_, w| w.has(Harm::HeadWaits),
    FalseAlarm: |_, w| w.has(Harm::FalseAlarm),
    FalseReport: |_, w| w.has(Harm::FalseReport),
    OutOfOrder: |_, w| w.has(Harm::OutOfOrder),
    ToDetached: |_, w| w.has(Harm::ToDetached),
    CostlyDeath: |_, w| w.has(Harm::CostlyDeath),
    ClaimUnnoticed: |_, w| w.has(Harm::ClaimUnnoticed),
    ClaimWasted: |_, w| w.has(Harm::ClaimWasted),
    IgnoresWaiters: |_, w| w.has(Harm::IgnoresWaiters),
    WaitsForEver: |_, w| w.has(Harm::WaitsForEver),
    Outranks: |_, w| w.has(Harm::Outranks) || w.is_outranked(),
    LetInLate: |_, w| w.has(Harm::LetInLate),
    Starves: |_, w| w.has(Harm::Starves),
    GraceOutlasted: |_, w| w.has(Harm::GraceOutlasted),
    FollowedLate: |_, w| w.has(Harm::FollowedLate),
    GrantedTooSoon: |_, w| w.has(Harm::GrantedTooSoon),
    CoolsTooLong: |_, w| w.has(Harm::CoolsTooLong),
    CoolingOutlasted: |_, w| w.has(Harm::CoolingOutlasted),
    Unrepresented: |p, w| !w.sessions.iter().all(|s| s.is_represented(p, w.tick)),
};

/// The states that a search must reach. Otherwise it has searched nothing. Each has a name, the scenes in which it is
/// possible, and a check.
const REACHED: &[(&str, Where, Check)] = &[
    ("everybody is served", |_| true, |_, w| w.sessions.iter().all(|s| s.tasks.iter().all(|t| *t == Task::Served))),
    ("a pushed grant is entered", |_| true, |_, w| w.ledger.handed.is_some_and(|handed| w.holds(handed.to))),
    ("a lease has ended, and nobody has touched it", Scene::may_lapse, |_, w| {
        w.store.grants.sole().is_some_and(|g| g.end_us() <= w.clock_us()) && !w.store.queue.is_empty()
    }),
    ("a lease is passed on locally", Scene::has_runs, |_, w| w.ledger.entered.1 > 0),
    ("a range is made longer", Scene::is_short_of_tokens, |p, w| {
        w.store.grants.sole().is_some_and(|g| g.range > u64::from(p.scene.range))
    }),
    ("a lease cools down, and somebody waits", Scene::cools_down, |_, w| {
        w.store.grants.sole().is_some_and(|g| !g.is_held() && g.end_us() > w.clock_us()) && !w.store.queue.is_empty()
    }),
    ("an old holder is still there", Scene::has_old_holders, |_, w| {
        let newer = |h: &Holding| w.store.grants.sole().is_some_and(|g| h.token < g.token);
        w.holdings().any(|(_, h)| h.pass > 0 && newer(h))
    }),
];

pub(crate) fn all(play: &Play) -> Vec<Property<Play>> {
    let property = |expectation, name, condition| Property { expectation, name, condition };
    let watched = NEVER.iter().filter(|(harm, _)| play.watch.is_none_or(|watched| watched == *harm));
    let mut all: Vec<_> = watched.map(|(harm, check)| property(Expectation::Always, harm.name(), *check)).collect();
    if play.watch.is_none() {
        let here = REACHED.iter().filter(|(_, is_possible, _)| is_possible(&play.scene));
        all.extend(here.map(|(name, _, check)| property(Expectation::Sometimes, name, *check)));
    }
    all
}

impl World {
    fn has(&self, harm: Harm) -> bool {
        self.ledger.harm == Some(harm)
    }

    /// Returns how many holders act now in the belief that the lease is theirs.
    fn believers(&self) -> usize {
        let is_unnotified = |h: &Holding| !h.is_revoked && self.ledger.revoked == Some(h.token);
        let living = self.holdings().filter(|(s, _)| s.life != Life::Dead);
        living.filter(|(_, h)| h.until > self.tick && !is_unnotified(h)).count()
    }

    /// Returns every grant that a session believes to hold, or believed to hold when it stopped.
    fn holdings(&self) -> impl Iterator<Item = (&Session, &Holding)> {
        let all = self.sessions.iter().flat_map(|s| s.attempts.iter().map(move |a| (s, a)));
        all.filter_map(|(s, a)| if let Phase::Holding(h) = &a.phase { Some((s, h)) } else { None })
    }

    /// Whether an old holder can still write with a token that is not below that of its successor. A resource that
    /// knows the successor must be able to refuse such a write.
    fn is_outranked(&self) -> bool {
        let newest = self.store.grants.sole();
        newest.is_some_and(|g| self.holdings().any(|(_, h)| h.token < g.token && g.token <= h.current()))
    }

    fn holds(&self, (session, n): (u8, u8)) -> bool {
        let session = &self.sessions[session as usize];
        session.find(n).is_some_and(|i| matches!(session.attempts[i].phase, Phase::Holding(_)))
    }

    /// Returns the lease, the session that holds it by the record, and the attempt. Returns `None` unless that session
    /// is awake and has nothing in flight, so that no sent message can still change its belief.
    fn quiet_holder(&self) -> Option<(&Grant, &Session, Option<&Attempt>)> {
        let grant = self.store.grants.sole().filter(|g| g.is_held() && g.end_us() > self.clock_us())?;
        let (s, n) = attempt_of(grant.id);
        let session = &self.sessions[s as usize];
        let is_under_way = !session.is_settled() || self.buffers.iter().any(|(of, _)| *of == s);
        let attempt = session.find(n).map(|i| &session.attempts[i]);
        (!is_under_way).then_some((grant, session, attempt))
    }

    /// Whether the record names a holder that does not know of it and will do nothing about it.
    fn has_unknowing_holder(&self) -> bool {
        let Some((grant, session, attempt)) = self.quiet_holder() else { return false };
        let is_excused = grant.state == GrantState::Pushed && self.ledger.lost_push;
        match attempt.map(|a| &a.phase) {
            _ if is_excused => false,
            None => true,
            Some(Phase::Holding(h)) => h.token != grant.token || session.tasks[h.task as usize] != Task::Inside,
            Some(_) => false,
        }
    }

    /// Whether the record keeps a lease that nobody wants: its session only waits until it may leave again (P14).
    fn is_left_but_holds(&self) -> bool {
        let attempt = self.quiet_holder().and_then(|(_, _, attempt)| attempt);
        attempt.is_some_and(|a| matches!(a.phase, Phase::Leaving { asked: None, .. }))
    }

    /// Checks the state at the end of a tick.
    pub(crate) fn watch(&mut self, scene: &Scene) {
        let now_us = self.clock_us();
        let live = self.store.grants.sole().filter(|g| g.end_us() > now_us);
        let holder = live.map(|g| attempt_of(g.id));
        let somebody_waits = self.sessions.iter().any(|s| s.life == Life::Awake && s.tasks.contains(&Task::Waiting));
        let handed = live.filter(|g| self.ledger.handed.is_some_and(|handed| handed.token == g.token));
        let unclaimed = handed.map(|g| attempt_of(g.id));
        if let Some((s, n)) = unclaimed.filter(|_| somebody_waits) {
            let session = &self.sessions[s as usize];
            let never_knew = |a: &Attempt| matches!(a.phase, Phase::Waiting { .. } | Phase::Claiming { .. });
            if session.life == Life::Dead && session.find(n).is_some_and(|i| never_knew(&session.attempts[i])) {
                self.ledger.dead_ticks += 1;
            }
        }
        // After the clock was set back, a claim begins anew. A push cannot be placed in time, so its grant is claimed
        // first.
        if self.ledger.dead_ticks > scene.claim && self.behind == 0 {
            self.ledger.note(Harm::CostlyDeath);
        }
        self.watch_claim(somebody_waits);
        self.watch_waiters(scene);
        for s in 0..self.sessions.len() {
            let is_left = self.sessions[s].is_settled() && self.is_left_waiting(scene, s, holder);
            self.ledger.idle[s] = if is_left { self.ledger.idle[s] + 1 } else { 0 };
            if self.ledger.idle[s] > scene.floor() {
                self.ledger.note(Harm::WaitsForEver);
            }
        }
    }

    /// Checks that a waiter that is awake, connected and in the queue gets the lease in time after a holder that was
    /// revoked or died (P10, P15).
    fn watch_waiters(&mut self, scene: &Scene) {
        let Some((token, cools)) = self.store.grants.sole().map(|g| (g.token, !g.is_held())) else { return };
        let is_there = |session: &Session| session.life == Life::Awake && session.is_settled();
        let mut queue = self.store.queue.iter().map(|e| attempt_of(e.id).0 as usize);
        if !queue.any(|s| self.attached[s] && is_there(&self.sessions[s])) {
            return;
        }
        let is_over = self.store.grants.sole().is_some_and(|g| g.end_us() <= self.clock_us());
        if cools && is_over && scene.is_prompt() {
            self.ledger.note(Harm::CoolingOutlasted);
        }
        if self.ledger.revoked == Some(token) && self.ledger.grace_over.is_some_and(|over| over <= self.tick) {
            self.ledger.note(Harm::GraceOutlasted);
        }
        if self.ledger.died.is_some_and(|(died, tick)| died == token && tick + scene.followed_within() <= self.tick) {
            self.ledger.note(Harm::FollowedLate);
        }
    }

    /// Checks P7: when a claim has ended, the session that handed over re-checks before the tick is over.
    fn watch_claim(&mut self, somebody_waits: bool) {
        let (Some(grant), Some(handed)) = (self.store.grants.sole(), self.ledger.handed) else { return };
        let has_lapsed = grant.state == GrantState::Pushed && grant.end_us() <= self.clock_us();
        let by = &self.sessions[handed.by as usize];
        let is_rechecking = !by.is_settled() || self.buffers.iter().any(|(s, _)| *s == handed.by);
        let is_pending = self.sessions.iter().any(|s| !s.is_settled());
        if has_lapsed && grant.token == handed.token && somebody_waits && !is_rechecking && !is_pending {
            self.ledger.note(Harm::ClaimUnnoticed);
        }
    }

    /// Whether a task waits although nobody holds the lease, or although the store does not know that it waits.
    fn is_left_waiting(&self, scene: &Scene, s: usize, holder: Option<(u8, u8)>) -> bool {
        // With a full memory no entry is made: a waiter whose entry was lost waits until there is room again.
        let was_refused = self.budget.refusals < scene.budget.refusals;
        let session = &self.sessions[s];
        let has_local_waiters = |a: &&Attempt| !a.waiters.is_empty() && !matches!(a.phase, Phase::Holding(_));
        session.has_forgotten_a_task()
            || session.attempts.iter().filter(has_local_waiters).any(|a| {
                let id = grant_id(s as u8, a.n);
                let is_known = holder == Some((s as u8, a.n)) || self.store.queue.iter().any(|e| e.id == id);
                !is_known && !was_refused || is_known && holder.is_none()
            })
    }
}

impl Session {
    fn has_forgotten_a_task(&self) -> bool {
        let is_known = |t: usize| self.attempts.iter().any(|a| a.waiters.contains(&(t as u8)));
        self.tasks.iter().enumerate().any(|(t, task)| *task == Task::Waiting && !is_known(t))
    }

    /// Checks P21: a non-empty local queue means a valid grant with a live local holder, or an acquire in flight, or an
    /// entry that the session re-checks.
    fn is_represented(&self, play: &Play, tick: u8) -> bool {
        if self.life != Life::Awake {
            return true;
        }
        let is_live = |w: &u8| self.tasks[*w as usize] == Task::Waiting;
        !self.has_forgotten_a_task()
            && self.attempts.iter().filter(|a| a.waiters.iter().any(is_live)).all(|a| match &a.phase {
                Phase::Holding(h) => h.until > tick && self.tasks[h.task as usize] == Task::Inside,
                Phase::Claiming { .. } => true,
                Phase::Waiting { recheck_at } => {
                    let is_in_flight = a.open.iter().any(|o| o.link.is_some());
                    is_in_flight || !self.is_proved || *recheck_at <= tick + play.scene.floor()
                }
                Phase::Releasing { .. } | Phase::Leaving { .. } => false,
            })
    }
}
