//! The state of the model: the condition variable, the lock, the buffer, the sessions, and the effect of each event.

use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Env, From, Hears, Kind, Op, Order, Patience, Place, Renew, Resource,
    SessionId, Take, Token, step,
};
use stateright::{Model, Property};

use super::scenes::{Budget, CLAIM, Harm, LEASE, Play, Slip};
use super::waiter::{Ask, Message, Phase, Session};
use crate::models::scene::{TICK_MS, clock_us};
use crate::models::server::grant_id;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct World {
    pub(super) tick: u8,
    pub(super) store: Resource,
    /// The store before its last change, while it may fail over.
    copy: Resource,
    run: u8,
    /// The holder of the lock.
    pub(super) holder: Option<u8>,
    pub(super) items: u8,
    /// The waiters, and the notifier behind them.
    pub(super) sessions: Vec<Session>,
    budget: Budget,
    has_stock: bool,
    is_too_many: bool,
}

/// An event that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Act {
    Tick,
    /// A session takes the lock: a waiter looks at the buffer, and the notifier puts an item in.
    Lock(u8),
    Serve(u8),
    Receive(u8),
    Recheck(u8),
    LosePush(u8),
    Cut(u8),
    Attach(u8),
    Crash(u8),
    /// The store notices that the inbox of a dead session is gone.
    Detach(u8),
    Failover,
}

impl Model for Play {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        let waiters = (0..self.scene.waiters).map(|_| Session::new(Phase::Looks(None)));
        vec![World {
            tick: 0,
            store: Resource::default(),
            copy: Resource::default(),
            run: 0,
            holder: None,
            items: 0,
            sessions: waiters.chain([Session::new(Phase::Adds(self.scene.items))]).collect(),
            budget: self.scene.budget,
            has_stock: false,
            is_too_many: false,
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        if world.tick < self.scene.until && world.is_settled() {
            acts.push(Act::Tick);
        }
        let has_faults = world.tick <= self.scene.last_fault();
        if has_faults && world.budget.failovers > 0 {
            acts.push(Act::Failover);
        }
        for (s, session) in (0..).zip(&world.sessions) {
            world.acts(self, (s, session), has_faults, acts);
        }
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        next.act(self, act);
        next.store.keep_until_us = clock_us(u8::MAX);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(Harm::SleepsOn.name(), |play: &Play, world: &World| !world.sleeps_on(play)),
            Property::always(Harm::StockStays.name(), |_, world: &World| !world.has_stock),
            Property::always(Harm::TooMany.name(), |_, world: &World| !world.is_too_many),
        ];
        if let Some(harm) = self.watch {
            all.retain(|property| property.name == harm.name());
            return all;
        }
        if self.scene.waiters > self.scene.items {
            all.push(Property::sometimes("a waiter stands in the queue at the end", |play: &Play, world: &World| {
                world.is_over(play) && world.sessions.iter().any(|session| session.phase == Phase::Stands)
            }));
            return all;
        }
        all.push(Property::sometimes("every item was taken by a waiter that was notified", |_, world: &World| {
            world.items == 0 && world.sessions.iter().all(|session| session.phase == Phase::Done && !session.is_dead)
        }));
        all
    }
}

impl World {
    fn acts(&self, play: &Play, (s, session): (u8, &Session), has_faults: bool, acts: &mut Vec<Act>) {
        if session.is_dead {
            if session.is_attached {
                acts.push(Act::Detach(s));
            }
            return;
        }
        if self.holder.is_none() && matches!(session.phase, Phase::Looks(_) | Phase::Adds(_)) {
            acts.push(Act::Lock(s));
        }
        if !session.is_attached {
            return acts.push(Act::Attach(s));
        }
        if !session.out.is_empty() {
            acts.push(Act::Serve(s));
        }
        if !session.back.is_empty() {
            acts.push(Act::Receive(s));
        }
        if session.phase == Phase::Stands && session.asked_at < self.tick && !session.asks() {
            acts.push(Act::Recheck(s));
        }
        let is_waiter = s < play.scene.waiters;
        if !has_faults || !is_waiter {
            return;
        }
        if self.budget.lost_pushes > 0 && session.back.iter().any(|message| matches!(message, Message::Push(_))) {
            acts.push(Act::LosePush(s));
        }
        if self.budget.cuts > 0 {
            acts.push(Act::Cut(s));
        }
        if self.budget.crashes > 0 && session.phase != Phase::Done {
            acts.push(Act::Crash(s));
        }
    }

    fn act(&mut self, play: &Play, act: Act) {
        let (tick, run) = (self.tick, self.run);
        match act {
            Act::Tick => self.tick += 1,
            Act::Lock(s) => self.lock(play, s),
            Act::Serve(s) => {
                let Some(ask) = self.sessions[s as usize].out.pop_front() else { return };
                let answer = self.serve(s, ask);
                self.sessions[s as usize].back.push_back(Message::Reply(ask, answer));
            }
            Act::Receive(s) => self.receive(play, s),
            Act::Recheck(s) => self.sessions[s as usize].recheck(tick),
            Act::LosePush(s) => {
                self.budget.lost_pushes -= 1;
                let back = &mut self.sessions[s as usize].back;
                if let Some(at) = back.iter().position(|message| matches!(message, Message::Push(_))) {
                    back.remove(at);
                }
            }
            Act::Cut(s) => {
                self.budget.cuts -= 1;
                self.sessions[s as usize].cut();
            }
            Act::Attach(s) => self.sessions[s as usize].attach(play, (tick, run)),
            Act::Crash(s) => {
                self.budget.crashes -= 1;
                let session = &mut self.sessions[s as usize];
                (session.is_dead, session.phase) = (true, Phase::Done);
                session.out.clear();
                session.back.clear();
                self.holder = self.holder.filter(|holder| *holder != s);
            }
            Act::Detach(s) => self.sessions[s as usize].is_attached = false,
            Act::Failover => {
                self.budget.failovers -= 1;
                self.run += 1;
                self.store = self.copy.clone();
                self.sessions.iter_mut().filter(|session| !session.is_dead).for_each(Session::cut);
            }
        }
        if self.budget.failovers == 0 {
            self.copy = Resource::default();
        }
    }

    /// A section under the lock. It takes no time, unless it ends by a wait.
    fn lock(&mut self, play: &Play, s: u8) {
        let tick = self.tick;
        let session = &mut self.sessions[s as usize];
        if let Phase::Adds(left) = session.phase {
            self.items += 1;
            session.phase = Phase::Notifies(left - 1);
            return session.out.push_back(Ask::Notify);
        }
        let Phase::Looks(notification) = session.phase else { return };
        if let Some(token) = notification {
            session.out.push_back(Ask::Spend(session.n, token));
        }
        if self.items > 0 {
            self.items -= 1;
            session.phase = Phase::Done;
            return;
        }
        session.enter(tick);
        self.holder = Some(s).filter(|_| !play.slips(Slip::ReleasesFirst));
    }

    /// Carries out a request, and returns the reply. The pushes of the step are on their way before it.
    fn serve(&mut self, s: u8, ask: Ask) -> Answer {
        let lease_us = clock_us(self.tick);
        let before = self.store.clone();
        let sessions = &self.sessions;
        let attached = |id: SessionId| sessions[id.0 as usize].is_attached;
        let env = Env { wall_us: lease_us, lease_us, attached: &attached };
        let (answer, pushes) = step(&mut self.store, &env, &operation(self.tick, s, ask));
        if self.budget.failovers > 0 && before != self.store {
            self.copy = before;
        }
        let is_condition = self.store.kind == Kind::Condition;
        self.has_stock |= is_condition && self.store.is_idle() && self.store.limit > self.store.grants.units();
        self.is_too_many |= self.store.limit < self.store.grants.units();
        for push in pushes {
            let session = &mut self.sessions[push.to.0 as usize];
            if !session.is_dead {
                session.back.push_back(Message::Push(Delivery { contention: Contention::None, ..push }));
            }
        }
        Answer { contention: Contention::None, handed_claim_ms: None, ..answer }
    }

    /// Whether everything is done that takes no time: ticks are rare, and between two of them messages arrive.
    fn is_settled(&self) -> bool {
        let is_still = |session: &Session| session.is_dead || session.out.is_empty() && session.back.is_empty();
        self.sessions.iter().all(is_still)
    }

    /// Whether nothing can happen any more.
    fn is_over(&self, play: &Play) -> bool {
        let is_done = |session: &Session| match session.phase {
            Phase::Done => true,
            Phase::Stands => session.asked_at == self.tick && session.is_attached,
            _ => false,
        };
        // The grant of a dead waiter goes on when it ends.
        let is_held = self.store.grants.iter().any(|grant| grant.end_us() > clock_us(self.tick));
        self.tick == play.scene.until && !is_held && self.is_settled() && self.sessions.iter().all(is_done)
    }

    fn sleeps_on(&self, play: &Play) -> bool {
        self.is_over(play) && self.items > 0 && self.sessions.iter().any(|session| session.phase == Phase::Stands)
    }
}

fn operation(tick: u8, s: u8, ask: Ask) -> Op {
    let (lease_ms, claim_ms) = (u64::from(LEASE) * TICK_MS, u64::from(CLAIM) * TICK_MS);
    let not_after_us = clock_us(tick + 1);
    match ask {
        Ask::Queue(n, ticket) => Op::Acquire(Acquire {
            id: grant_id(s, n),
            take: Take::NOTIFICATION,
            lease_ms,
            range: 1,
            not_after_us,
            patience: Patience::Queue(Place {
                claim_ms,
                limit_ms: None,
                ticket,
                hears: Hears::Listens,
                order: Order::Relaxed,
            }),
            label: "".into(),
        }),
        Ask::Renew(n, token) => Op::Renew(Renew { id: grant_id(s, n), token, from: From::Now, lease_ms, not_after_us }),
        Ask::Leave(n) => Op::Leave { id: grant_id(s, n), used: Token::NONE },
        Ask::Spend(n, token) => Op::Spend { id: grant_id(s, n), token },
        Ask::Notify => Op::Notify { count: 1 },
    }
}
