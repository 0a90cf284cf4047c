//! The state of the model: one store, the sessions, the clock, and the effect of each event on them.

use leasehold_spec::{GrantId, Resource, Take, Token};
use stateright::{Model, Property};

use super::callers::Call;
use super::cases::{Harm, Play, Slip};
use super::properties;
use super::scenes::{Budget, Does};
use super::session::{Ask, Attempt, Message, Phase, Session};
use crate::models::scene::clock_us;
use crate::models::server::attempt_of;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct Pool {
    pub(super) tick: u8,
    pub(super) store: Resource,
    pub(super) sessions: Vec<Session>,
    pub(super) budget: Budget,
    /// The state that the store fails over to.
    replica: Option<Resource>,
    /// How many resizes of the scene the store has carried out.
    pub(super) resized: u8,
    /// The violations that were noted so far: one bit for each.
    harms: u16,
}

/// An event that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Act {
    Tick,
    Call(u8, Call),
    /// The store carries out the next request of a session.
    Serve(u8),
    /// The store carries out a request of a connection that is gone.
    ServeLate(u8),
    Receive(u8),
    /// A push arrives before the replies that were sent earlier.
    Overtake(u8),
    Recheck(u8, u8),
    Renew(u8, u8),
    LosePush(u8),
    /// The connection breaks. With `true`, the store may still carry the requests out that are on their way.
    Cut(u8, bool),
    Crash(u8),
    /// The store notices that an inbox is gone.
    Detach(u8),
    /// A replica has received everything so far, and receives nothing more.
    Replicate,
    /// The store fails over to the replica.
    FailOver,
}

impl Model for Play {
    type State = Pool;
    type Action = Act;

    fn init_states(&self) -> Vec<Pool> {
        vec![Pool {
            tick: 0,
            store: Resource::default(),
            sessions: self.scene.sessions.iter().map(|does| Session::new(does.take)).collect(),
            budget: self.scene.budget,
            replica: None,
            resized: 0,
            harms: 0,
        }]
    }

    fn actions(&self, pool: &Pool, acts: &mut Vec<Act>) {
        if pool.tick < self.scene.until {
            acts.push(Act::Tick);
        }
        if pool.budget.failovers > 0 {
            acts.push(if pool.replica.is_none() { Act::Replicate } else { Act::FailOver });
        }
        for (s, does) in (0..).zip(self.scene.sessions) {
            pool.acts(self, (s, does), acts);
        }
    }

    fn next_state(&self, pool: &Pool, act: Act) -> Option<Pool> {
        let mut next = pool.clone();
        next.act(self, act);
        for (s, does) in (0..).zip(self.scene.sessions) {
            while !does.is_slow && (next.serve_next(self, s) || !does.cuts && next.receive_reply(self, s)) {}
        }
        next.forget();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(self)
    }
}

impl Pool {
    fn acts(&self, play: &Play, (s, does): (u8, &Does), acts: &mut Vec<Act>) {
        let session = &self.sessions[s as usize];
        if !session.late.is_empty() {
            acts.push(Act::ServeLate(s));
        }
        if session.is_dead {
            if session.is_attached {
                acts.push(Act::Detach(s));
            }
            return;
        }
        self.calls(play, s, acts);
        if !session.out.is_empty() {
            acts.push(Act::Serve(s));
        }
        if !session.back.is_empty() {
            acts.push(Act::Receive(s));
        }
        let is_push = |message: &Message| matches!(message, Message::Push(_));
        if does.overtakes && session.back.iter().skip_while(|message| is_push(message)).any(is_push) {
            acts.push(Act::Overtake(s));
        }
        for (n, attempt) in (0..).zip(&session.attempts) {
            let is_due = attempt.is_waiting() && attempt.asked_at < self.tick;
            if is_due && !session.is_open(n, Ask::asks) {
                acts.push(Act::Recheck(s, n));
            }
            let may_renew = does.renews && self.budget.renewals > 0 && attempt.inside(self.tick).is_some();
            if may_renew && !session.is_open(n, |ask| matches!(ask, Ask::Renew(_))) {
                acts.push(Act::Renew(s, n));
            }
        }
        if self.budget.lost_pushes > 0 && session.back.iter().any(is_push) {
            acts.push(Act::LosePush(s));
        }
        if does.cuts && self.budget.cuts > 0 && session.open().next().is_some() {
            acts.push(Act::Cut(s, false));
            if self.budget.buffers > 0 && !session.out.is_empty() {
                acts.push(Act::Cut(s, true));
            }
        }
        let is_in_play = session.attempts.iter().any(|attempt| !matches!(attempt.phase, Phase::New | Phase::Over));
        if does.crashes && self.budget.crashes > 0 && is_in_play {
            acts.push(Act::Crash(s));
        }
    }

    fn act(&mut self, play: &Play, act: Act) {
        let tick = self.tick;
        match act {
            Act::Tick => self.pass(),
            Act::Call(s, call) => self.call(play, s, call),
            Act::Serve(s) => {
                self.serve_next(play, s);
            }
            Act::ServeLate(s) => {
                if let Some(request) = self.sessions[s as usize].late.pop_front() {
                    self.serve(play, s, request);
                }
            }
            Act::Receive(s) => self.receive(play, s),
            Act::Overtake(s) => {
                let back = &mut self.sessions[s as usize].back;
                let first = back.iter().position(|message| matches!(message, Message::Push(_)));
                if let Some(push) = first.and_then(|at| back.remove(at)) {
                    back.push_front(push);
                }
                self.receive(play, s);
            }
            Act::Recheck(s, n) => self.sessions[s as usize].recheck(tick, n),
            Act::Renew(s, n) => {
                self.budget.renewals -= 1;
                let session = &mut self.sessions[s as usize];
                if let Phase::Holding { token, .. } = session.attempts[n as usize].phase {
                    session.send(tick, n, Ask::Renew(token));
                }
            }
            Act::LosePush(s) => {
                self.budget.lost_pushes -= 1;
                let back = &mut self.sessions[s as usize].back;
                if let Some(at) = back.iter().position(|message| matches!(message, Message::Push(_))) {
                    back.remove(at);
                }
            }
            Act::Cut(s, is_kept) => {
                self.budget.cuts -= 1;
                self.budget.buffers -= u8::from(is_kept);
                let session = &mut self.sessions[s as usize];
                if play.slips(Slip::RollsBack) {
                    roll_back(session);
                }
                session.cut(play, tick, is_kept);
            }
            Act::Crash(s) => {
                self.budget.crashes -= 1;
                let session = &mut self.sessions[s as usize];
                session.is_dead = true;
                session.attempts.iter_mut().for_each(|attempt| attempt.phase = Phase::Over);
                session.back.clear();
                session.late = std::mem::take(&mut session.out);
            }
            Act::Detach(s) => self.sessions[s as usize].is_attached = false,
            Act::Replicate => self.replica = Some(self.store.clone()),
            Act::FailOver => {
                self.budget.failovers -= 1;
                self.store = self.replica.take().unwrap_or_default();
                self.sessions.iter_mut().for_each(|session| session.meet_new_run(play, tick));
            }
        }
    }

    /// The store carries out the next request of a session. Returns whether there was one.
    fn serve_next(&mut self, play: &Play, s: u8) -> bool {
        let Some(request) = self.sessions[s as usize].out.pop_front() else { return false };
        let answer = self.serve(play, s, request);
        self.sessions[s as usize].back.push_back(Message::Reply(request, answer));
        true
    }

    /// A session receives its next message, unless that is a push. Returns whether there was one.
    fn receive_reply(&mut self, play: &Play, s: u8) -> bool {
        let is_next = matches!(self.sessions[s as usize].back.front(), Some(Message::Reply(..)));
        if is_next {
            self.receive(play, s);
        }
        is_next
    }

    /// Forgets fields that have no effect any more, so that there are fewer states. No record is forgotten in so few ticks.
    fn forget(&mut self) {
        self.store.keep_until_us = clock_us(u8::MAX);
        for attempt in self.sessions.iter_mut().flat_map(|session| &mut session.attempts) {
            if !attempt.is_waiting() {
                (attempt.asked_at, attempt.ticket, attempt.open_until) = (0, None, 0);
            }
            if attempt.phase == Phase::Over {
                let held = if self.budget.failovers > 0 { attempt.held } else { Token::NONE };
                *attempt = Attempt { phase: Phase::Over, held, ..Attempt::new(attempt.take) };
            }
        }
    }

    /// A tick passes, and some holders are at the end of their validity.
    fn pass(&mut self) {
        self.tick += 1;
        let tick = self.tick;
        for attempt in self.sessions.iter_mut().flat_map(|session| &mut session.attempts) {
            if matches!(attempt.phase, Phase::Holding { until, .. } if until <= tick) {
                attempt.phase = Phase::Over;
            }
        }
    }

    pub(super) fn note(&mut self, harm: Harm) {
        self.harms |= 1 << harm as u8;
    }

    pub(super) const fn has(&self, harm: Harm) -> bool {
        self.harms & 1 << harm as u8 != 0
    }

    pub(super) fn clock_us(&self) -> u64 {
        clock_us(self.tick)
    }

    /// Returns the attempts whose callers believe to hold, with their units.
    pub(super) fn inside(&self) -> impl Iterator<Item = (&Attempt, u32)> {
        let attempts = self.sessions.iter().flat_map(|session| &session.attempts);
        attempts.filter_map(|attempt| Some((attempt, attempt.inside(self.tick)?.1)))
    }

    /// Returns the attempt with this ID.
    pub(super) fn of(&mut self, id: GrantId) -> &mut Attempt {
        let (s, n) = attempt_of(id);
        &mut self.sessions[s as usize].attempts[n as usize]
    }
}

/// P39, switched off: a downgrade without a reply is taken back.
fn roll_back(session: &mut Session) {
    if !session.is_open(0, |ask| matches!(ask, Ask::Lower(..))) {
        return;
    }
    let Attempt { phase, take: Take { units: all, .. }, .. } = &mut session.attempts[0];
    if let Phase::Holding { units, .. } = phase {
        *units = *all;
    }
}
