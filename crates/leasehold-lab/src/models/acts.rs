//! The events that may happen next.

use leasehold_spec::{Grant, GrantState};

use super::network::{Ask, Fate, Message, Request};
use super::rules::Botch;
use super::scene::Budget;
use super::server::attempt_of;
use super::session::{Life, Session, Task};
use super::world::{Act, Play, World, is_quiet};

impl World {
    pub(crate) fn acts(&self, play: &Play, acts: &mut Vec<Act>) {
        // A session that no fault hits, and that has only one connection, receives its next message at once: no event in
        // between could make a difference to it or to any other session.
        let is_prompt = |s: &u8| self.is_prompt(play, *s) && !self.sessions[*s as usize].links[0].back.is_empty();
        if let Some(s) = (0..self.sessions.len() as u8).find(is_prompt) {
            return acts.push(Act::Receive(s, 0));
        }
        for s in 0..self.sessions.len() as u8 {
            self.acts_of(play, s, acts);
        }
        acts.extend((0..self.buffers.len() as u8).map(Act::ServeLate));
        if self.budget.restarts > 0 {
            acts.push(Act::Restart);
        }
        if self.budget.failovers > 0 && self.copy != self.store {
            acts.push(Act::Failover);
        }
        if self.budget.revokes > 0 && self.store.grants.sole().is_some_and(|g| self.may_be_revoked(play, g)) {
            acts.push(Act::Revoke);
        }
        if self.budget.set_backs > 0 && self.store.grants.sole().is_some() {
            acts.push(Act::SetBack);
        }
        if self.may_tick(play) {
            acts.push(Act::Tick);
        }
    }

    /// Whether a grant is valid, not revoked yet, and held by a session that faults hit.
    fn may_be_revoked(&self, play: &Play, grant: &Grant) -> bool {
        let is_live = grant.end_us() > self.clock_us() && grant.state != GrantState::Revoked;
        is_live && play.scene.is_hit(attempt_of(grant.id).0)
    }

    fn is_prompt(&self, play: &Play, s: u8) -> bool {
        let (scene, budget) = (&play.scene, &self.budget);
        let is_hit = scene.is_hit(s) && *budget != Budget::default();
        let session = &self.sessions[s as usize];
        scene.links_of(s) == 1 && !is_hit && session.life == Life::Awake && !session.tasks.contains(&Task::Idle)
    }

    /// Whether time may pass: every message has arrived or may be slow, and every task that must start by now has
    /// started.
    fn may_tick(&self, play: &Play) -> bool {
        let scene = &play.scene;
        let is_slow = |s: u8| scene.is_hit(s) && self.budget.slow > 0;
        let may_wait = |(s, session): (usize, &Session)| is_quiet(session) || is_slow(s as u8);
        let is_late = self.tick >= scene.start_by
            && self.sessions.iter().any(|s| s.life == Life::Awake && s.tasks.contains(&Task::Idle));
        let is_waking = self.sessions.iter().any(|s| s.life == Life::Waking);
        self.tick < scene.until && !is_late && !is_waking && self.sessions.iter().enumerate().all(may_wait)
    }

    fn acts_of(&self, play: &Play, s: u8, acts: &mut Vec<Act>) {
        let session = &self.sessions[s as usize];
        let (budget, is_hit) = (&self.budget, play.scene.is_hit(s));
        for (k, link) in session.links.iter().enumerate().map(|(k, link)| (k as u8, link)) {
            if !link.out.is_empty() {
                acts.push(Act::Serve(s, k));
                if budget.refusals > 0 && is_hit && self.may_refuse(play, s, k) {
                    acts.push(Act::Refuse(s, k));
                }
            }
            let may_be_of_batch =
                |request: &Request| matches!(request.ask, Ask::Acquire { ticket: None, .. } | Ask::Release { .. });
            if budget.resends > 0 && is_hit && link.out.len() > 1 && link.out.front().is_some_and(may_be_of_batch) {
                acts.push(Act::Resend(s, k));
            }
            let is_push = link.back.iter().any(|m| matches!(m, Message::Push(_)));
            if is_push && budget.lost_pushes > 0 && is_hit {
                acts.push(Act::LosePush(s));
            }
        }
        if self.attached[s as usize] && !play.scene.polls(s) && !session.links[0].is_subscribed {
            acts.push(Act::Detach(s));
        }
        match session.life {
            Life::Awake => self.acts_awake(play, s, acts),
            Life::Paused => acts.push(Act::Resume(s)),
            Life::Waking => {
                acts.push(Act::Wake(s));
                let inside = (0..session.tasks.len() as u8).filter(|t| session.tasks[*t as usize] == Task::Inside);
                acts.extend(inside.map(|t| Act::Finish(s, t)));
            }
            Life::Dead => {}
        }
        if session.life != Life::Dead && is_hit && budget.crashes > 0 && session.tasks.iter().any(|t| *t != Task::Idle)
        {
            let is_waiting = session.links.iter().any(|l| !l.out.is_empty());
            acts.push(Act::Crash(s, Fate::Gone));
            acts.extend(is_waiting.then_some(Act::Crash(s, Fate::Late)));
        }
    }

    fn acts_awake(&self, play: &Play, s: u8, acts: &mut Vec<Act>) {
        let session = &self.sessions[s as usize];
        let (budget, is_hit) = (&self.budget, play.scene.is_hit(s));
        // Local tasks of one kind are interchangeable, so they start in order.
        acts.extend(session.tasks.iter().position(|t| *t == Task::Idle).map(|t| Act::Start(s, t as u8)));
        for (t, task) in session.tasks.iter().enumerate().map(|(t, task)| (t as u8, task)) {
            match task {
                Task::Inside => acts.push(Act::Finish(s, t)),
                Task::Waiting if budget.cancels > 0 && is_hit => acts.push(Act::Cancel(s, t)),
                _ => {}
            }
        }
        for (k, link) in session.links.iter().enumerate().map(|(k, link)| (k as u8, link)) {
            if !link.back.is_empty() {
                acts.push(Act::Receive(s, k));
            }
            if !link.is_up {
                acts.push(Act::Reconnect(s, k));
            } else if budget.cuts > 0 && is_hit {
                acts.push(Act::Cut(s, k, Fate::Gone));
                acts.extend((!link.out.is_empty()).then_some(Act::Cut(s, k, Fate::Late)));
            }
        }
        if budget.retries > 0 && is_hit {
            let may = (0..session.attempts.len()).filter(|i| session.may_retry(*i));
            acts.extend(may.map(|i| Act::Retry(s, i as u8)));
        }
        if budget.pauses > 0 && is_hit && session.tasks.iter().any(|t| matches!(t, Task::Waiting | Task::Inside)) {
            acts.push(Act::Pause(s));
        }
    }

    fn may_refuse(&self, play: &Play, s: u8, k: u8) -> bool {
        match self.sessions[s as usize].links[k as usize].out[0].ask {
            Ask::Acquire { .. } => true,
            Ask::Release { .. } => play.off.botches(Botch::ReleaseNeedsMemory),
            _ => false,
        }
    }
}
