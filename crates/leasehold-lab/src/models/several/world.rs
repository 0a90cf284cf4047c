//! The state of the model: the mutexes, the tasks, and the effect of each event.

use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Env, From, Grant, GrantId, Hears, Op, Order, Patience, Place, Renew,
    Resource, SessionId, Take, Token, acquire_all, step,
};
use stateright::{Model, Property};

use super::scenes::{Budget, CLAIM, Harm, LEASE, Play};
use super::task::{Ask, MEMBERS, Message, Phase, Task, member};
use crate::models::scene::{TICK_MS, clock_us};
use crate::models::server::grant_id;

const TASKS: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) struct World {
    pub(super) tick: u8,
    pub(super) mutexes: [Resource; MEMBERS],
    pub(super) tasks: [Task; TASKS],
    budget: Budget,
    /// Whether the store has granted both by one request, and whether it has refused such a request.
    has_granted_all: bool,
    has_refused_all: bool,
}

/// An event that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::models) enum Act {
    Tick,
    Begin(u8),
    Serve(u8),
    Receive(u8),
    Recheck(u8),
    Finish(u8),
    LosePush(u8),
    Cut(u8),
    Attach(u8),
    Crash(u8),
    /// The store notices that the inbox of a dead session is gone.
    Detach(u8),
    Stop(u8),
    GoOn(u8),
}

impl Model for Play {
    type State = World;
    type Action = Act;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            tick: 0,
            mutexes: Default::default(),
            tasks: [Task::new(), Task::new()],
            budget: self.scene.budget,
            has_granted_all: false,
            has_refused_all: false,
        }]
    }

    fn actions(&self, world: &World, acts: &mut Vec<Act>) {
        if world.tick < self.scene.until && world.is_settled(self) {
            acts.push(Act::Tick);
        }
        let has_faults = world.tick <= self.scene.last_fault();
        for (s, task) in (0..).zip(&world.tasks) {
            world.acts((s, task), has_faults, acts);
        }
    }

    fn next_state(&self, world: &World, act: Act) -> Option<World> {
        let mut next = world.clone();
        next.act(self, act);
        next.mutexes.iter_mut().for_each(|mutex| mutex.keep_until_us = clock_us(u8::MAX));
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always(Harm::Shared.name(), |play: &Play, world: &World| !world.is_shared(play)),
            Property::always(Harm::Circle.name(), |play: &Play, world: &World| !world.is_circle(play)),
            Property::always(Harm::WaitsForEver.name(), |play: &Play, world: &World| {
                !world.is_over(play) || world.tasks.iter().all(|task| task.phase == Phase::Done)
            }),
            Property::always(Harm::Orphan.name(), |_, world: &World| !world.has_orphan()),
        ];
        if let Some(harm) = self.watch {
            all.retain(|property| property.name == harm.name());
            return all;
        }
        all.push(Property::sometimes("both tasks have worked", |_, world: &World| {
            world.tasks.iter().all(|task| task.phase == Phase::Done && !task.is_dead)
        }));
        if self.scene.asks_for_all {
            all.push(Property::sometimes("both were granted by one request", |_, world: &World| world.has_granted_all));
            all.push(Property::sometimes("a request for both was refused", |_, world: &World| world.has_refused_all));
        }
        all
    }
}

impl World {
    fn acts(&self, (s, task): (u8, &Task), has_faults: bool, acts: &mut Vec<Act>) {
        // A request that is on its way is carried out, whatever its session does.
        if task.is_attached && !task.out.is_empty() {
            acts.push(Act::Serve(s));
        }
        if task.is_dead {
            if task.is_attached && task.out.is_empty() {
                acts.push(Act::Detach(s));
            }
            return;
        }
        if task.is_stopped {
            return acts.push(Act::GoOn(s));
        }
        if !task.is_attached {
            return acts.push(Act::Attach(s));
        }
        if !task.back.is_empty() {
            acts.push(Act::Receive(s));
        }
        match task.phase {
            Phase::Wants => acts.push(Act::Begin(s)),
            Phase::Waits(_) if task.asked_at < self.tick && task.out.is_empty() && task.back.is_empty() => {
                acts.push(Act::Recheck(s));
            }
            Phase::Works(since) if since < self.tick => acts.push(Act::Finish(s)),
            _ => {}
        }
        if !has_faults {
            return;
        }
        let Budget { lost_pushes, cuts, crashes, stops } = self.budget;
        if lost_pushes > 0 && task.back.iter().any(|message| matches!(message, Message::Push(..))) {
            acts.push(Act::LosePush(s));
        }
        let is_busy = !matches!(task.phase, Phase::Wants | Phase::Done);
        let faults = [(cuts, Act::Cut(s)), (crashes, Act::Crash(s)), (stops, Act::Stop(s))];
        acts.extend(faults.into_iter().filter(|(left, _)| *left > 0 && is_busy).map(|(_, act)| act));
    }

    fn act(&mut self, play: &Play, act: Act) {
        let tick = self.tick;
        match act {
            Act::Tick => self.tick += 1,
            Act::Begin(s) => self.task(s).begin(play, (s, tick)),
            Act::Serve(s) => self.serve(s),
            Act::Receive(s) => self.task(s).receive(play, (s, tick)),
            Act::Recheck(s) => self.task(s).recheck(play, (s, tick)),
            Act::Finish(s) => self.task(s).finish(play, s),
            Act::LosePush(s) => {
                self.budget.lost_pushes -= 1;
                let back = &mut self.task(s).back;
                if let Some(at) = back.iter().position(|message| matches!(message, Message::Push(..))) {
                    back.remove(at);
                }
            }
            Act::Cut(s) => {
                self.budget.cuts -= 1;
                self.task(s).cut(play, (s, tick));
            }
            // The session asks at once for what it waits for.
            Act::Attach(s) => {
                let task = self.task(s);
                task.is_attached = true;
                task.recheck(play, (s, tick));
            }
            Act::Crash(s) => {
                self.budget.crashes -= 1;
                let task = self.task(s);
                (task.is_dead, task.phase) = (true, Phase::Done);
                task.back.clear();
            }
            Act::Detach(s) => self.task(s).is_attached = false,
            Act::Stop(s) => {
                self.budget.stops -= 1;
                self.task(s).is_stopped = true;
            }
            Act::GoOn(s) => self.task(s).is_stopped = false,
        }
    }

    fn task(&mut self, s: u8) -> &mut Task {
        &mut self.tasks[usize::from(s)]
    }

    /// Carries out the next request of a session. The pushes of the step are on their way before the reply.
    fn serve(&mut self, s: u8) {
        let Some(ask) = self.task(s).out.pop_front() else { return };
        let lease_us = clock_us(self.tick);
        let Self { mutexes, tasks, .. } = self;
        let attached = |id: SessionId| tasks[id.0 as usize].is_attached;
        let env = Env { wall_us: lease_us, lease_us, attached: &attached };
        let (answers, pushes) = match ask {
            Ask::All { n, sent } => {
                let requests = [0, 1].map(|member| request(member_id(s, n, member), sent, Patience::Try));
                let mut members: Vec<_> = mutexes.iter_mut().zip(&requests).collect();
                (acquire_all(&mut members, &env).unwrap_or_default(), Vec::new())
            }
            Ask::Queue { member, .. } | Ask::Renew { member, .. } | Ask::Leave { member, .. } => {
                let (answer, pushes) = step(&mut mutexes[member], &env, &operation(s, ask));
                (vec![answer], pushes.into_iter().map(|push| (member, push)).collect())
            }
        };
        if matches!(ask, Ask::All { .. }) {
            self.has_granted_all |= !answers.is_empty();
            self.has_refused_all |= answers.is_empty();
        }
        for (member, push) in pushes {
            let task = &mut self.tasks[push.to.0 as usize];
            if !task.is_dead {
                task.back.push_back(Message::Push(member, Delivery { contention: Contention::None, ..push }));
            }
        }
        if !self.task(s).is_dead {
            let quiet = |answer| Answer { contention: Contention::None, handed_claim_ms: None, ..answer };
            self.task(s).back.push_back(Message::Reply(ask, answers.into_iter().map(quiet).collect()));
        }
    }

    /// Whether everything is done that takes no time: ticks are rare, and between two of them messages arrive. Each tick
    /// brings a re-check to every task that waits, and an end to every task that works. A stop ends soon after the last
    /// fault.
    fn is_settled(&self, play: &Play) -> bool {
        let may_stop = self.tick < play.scene.last_fault() + LEASE;
        let is_still = |task: &Task| match task.phase {
            Phase::Wants | Phase::AsksForAll => false,
            Phase::Waits(_) => task.is_attached && task.asked_at == self.tick,
            Phase::Works(since) => task.is_attached && since == self.tick,
            Phase::Done => task.is_attached || task.is_dead,
        };
        self.tasks.iter().all(|task| {
            let is_away = task.is_dead || task.is_stopped && may_stop;
            task.out.is_empty() && (is_away || task.back.is_empty() && !task.is_stopped && is_still(task))
        })
    }

    /// Whether nothing can happen any more that helps a task.
    fn is_over(&self, play: &Play) -> bool {
        let is_still = |task: &Task| !task.is_stopped && !matches!(task.phase, Phase::Works(_));
        self.tick == play.scene.until && self.is_settled(play) && self.tasks.iter().all(is_still)
    }

    /// Whether a task believes that it may work while another client holds one of its mutexes.
    fn is_shared(&self, play: &Play) -> bool {
        let is_in_force = |grant: &&Grant| grant.end_us() > clock_us(self.tick);
        let mut holders = self.mutexes.iter().flat_map(|mutex| mutex.grants.iter().filter(is_in_force));
        holders.any(|grant| {
            let mut others = (0_u128..).zip(&self.tasks).filter(|(s, _)| *s != grant.id.session.0);
            others.any(|(_, task)| task.believes(play, self.tick))
        })
    }

    /// Whether both tasks hold a mutex for which the other one waits.
    fn is_circle(&self, play: &Play) -> bool {
        let [a, b] = &self.tasks;
        let waits_for = |(s, task): (u8, &Task), holder: &Task| match task.phase {
            Phase::Waits(at) => holder.held[member(play, s, at)].is_some(),
            _ => false,
        };
        waits_for((0, a), b) && waits_for((1, b), a)
    }

    /// Whether a live client that has nothing under way would find a mutex held for an attempt that it has given up.
    fn has_orphan(&self) -> bool {
        self.mutexes.iter().enumerate().any(|(member, mutex)| {
            mutex.grants.iter().filter(|grant| grant.end_us() > clock_us(self.tick)).any(|grant| {
                let (task, n) = (&self.tasks[grant.id.session.0 as usize], attempt_of(grant.id));
                let is_known = task.held[member].is_some_and(|held| held.n == n) || task.n == n;
                !task.is_dead && task.out.is_empty() && task.back.is_empty() && !is_known
            })
        })
    }
}

/// Returns the ID of an attempt. Each mutex of a request for both has another one.
fn member_id(s: u8, n: u8, member: usize) -> GrantId {
    GrantId { nonce: member as u64, ..grant_id(s, n) }
}

fn attempt_of(id: GrantId) -> u8 {
    id.counter as u8
}

fn request(id: GrantId, sent: u8, patience: Patience) -> Acquire {
    Acquire {
        id,
        take: Take::MUTEX,
        lease_ms: u64::from(LEASE) * TICK_MS,
        range: 1,
        not_after_us: clock_us(sent + 1),
        patience,
        label: "".into(),
    }
}

fn operation(s: u8, ask: Ask) -> Op {
    let claim_ms = u64::from(CLAIM) * TICK_MS;
    match ask {
        Ask::Queue { member, n, sent } => {
            let (hears, order) = (Hears::Listens, Order::Relaxed);
            let place = Place { claim_ms, limit_ms: None, ticket: None, hears, order };
            Op::Acquire(request(member_id(s, n, member), sent, Patience::Queue(place)))
        }
        Ask::Renew { member, n, token, sent } => Op::Renew(Renew {
            id: member_id(s, n, member),
            token,
            from: From::Now,
            lease_ms: u64::from(LEASE) * TICK_MS,
            not_after_us: clock_us(sent + 1),
        }),
        Ask::Leave { member, n } => Op::Leave { id: member_id(s, n, member), used: Token::NONE },
        Ask::All { .. } => unreachable!("not a step about one name"),
    }
}
