//! The whole model: one store, the sessions, the connections, the clock, and the effect of each event on them.
//!
//! All clocks run at one rate (the drift that P12's margin covers is not modeled), so one tick moves them together. A
//! session that is awake does its due work when the tick comes; a paused session when it resumes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_spec::{Grant, Resource, Token};
use stateright::{Model, Property};

use super::ledger::{Harm, Ledger};
use super::network::{Fate, Message, Request};
use super::properties;
use super::rules::Off;
use super::scene::{ALWAYS, Budget, Scene, clock_behind_us};
use super::server::attempt_of;
use super::session::{Holding, Life, Now, Session};
use super::words;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) tick: u8,
    /// By how many ticks the store's clock was set back.
    pub(crate) behind: u8,
    pub(crate) store: Resource,
    /// The record of a replica that missed the last change.
    pub(crate) copy: Resource,
    pub(crate) sessions: Vec<Session>,
    /// Whether the store believes that the inbox is attached, for each session.
    pub(crate) attached: Vec<bool>,
    /// Requests of connections that broke, each a queue.
    pub(crate) buffers: Vec<(u8, VecDeque<Request>)>,
    pub(crate) budget: Budget,
    pub(crate) ledger: Ledger,
}

/// An event that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    Tick,
    Start(u8, u8),
    Finish(u8, u8),
    Cancel(u8, u8),
    /// The store carries out the next request of a connection.
    Serve(u8, u8),
    /// The store would carry out the next request of a connection, and its memory is full.
    Refuse(u8, u8),
    /// The store refuses a batch: the next request of a connection is sent again, if anybody still waits for it.
    Resend(u8, u8),
    /// The store carries out a request of a connection that broke long ago.
    ServeLate(u8),
    Receive(u8, u8),
    Cut(u8, u8, Fate),
    Reconnect(u8, u8),
    /// The store notices that an inbox is gone.
    Detach(u8),
    LosePush(u8),
    Retry(u8, u8),
    Pause(u8),
    Resume(u8),
    Crash(u8, Fate),
    Restart,
    Failover,
    Revoke,
    /// The store's clock is set back.
    SetBack,
    /// The timers of a process that has resumed.
    Wake(u8),
}

/// A scene, with one rule off or none.
#[derive(Clone, Debug)]
pub(crate) struct Play {
    pub(crate) scene: Scene,
    pub(crate) off: Off,
    /// The only violation that the search looks for; all of them if `None`.
    pub(crate) watch: Option<Harm>,
    was_found: Arc<AtomicBool>,
}

impl Play {
    pub(crate) fn new(scene: Scene, off: Off, watch: Option<Harm>) -> Self {
        Self { scene, off, watch, was_found: Arc::default() }
    }

    /// Whether a violation was seen before this one.
    pub(crate) fn was_found_before(&self) -> bool {
        self.was_found.swap(true, Ordering::Relaxed)
    }
}

impl Model for Play {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let sessions: Vec<_> = self
            .scene
            .sessions
            .iter()
            .enumerate()
            .map(|(s, tasks)| Session::new(&self.scene, s as u8, tasks.len()))
            .collect();
        let ledger = Ledger { idle: vec![0; sessions.len()], ..Ledger::default() };
        vec![World {
            tick: 0,
            behind: 0,
            store: Resource::default(),
            copy: Resource::default(),
            attached: (0..sessions.len() as u8).map(|s| self.scene.is_counted(s)).collect(),
            sessions,
            buffers: Vec::new(),
            budget: self.scene.budget,
            ledger,
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        // A state beyond a violation teaches nothing: the shortest schedule ends here.
        if world.ledger.harm.is_none() {
            world.acts(self, acts);
        }
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        next.act(self, act, None);
        next.ledger.harm = next.ledger.harm.filter(|harm| self.watch.is_none_or(|watched| watched == *harm));
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

impl World {
    /// Returns the store's clock.
    pub(crate) fn clock_us(&self) -> u64 {
        clock_behind_us(self.tick, self.behind)
    }

    /// Applies one event. If there is a log, describes the event in it.
    pub(crate) fn act(&mut self, play: &Play, act: Act, log: Option<&RefCell<Vec<String>>>) {
        let now = Now { scene: &play.scene, off: play.off, tick: self.tick, log };
        now.log(|| words::act(self, act));
        let (ledger, sessions) = (&mut self.ledger, &mut self.sessions);
        match act {
            Act::Tick => return self.pass_time(play, log),
            Act::Start(s, t) => {
                let order = play.scene.sessions[s as usize][t as usize];
                sessions[s as usize].start(&now, t, order);
            }
            Act::Finish(s, t) => {
                let passed = sessions[s as usize].finish(&now, ledger, t);
                passed.into_iter().for_each(|held| self.check_pass(&held));
            }
            Act::Cancel(s, t) => {
                spend(&mut self.budget.cancels);
                sessions[s as usize].cancel(&now, t);
            }
            Act::Serve(s, k) => self.serve(&now, s, k, false),
            Act::Refuse(s, k) => {
                spend(&mut self.budget.refusals);
                self.serve(&now, s, k, true);
            }
            Act::Resend(s, k) => {
                spend(&mut self.budget.resends);
                sessions[s as usize].resend(k);
            }
            Act::ServeLate(b) => {
                let (s, buffer) = &mut self.buffers[b as usize];
                let (s, request) = (*s, buffer.pop_front().expect("a buffer that is kept has a request in it"));
                self.script(&now, s, request, false);
            }
            Act::Receive(s, k) => {
                let session = &mut sessions[s as usize];
                let message = session.links[k as usize].back.pop_front().expect("a message is in flight");
                session.receive(&now, ledger, k, message);
            }
            Act::Cut(s, k, fate) => {
                spend(&mut self.budget.cuts);
                self.cut(&now, s, k, fate);
            }
            Act::Reconnect(s, k) => sessions[s as usize].reconnect(&now, k),
            Act::Detach(s) => self.attached[s as usize] = false,
            Act::LosePush(s) => {
                spend(&mut self.budget.lost_pushes);
                ledger.lost_push |= sessions[s as usize].links[0].has_pushed_grant();
                let back = &mut sessions[s as usize].links[0].back;
                let at = back.iter().position(|m| matches!(m, Message::Push(_))).expect("a push is in flight");
                back.remove(at);
            }
            Act::Retry(s, i) => {
                spend(&mut self.budget.retries);
                sessions[s as usize].retry(&now, i as usize);
            }
            Act::Pause(s) => {
                spend(&mut self.budget.pauses);
                sessions[s as usize].life = Life::Paused;
            }
            Act::Resume(s) => {
                let session = &mut sessions[s as usize];
                session.life = if now.scene.has_runs() { Life::Waking } else { Life::Awake };
                session.wake(&now);
                let late = session.late_token(&now);
                late.into_iter().for_each(|(grant, token)| self.check_rank(grant, token));
            }
            Act::Wake(s) => {
                sessions[s as usize].life = Life::Awake;
                sessions[s as usize].wake(&now);
            }
            Act::Revoke => {
                spend(&mut self.budget.revokes);
                self.revoke(&now);
            }
            Act::SetBack => {
                spend(&mut self.budget.set_backs);
                self.behind += play.scene.back;
            }
            Act::Crash(s, fate) => {
                spend(&mut self.budget.crashes);
                // In other scenes a lease ends when it should, and the time of its holder's death makes no difference.
                let grant = self.store.grants.sole().filter(|g| play.scene.back > 0 && attempt_of(g.id).0 == s);
                self.ledger.dies(self.tick, grant);
                self.sessions[s as usize].life = Life::Dead;
                for k in 0..self.sessions[s as usize].links.len() as u8 {
                    self.cut(&now, s, k, fate);
                }
            }
            Act::Restart => {
                spend(&mut self.budget.restarts);
                self.restart(&now, Resource::default());
                return self.pass_time(play, log);
            }
            Act::Failover => {
                spend(&mut self.budget.failovers);
                let copy = std::mem::take(&mut self.copy);
                self.restart(&now, copy);
                return self.pass_time(play, log);
            }
        }
        self.tidy(play);
    }

    /// Checks a session that has let its next task in. It must hold the lease, unless it could not know of the loss.
    fn check_pass(&mut self, held: &Holding) {
        let is_unnotified = !held.is_revoked && self.ledger.revoked == Some(held.token);
        let is_live = |g: &Grant| g.token == held.token && g.end_us() > self.clock_us();
        if !is_unnotified && !self.ledger.forgot && !self.store.grants.sole().is_some_and(is_live) {
            self.ledger.note(Harm::LetInLate);
        }
    }

    /// Checks a task of an earlier grant that uses this token now.
    fn check_rank(&mut self, grant: Token, token: Token) {
        if self.store.grants.sole().is_some_and(|g| grant < g.token && g.token <= token) {
            self.ledger.note(Harm::Outranks);
        }
    }

    fn serve(&mut self, now: &Now<'_>, s: u8, k: u8, refuse: bool) {
        let link = &mut self.sessions[s as usize].links[k as usize];
        let request = link.out.pop_front().expect("a request is in flight");
        let answer = self.script(now, s, request, refuse);
        // A dead process gets no reply.
        let link = &mut self.sessions[s as usize].links[k as usize];
        if link.is_up {
            link.back.push_back(answer);
        }
    }

    fn cut(&mut self, now: &Now<'_>, s: u8, k: u8, fate: Fate) {
        if !self.sessions[s as usize].links[k as usize].is_up {
            return;
        }
        self.ledger.lost_push |= self.sessions[s as usize].links[k as usize].has_pushed_grant();
        let requests = self.sessions[s as usize].lose_link(now, k);
        if fate == Fate::Late && !requests.is_empty() {
            self.buffers.push((s, requests));
        }
    }

    /// Restarts the store with nothing, or with the state of its copy. A restart takes a tick, so no token can be made
    /// twice in one tick.
    fn restart(&mut self, now: &Now<'_>, store: Resource) {
        self.store = store;
        self.ledger.forgot = true;
        self.ledger.gave_back_last = None;
        self.buffers.clear();
        for s in 0..self.sessions.len() as u8 {
            self.attached[s as usize] = false;
            for k in 0..now.scene.links_of(s) {
                self.cut(now, s, k, Fate::Gone);
            }
        }
    }

    fn pass_time(&mut self, play: &Play, log: Option<&RefCell<Vec<String>>>) {
        if !self.sessions.iter().all(is_quiet) {
            spend(&mut self.budget.slow);
        }
        self.watch(&play.scene);
        self.tick += 1;
        let now = Now { scene: &play.scene, off: play.off, tick: self.tick, log };
        for session in &mut self.sessions {
            session.wake(&now);
        }
        self.tidy(play);
    }

    /// Removes state that cannot matter any more, so that states which differ in nothing else become one.
    fn tidy(&mut self, play: &Play) {
        use super::network::Ask;
        use leasehold_spec::mutant::Mutant;
        // The store's clock.
        let served_at = self.tick.saturating_sub(self.behind);
        // A request after its `not_after` only settles, and any other script settles as well.
        if play.off != Off::Store(Mutant::P4RunsLate) {
            let is_late =
                |r: &Request| matches!(r.ask, Ask::Acquire { .. } | Ask::Renew { .. }) && r.not_after < served_at;
            self.buffers.iter_mut().for_each(|(_, buffer)| buffer.retain(|r| !is_late(r)));
        }
        self.buffers.retain(|(_, buffer)| !buffer.is_empty());
        self.buffers
            .sort_by(|a, b| (a.0, a.1.front().map(|r| (r.n, r.sent))).cmp(&(b.0, b.1.front().map(|r| (r.n, r.sent)))));
        let sessions = &self.sessions;
        let waits = |(s, n): (u8, u8)| sessions[s as usize].find(n).is_some_and(|i| sessions[s as usize].is_waiting(i));
        self.ledger.places.retain(|(attempt, _)| waits(*attempt));
        for attempt in self.sessions.iter_mut().flat_map(|s| &mut s.attempts) {
            attempt.open.retain(|o| o.link.is_some() || o.not_after >= served_at);
        }
    }
}

/// Whether no message is in flight between the store and this session, or the session cannot receive one.
pub(crate) fn is_quiet(session: &Session) -> bool {
    session.life != Life::Awake || session.links.iter().all(|l| l.is_quiet())
}

fn spend(budget: &mut u8) {
    if *budget != ALWAYS {
        *budget -= 1;
    }
}
