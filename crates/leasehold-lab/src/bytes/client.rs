//! The simulated clients: programs that lock, work, lose leases and give them back, in every way that the library has.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use leasehold::seam::{RedisStore, World};
use leasehold::{Error, ErrorKind, Guard, Leasehold, Mutex, Owner};
use leasehold_testkit::history::{Answered, Ended, GaveUp, Held};
use leasehold_testkit::registers::InMemory;
use leasehold_testkit::{Random, Recorder};

use super::server::{HOST, PORT};
use super::trace::Trace;
use super::world::{Clock, Simulated};

pub(super) const NAMES: [&str; 2] = ["a", "b {%}"];
/// Tasks of one client.
const TASKS: usize = 2;
/// The time that a program's own waiting adds to a bound of the library.
const SLACK_US: u64 = 50_000;

/// How programs use locks in this seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// The leases that they ask for.
    pub(super) lease_ms: (u64, u64),
    /// In how many cases of a hundred a lease is never renewed.
    pub(super) fixed_percent: u64,
    /// The longest section.
    pub(super) work_ms: u64,
    /// In how many cases of a hundred a future is dropped.
    pub(super) drop_percent: u64,
    pub(super) owner_percent: u64,
}

/// The state that all programs of a simulation share; it is no part of the system under test.
pub(super) struct Yard {
    pub(super) clock: Clock,
    pub(super) trace: Trace,
    pub(super) recorder: Recorder,
    pub(super) habits: Habits,
    /// The registers that the locks protect.
    registers: RefCell<BTreeMap<&'static str, InMemory>>,
    random: RefCell<Random>,
    /// Programs begin nothing new.
    pub(super) is_over: Cell<bool>,
    /// Programs that were started, and have neither ended nor been killed.
    pub(super) running: RefCell<BTreeMap<String, u64>>,
    /// The failures.
    pub(super) wrong: RefCell<Vec<String>>,
    incarnations: Cell<u64>,
}

impl Yard {
    pub(super) fn new(clock: &Clock, trace: &Trace, habits: Habits, random: Random) -> Rc<Self> {
        let time = clock.clone();
        Rc::new(Self {
            clock: clock.clone(),
            trace: trace.clone(),
            recorder: Recorder::in_memory().on_clock(move || time.now_us()),
            habits,
            registers: RefCell::default(),
            random: RefCell::new(random),
            is_over: Cell::new(false),
            running: RefCell::default(),
            wrong: RefCell::default(),
            incarnations: Cell::new(0),
        })
    }

    fn fork(&self) -> Random {
        Random::new(self.random.borrow_mut().number())
    }

    pub(super) fn wrong(&self, what: String) {
        self.trace.record("WRONG", &what);
        self.wrong.borrow_mut().push(what);
    }

    /// Records the final values of the registers.
    pub(super) fn record_final(&self) {
        for (name, register) in &*self.registers.borrow() {
            register.finals(name).into_iter().for_each(|event| self.recorder.record(event));
        }
    }
}

/// Runs the program on a client's host. It starts anew when the host does.
pub(super) async fn run(yard: Rc<Yard>, host: String) -> turmoil::Result {
    // Each life has a new name: no two clients of a history have the same.
    yard.incarnations.set(yard.incarnations.get() + 1);
    let me = format!("{host}.{}", yard.incarnations.get());
    yard.running.borrow_mut().insert(host.clone(), yard.clock.now_us());
    let world: Arc<dyn World> = Arc::new(Simulated::new(&yard.clock, &me, yard.fork()));
    let Some(client) = connect(&yard, &me, world).await else {
        yard.running.borrow_mut().remove(&host);
        return Ok(());
    };
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (yard, client) = (Rc::clone(&yard), client.clone());
            let program =
                Program { random: yard.fork(), owner: Owner::new(), me: format!("{me}/{task}"), yard, client };
            tokio::task::spawn_local(program.run())
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    let asked_us = yard.clock.now_us();
    let closed = client.close().await;
    let took_us = yard.clock.now_us() - asked_us;
    if took_us > 5_000_000 + SLACK_US || !closed.unconfirmed().is_empty() {
        yard.wrong(format!("{me}: close took {took_us} µs, and left {:?}", closed.unconfirmed()));
    }
    yard.running.borrow_mut().remove(&host);
    Ok(())
}

async fn connect(yard: &Yard, me: &str, world: Arc<dyn World>) -> Option<Leasehold> {
    while !yard.is_over.get() {
        let asked_us = yard.clock.now_us();
        let url = format!("redis://{HOST}:{PORT}");
        let store = Arc::new(RedisStore::new(&url, Arc::clone(&world)).expect("a good URL"));
        let connected = Leasehold::builder(&url).holder(me).connect_to(store, Arc::clone(&world)).await;
        let took_us = yard.clock.now_us() - asked_us;
        // The client waits a second longer for the callers' lane.
        if took_us > 6_000_000 + SLACK_US {
            yard.wrong(format!("{me}: connect took {took_us} µs"));
        }
        match connected {
            Ok(client) => {
                yard.trace.record("connect", me);
                return Some(client);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Unsupported) => {
                yard.trace.record("no connection", &format!("{me}: {error}"));
            }
            Err(error) => yard.wrong(format!("{me}: connect: {error}")),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// One task of a program.
struct Program {
    yard: Rc<Yard>,
    client: Leasehold,
    owner: Owner,
    me: String,
    random: Random,
}

impl Program {
    async fn run(mut self) {
        while !self.yard.is_over.get() {
            self.turn().await;
            let pause_ms = self.random.below(60);
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    async fn turn(&mut self) {
        let habits = self.yard.habits;
        let name = *self.random.pick(&NAMES);
        let lease = Duration::from_millis(self.random.within(habits.lease_ms.0, habits.lease_ms.1));
        let mut mutex = self.client.mutex(name);
        mutex = if self.random.chance(habits.fixed_percent) { mutex.fixed_lease(lease) } else { mutex.lease(lease) };
        if self.random.chance(10) {
            mutex = mutex.fair();
        }
        if self.random.chance(10) {
            mutex = mutex.full_lease();
        }
        let is_owner = self.random.chance(habits.owner_percent);
        if is_owner {
            mutex = mutex.owner(&self.owner);
        }
        let attempt = self.yard.recorder.attempt(name, &self.me);
        let guard = match self.ask(&mutex, lease).await {
            Ok(guard) => guard,
            Err(why) => return attempt.gave_up(why),
        };
        self.yard.trace.record("granted", &format!("{} {name} {}", self.me, guard.token()));
        let held = attempt.granted(guard.token().get());
        if is_owner {
            self.enter_again(&mutex, &guard).await;
        }
        self.work(name, &guard, &held).await;
        self.give_back(name, guard, &held).await;
    }

    /// Asks for the lock in one of the ways that there are.
    async fn ask(&mut self, mutex: &Mutex, lease: Duration) -> Result<Guard, GaveUp> {
        let asked_us = self.yard.clock.now_us();
        let is_dropped = self.random.chance(self.yard.habits.drop_percent);
        let patience = Duration::from_millis(self.random.below(1_500));
        let (way, answer, within) = match self.random.below(10) {
            _ if is_dropped => {
                let Ok(locked) = tokio::time::timeout(patience, mutex.lock()).await else {
                    self.yard.trace.record("drop", &self.me);
                    return Err(GaveUp::Cancelled);
                };
                ("lock", locked.map(Some), None)
            }
            0..5 => ("lock", mutex.lock().await.map(Some), None),
            5..7 => {
                let within = (lease / 6).clamp(Duration::from_millis(50), Duration::from_secs(2));
                ("try_lock", mutex.try_lock().await, Some(within))
            }
            // Half a second, or four round trips: a delayed reply makes those long.
            _ => ("try_lock_for", mutex.try_lock_for(patience).await, Some(patience + Duration::from_secs(2))),
        };
        let took_us = self.yard.clock.now_us() - asked_us;
        if within.is_some_and(|within| u128::from(took_us) > within.as_micros() + u128::from(SLACK_US)) {
            self.yard.wrong(format!("{}: {way} took {took_us} µs, and may take {within:?}", self.me));
        }
        match answer {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => {
                self.yard.trace.record("busy", &self.me);
                Err(if way == "try_lock" { GaveUp::Busy } else { GaveUp::TimedOut })
            }
            Err(error) => {
                self.judge(way, &error);
                Err(GaveUp::Failed(error.to_string()))
            }
        }
    }

    /// Judges whether this error is permitted: the docs of each call say so.
    fn judge(&self, way: &'static str, error: &Error) {
        let is_fine = match error.kind() {
            ErrorKind::Unreachable => way != "lock",
            // A server without memory, or an owner's lost lease. Here only an injected fault causes either.
            ErrorKind::Store => error.to_string().contains("out of memory"),
            _ => false,
        };
        self.yard.trace.record("error", &format!("{} {way}: {error}", self.me));
        if !is_fine {
            self.yard.wrong(format!("{}: {way}: {error}", self.me));
        }
    }

    async fn enter_again(&self, mutex: &Mutex, outer: &Guard) {
        match mutex.try_lock().await {
            Ok(Some(inner)) => {
                self.yard.trace.record("re-enter", &self.me);
                if inner.token() != outer.token() {
                    self.yard.wrong(format!("{}: entered again with {} for {}", self.me, inner.token(), outer.token()));
                }
            }
            Ok(None) => self.yard.wrong(format!("{}: an owner is busy with itself", self.me)),
            Err(error) if error.kind() == ErrorKind::Lost => {}
            Err(error) => self.yard.wrong(format!("{}: entering again: {error}", self.me)),
        }
    }

    /// Checks, works and writes, until the section or the lease ends.
    async fn work(&mut self, name: &'static str, guard: &Guard, held: &Held) {
        let until_us = self.yard.clock.now_us() + self.random.below(self.yard.habits.work_ms * 1000);
        let is_valid = || guard.check().is_ok();
        while held.claims(is_valid) {
            let counting = held.counting();
            let read = self.yard.registers.borrow().get(name).copied().unwrap_or_default().read();
            let think_ms = self.random.within(1, 30);
            tokio::time::sleep(Duration::from_millis(think_ms)).await;
            if !held.claims(is_valid) {
                break;
            }
            // The write is in flight for some time: the fence is for this.
            let way_ms = self.random.below(3);
            tokio::time::sleep(Duration::from_millis(way_ms)).await;
            let answer = {
                let mut registers = self.yard.registers.borrow_mut();
                let register = registers.entry(name).or_default();
                register.write(read + 1);
                register.write_fenced(guard.token().get())
            };
            held.fenced(answer);
            counting.wrote(read, Answered::Acknowledged);
            if self.yard.clock.now_us() >= until_us {
                break;
            }
        }
    }

    async fn give_back(&mut self, name: &str, guard: Guard, held: &Held) {
        let how = guard.check().err().map_or(Ended::Released, |lost| Ended::Lost(format!("{:?}", lost.reason())));
        if let Ended::Lost(why) = &how {
            self.yard.trace.record("lost", &format!("{} {name} {} {why}", self.me, guard.token()));
        }
        held.ended(how);
        match self.random.below(4) {
            0 => drop(guard),
            1 => {
                let patience = Duration::from_millis(self.random.below(20));
                if tokio::time::timeout(patience, guard.release()).await.is_err() {
                    self.yard.trace.record("drop release", &self.me);
                }
            }
            _ => match guard.release().await {
                Ok(released) => self.yard.trace.record("release", &format!("{} {released:?}", self.me)),
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    self.yard.trace.record("error", &format!("{} release: {error}", self.me));
                }
                Err(error) => self.yard.wrong(format!("{}: release: {error}", self.me)),
            },
        }
    }
}
