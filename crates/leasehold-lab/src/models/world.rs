//! The whole: one store, the sessions, the connections, the clock, and what may happen next.
//!
//! All clocks run at one rate (what P12's margin is for is not modelled), so one tick moves them together. A session that
//! is awake does what is due when the tick comes; a paused one when it wakes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_spec::Resource;
use stateright::{Model, Property};

use super::ledger::{Harm, Ledger};
use super::network::{Fate, Message, Request};
use super::properties;
use super::rules::{Botch, Off};
use super::scene::{ALWAYS, Budget, Scene};
use super::session::{Life, Now, Session, Task};
use super::words;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) tick: u8,
    pub(crate) store: Resource,
    pub(crate) sessions: Vec<Session>,
    /// Whose inbox the store believes to be attached.
    pub(crate) attached: Vec<bool>,
    /// Requests of connections that broke, each a queue.
    pub(crate) buffers: Vec<(u8, VecDeque<Request>)>,
    pub(crate) budget: Budget,
    pub(crate) ledger: Ledger,
}

/// What may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    Tick,
    Start(u8, u8),
    Finish(u8, u8),
    Cancel(u8, u8),
    /// The store carries out the next request of a connection.
    Serve(u8, u8),
    /// The same, and finds its memory full.
    Refuse(u8, u8),
    /// The store carries out a request of a connection that broke long ago.
    ServeLate(u8),
    Hear(u8, u8),
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
}

/// A scene with a rule off, or none.
#[derive(Clone, Debug)]
pub(crate) struct Play {
    pub(crate) scene: Scene,
    pub(crate) off: Off,
    /// The only harm that is looked for; all of them if not given.
    pub(crate) watch: Option<Harm>,
    was_found: Arc<AtomicBool>,
}

impl Play {
    pub(crate) fn new(scene: Scene, off: Off, watch: Option<Harm>) -> Self {
        Self { scene, off, watch, was_found: Arc::default() }
    }

    /// Whether a harm was seen before this one.
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
            store: Resource::default(),
            attached: (0..sessions.len() as u8).map(|s| self.scene.is_counted(s)).collect(),
            sessions,
            buffers: Vec::new(),
            budget: self.scene.budget,
            ledger,
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        // Beyond a harm there is nothing to learn: the shortest way to it ends here.
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
    fn acts(&self, play: &Play, acts: &mut Vec<Act>) {
        // A session that no fault hits, and that has but one connection, hears its next message at once: nothing that
        // could happen in between would make a difference to it or to anybody else.
        let is_prompt = |s: &u8| self.is_prompt(play, *s) && !self.sessions[*s as usize].links[0].back.is_empty();
        if let Some(s) = (0..self.sessions.len() as u8).find(is_prompt) {
            return acts.push(Act::Hear(s, 0));
        }
        for s in 0..self.sessions.len() as u8 {
            self.acts_of(play, s, acts);
        }
        acts.extend((0..self.buffers.len() as u8).map(Act::ServeLate));
        if self.budget.restarts > 0 {
            acts.push(Act::Restart);
        }
        if self.may_tick(play) {
            acts.push(Act::Tick);
        }
    }

    fn is_prompt(&self, play: &Play, s: u8) -> bool {
        let (scene, budget) = (&play.scene, &self.budget);
        let is_hit = scene.is_hit(s) && *budget != Budget::default();
        let session = &self.sessions[s as usize];
        scene.links_of(s) == 1 && !is_hit && session.life == Life::Awake && !session.tasks.contains(&Task::Idle)
    }

    /// Time passes when nothing is under way, or when what is under way is slow; and when everybody who is to come has.
    fn may_tick(&self, play: &Play) -> bool {
        let scene = &play.scene;
        let is_slow = |s: u8| scene.is_hit(s) && self.budget.slow > 0;
        let may_wait = |(s, session): (usize, &Session)| is_quiet(session) || is_slow(s as u8);
        let is_late = self.tick >= scene.start_by
            && self.sessions.iter().any(|s| s.life == Life::Awake && s.tasks.contains(&Task::Idle));
        self.tick < scene.until && !is_late && self.sessions.iter().enumerate().all(may_wait)
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
        // Local tasks of one kind are alike: they start in order.
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
                acts.push(Act::Hear(s, k));
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
        use super::network::Ask;
        match self.sessions[s as usize].links[k as usize].out[0].ask {
            Ask::Acquire { .. } => true,
            Ask::Release { .. } => play.off.botches(Botch::ReleaseNeedsMemory),
            _ => false,
        }
    }

    /// One step. With a log, it is told in words.
    pub(crate) fn act(&mut self, play: &Play, act: Act, log: Option<&RefCell<Vec<String>>>) {
        let now = Now { scene: &play.scene, off: play.off, tick: self.tick, log };
        now.say(|| words::act(self, act));
        let (ledger, sessions) = (&mut self.ledger, &mut self.sessions);
        match act {
            Act::Tick => return self.pass_time(play, log),
            Act::Start(s, t) => {
                let order = play.scene.sessions[s as usize][t as usize];
                sessions[s as usize].start(&now, t, order);
            }
            Act::Finish(s, t) => sessions[s as usize].finish(&now, ledger, t),
            Act::Cancel(s, t) => {
                spend(&mut self.budget.cancels);
                sessions[s as usize].cancel(&now, t);
            }
            Act::Serve(s, k) => self.serve(&now, s, k, false),
            Act::Refuse(s, k) => {
                spend(&mut self.budget.refusals);
                self.serve(&now, s, k, true);
            }
            Act::ServeLate(b) => {
                let (s, buffer) = &mut self.buffers[b as usize];
                let (s, request) = (*s, buffer.pop_front().expect("a buffer that is kept has a request in it"));
                self.script(&now, s, request, false);
            }
            Act::Hear(s, k) => {
                let session = &mut sessions[s as usize];
                let message = session.links[k as usize].back.pop_front().expect("there is something to hear");
                session.hear(&now, ledger, k, message);
            }
            Act::Cut(s, k, fate) => {
                spend(&mut self.budget.cuts);
                self.cut(&now, s, k, fate);
            }
            Act::Reconnect(s, k) => sessions[s as usize].reconnect(&now, k),
            Act::Detach(s) => self.attached[s as usize] = false,
            Act::LosePush(s) => {
                spend(&mut self.budget.lost_pushes);
                ledger.lost_push = true;
                let back = &mut sessions[s as usize].links[0].back;
                let at = back.iter().position(|m| matches!(m, Message::Push(_))).expect("a push is under way");
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
                sessions[s as usize].life = Life::Awake;
                sessions[s as usize].wake(&now);
            }
            Act::Crash(s, fate) => {
                spend(&mut self.budget.crashes);
                self.sessions[s as usize].life = Life::Dead;
                for k in 0..self.sessions[s as usize].links.len() as u8 {
                    self.cut(&now, s, k, fate);
                }
            }
            Act::Restart => {
                spend(&mut self.budget.restarts);
                self.restart(&now);
                return self.pass_time(play, log);
            }
        }
        self.tidy(play);
    }

    fn serve(&mut self, now: &Now<'_>, s: u8, k: u8, refuse: bool) {
        let link = &mut self.sessions[s as usize].links[k as usize];
        let request = link.out.pop_front().expect("a request is under way");
        let answer = self.script(now, s, request, refuse);
        // To a dead process nobody carries the answer.
        let link = &mut self.sessions[s as usize].links[k as usize];
        if link.is_up {
            link.back.push_back(answer);
        }
    }

    fn cut(&mut self, now: &Now<'_>, s: u8, k: u8, fate: Fate) {
        if !self.sessions[s as usize].links[k as usize].is_up {
            return;
        }
        let is_push = |m: &Message| matches!(m, Message::Push(_));
        self.ledger.lost_push |= self.sessions[s as usize].links[k as usize].back.iter().any(is_push);
        let requests = self.sessions[s as usize].lose_link(now, k);
        if fate == Fate::Late && !requests.is_empty() {
            self.buffers.push((s, requests));
        }
    }

    /// The store forgets everything. That takes it a while, so no token can come twice in one tick.
    fn restart(&mut self, now: &Now<'_>) {
        self.store = Resource::default();
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

    /// Forgets what cannot matter any more, so that states which differ in nothing else are one.
    fn tidy(&mut self, play: &Play) {
        use super::network::Ask;
        use leasehold_spec::mutant::Mutant;
        let tick = self.tick;
        // A request after its `not_after` does nothing but settle, which any other script does as well.
        if play.off != Off::Store(Mutant::P4RunsLate) {
            let is_late = |r: &Request| matches!(r.ask, Ask::Acquire { .. } | Ask::Renew { .. }) && r.not_after < tick;
            self.buffers.iter_mut().for_each(|(_, buffer)| buffer.retain(|r| !is_late(r)));
        }
        self.buffers.retain(|(_, buffer)| !buffer.is_empty());
        self.buffers
            .sort_by(|a, b| (a.0, a.1.front().map(|r| (r.n, r.sent))).cmp(&(b.0, b.1.front().map(|r| (r.n, r.sent)))));
        let sessions = &self.sessions;
        let waits = |(s, n): (u8, u8)| sessions[s as usize].find(n).is_some_and(|i| sessions[s as usize].is_waiting(i));
        self.ledger.places.retain(|(attempt, _)| waits(*attempt));
        for attempt in self.sessions.iter_mut().flat_map(|s| &mut s.attempts) {
            attempt.open.retain(|o| o.link.is_some() || o.not_after >= tick);
        }
    }
}

/// Whether nothing is under way between the store and this session, or nobody is there to hear it.
fn is_quiet(session: &Session) -> bool {
    session.life != Life::Awake || session.links.iter().all(|l| l.is_quiet())
}

fn spend(budget: &mut u8) {
    if *budget != ALWAYS {
        *budget -= 1;
    }
}
