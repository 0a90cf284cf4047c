//! The executor: virtual time, and processes that stand still, sleep, and die.
//!
//! Tokio's paused clock (and turmoil, and madsim on top of such) gives all tasks one time. What breaks locks is that
//! there is more than one: a process stands still while its clock goes on, or sleeps while its timers stand still, or runs
//! a per mille fast. So every task belongs to a process, and every process has
//!
//! - a clock of its own, of which offset and rate differ from true time;
//! - two parts, as a real client has: its own thread (P17) and the program's runtime, which may be blocked alone;
//! - a fate: it goes on, stands still (nothing runs, its timers ring unheard, its sockets fill), sleeps (its timers stand
//!   still as well, its clock does not), or is dead.
//!
//! One thread runs it all. Of the tasks that are ready one is taken by chance, so that a seed is a schedule; a ready task
//! may also be kept waiting for a moment, as on a busy machine. When nobody is ready time goes on to the next timer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold::seam::Pending;

use super::plan::HICCUP_US;
use super::process::{Process, scale};
use super::rng::Rng;
use super::timer::{Bell, Sleep, Timer, What};

/// Which process.
pub(super) type Pid = usize;

/// The part of a process that a task belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The client's own thread.
    Session,
    /// The program's runtime.
    Runtime,
}

/// The world around the clients: it has no clock but the true one, and nobody stops it.
pub(super) const NOBODY: Pid = 0;

/// So many polls and events at one moment are a livelock.
const STEPS_AT_ONCE: u32 = 200_000;

pub(super) struct Exec {
    core: Mutex<Core>,
    ready: Arc<Ready>,
}

type Ready = Mutex<Vec<u64>>;

struct Core {
    now_us: u64,
    rng: Rng,
    hash: u64,
    steps: u64,
    steps_now: u32,
    next_id: u64,
    timers: BinaryHeap<Reverse<Timer>>,
    tasks: BTreeMap<u64, Task>,
    processes: Vec<Process>,
    current: (Pid, Part),
    /// One in so many polls is put off.
    hiccup_in: u64,
}

struct Task {
    pid: Pid,
    part: Part,
    what: &'static str,
    future: Option<Pending<()>>,
    waker: Arc<TaskWaker>,
}

struct TaskWaker {
    id: u64,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

/// Why a run of the executor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The time is over.
    Time,
    /// Nothing will ever happen again.
    Idle,
    /// Too much happened at one moment.
    Livelock,
    /// What was waited for has come.
    Done,
}

impl Exec {
    pub(super) fn new(rng: Rng, hiccup_in: u64) -> Self {
        let core = Core {
            now_us: 0,
            rng,
            hash: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            steps_now: 0,
            next_id: 1,
            timers: BinaryHeap::new(),
            tasks: BTreeMap::new(),
            processes: vec![Process::default()],
            current: (NOBODY, Part::Runtime),
            hiccup_in,
        };
        Self { core: Mutex::new(core), ready: Arc::default() }
    }

    /// Runs until `until_us`, or until `is_done` says so.
    pub(super) fn run(&self, until_us: u64, mut is_done: impl FnMut() -> bool) -> Stop {
        loop {
            if is_done() {
                return Stop::Done;
            }
            if self.core().steps_now > STEPS_AT_ONCE {
                return Stop::Livelock;
            }
            if let Some(id) = self.pick() {
                self.poll(id);
                continue;
            }
            match self.next_timer(until_us) {
                Ok(timer) => self.fire(timer),
                Err(stop) => return stop,
            }
        }
    }

    /// True time.
    pub(super) fn now_us(&self) -> u64 {
        self.core().now_us
    }

    /// What the clock of a process shows, the one that goes on while the machine sleeps.
    pub(super) fn local_us(&self, pid: Pid) -> u64 {
        let core = self.core();
        core.processes[pid].clock_us(core.now_us)
    }

    pub(super) fn start(&self, offset_us: u64, rate_ppm: i64) -> Pid {
        let mut core = self.core();
        core.processes.push(Process::new(offset_us, rate_ppm));
        core.processes.len() - 1
    }

    /// For how long a process could not run so far.
    pub(super) fn halted_us(&self, pid: Pid) -> u64 {
        let core = self.core();
        core.processes[pid].halted_us(core.now_us)
    }

    /// A part stands still until as many [`Exec::resume`] have come.
    pub(super) fn halt(&self, pid: Pid, parts: &[Part]) {
        let mut core = self.core();
        let now_us = core.now_us;
        core.processes[pid].halt(parts, now_us);
    }

    pub(super) fn resume(&self, pid: Pid, parts: &[Part]) {
        let mut core = self.core();
        let now_us = core.now_us;
        let woken = core.processes[pid].resume(parts, now_us);
        lock(&self.ready).extend(woken);
    }

    /// The machine sleeps: nothing runs, timers stand still, the clock goes on.
    pub(super) fn suspend(&self, pid: Pid) {
        self.halt(pid, &[Part::Session, Part::Runtime]);
        let mut core = self.core();
        let now_us = core.now_us;
        core.processes[pid].fall_asleep(now_us);
    }

    pub(super) fn awake(&self, pid: Pid) {
        let mut core = self.core();
        let now_us = core.now_us;
        let overslept = core.processes[pid].wake_up(now_us);
        core.timers.extend(overslept.into_iter().map(Reverse));
        drop(core);
        self.resume(pid, &[Part::Session, Part::Runtime]);
    }

    /// The process dies: its tasks are dropped, and what that wakes or spawns is not run any more.
    pub(super) fn kill(&self, pid: Pid) {
        let mut core = self.core();
        core.processes[pid].is_dead = true;
        let ids: Vec<u64> = core.tasks.iter().filter(|(_, task)| task.pid == pid).map(|(id, _)| *id).collect();
        let dead: Vec<Task> = ids.into_iter().filter_map(|id| core.tasks.remove(&id)).collect();
        drop(core);
        drop(dead);
    }

    /// What still runs of a process.
    pub(super) fn tasks_of(&self, pid: Pid) -> Vec<&'static str> {
        self.core().tasks.values().filter(|task| task.pid == pid).map(|task| task.what).collect()
    }

    pub(super) fn spawn(&self, pid: Pid, part: Part, what: &'static str, future: Pending<()>) {
        let mut core = self.core();
        if core.processes[pid].is_dead {
            drop(core);
            return;
        }
        let id = core.id();
        let waker = Arc::new(TaskWaker { id, is_queued: AtomicBool::new(true), ready: Arc::clone(&self.ready) });
        core.tasks.insert(id, Task { pid, part, what, future: Some(future), waker });
        drop(core);
        lock(&self.ready).push(id);
    }

    /// Spawns beside the task that runs now.
    pub(super) fn spawn_beside(&self, pid: Pid, what: &'static str, future: Pending<()>) {
        let (current, part) = self.core().current;
        self.spawn(pid, if current == pid { part } else { Part::Runtime }, what, future);
    }

    /// Does something so much later, whatever becomes of the processes.
    pub(super) fn after(&self, us: u64, call: impl FnOnce() + Send + 'static) {
        let mut core = self.core();
        let at_us = core.now_us + us;
        core.set(at_us, What::Call(Box::new(call)));
    }

    /// Sleeps by the timers of a process.
    pub(super) fn sleep(self: &Arc<Self>, pid: Pid, duration: Duration) -> Pending<()> {
        let bell = Arc::new(Mutex::new(Bell::default()));
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(1 << 50);
        let mut core = self.core();
        let process = &core.processes[pid];
        // While it sleeps its timers stand still from the moment at which it fell asleep.
        let asleep_us = process.asleep_us(core.now_us);
        let at_us = core.now_us + scale(us, -process.rate_ppm);
        core.set(at_us, What::Ring { bell: Arc::downgrade(&bell), pid, asleep_us });
        Box::pin(Sleep(bell))
    }

    /// Ends everything, so that nothing keeps anything alive.
    pub(super) fn clear(&self) {
        let (tasks, timers) = {
            let mut core = self.core();
            core.processes.iter_mut().for_each(|process| process.is_dead = true);
            (std::mem::take(&mut core.tasks), std::mem::take(&mut core.timers))
        };
        drop((tasks, timers));
        // What the first drops left behind.
        let timers = std::mem::take(&mut self.core().timers);
        drop(timers);
    }

    /// Takes something that happened into the hash of the run.
    pub(super) fn mix(&self, number: u64) {
        self.core().mix(number);
    }

    pub(super) fn hash(&self) -> u64 {
        self.core().hash
    }

    pub(super) fn steps(&self) -> u64 {
        self.core().steps
    }

    fn pick(&self) -> Option<u64> {
        let mut core = self.core();
        let mut ready = lock(&self.ready);
        if ready.is_empty() {
            return None;
        }
        let at = core.rng.below(ready.len() as u64) as usize;
        let id = ready.swap_remove(at);
        core.steps += 1;
        core.steps_now += 1;
        Some(id)
    }

    fn poll(&self, id: u64) {
        let mut core = self.core();
        let Some(task) = core.tasks.get(&id) else { return };
        let (pid, part) = (task.pid, task.part);
        if core.processes[pid].halts[part as usize] > 0 {
            core.processes[pid].woken.push(id);
            return;
        }
        let hiccup_in = core.hiccup_in;
        if hiccup_in > 0 && pid != NOBODY && core.rng.below(hiccup_in) == 0 {
            let at_us = core.now_us + core.rng.scaled(100, HICCUP_US);
            return core.set(at_us, What::Wake(id));
        }
        core.mix(id);
        core.current = (pid, part);
        let Some(task) = core.tasks.get_mut(&id) else { return };
        let Some(mut future) = task.future.take() else { return };
        task.waker.is_queued.store(false, Ordering::Release);
        let waker = Waker::from(Arc::clone(&task.waker));
        drop(core);
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut core = self.core();
        core.current = (NOBODY, Part::Runtime);
        let done = match (polled, core.tasks.get_mut(&id)) {
            (Poll::Pending, Some(task)) => {
                task.future = Some(future);
                return;
            }
            (Poll::Ready(()), _) => core.tasks.remove(&id),
            (Poll::Pending, None) => None,
        };
        // Never under the lock: what is dropped may wake, spawn and close.
        drop(core);
        drop(future);
        drop(done);
    }

    fn next_timer(&self, until_us: u64) -> Result<Timer, Stop> {
        let mut core = self.core();
        match core.timers.peek() {
            None => Err(Stop::Idle),
            Some(Reverse(timer)) if timer.at_us > until_us => {
                core.now_us = core.now_us.max(until_us);
                Err(Stop::Time)
            }
            Some(_) => {
                let Some(Reverse(timer)) = core.timers.pop() else { return Err(Stop::Idle) };
                if timer.at_us > core.now_us {
                    (core.now_us, core.steps_now) = (timer.at_us, 0);
                }
                core.steps_now += 1;
                Ok(timer)
            }
        }
    }

    fn fire(&self, timer: Timer) {
        match timer.what {
            What::Call(call) => {
                self.mix(timer.at_us);
                call();
            }
            What::Wake(id) => lock(&self.ready).push(id),
            What::Ring { ref bell, pid, asleep_us } => {
                let Some(rings) = bell.upgrade() else { return };
                let mut core = self.core();
                let now_us = core.now_us;
                let process = &mut core.processes[pid];
                if process.sleeps > 0 {
                    process.overslept.push(timer);
                    return;
                }
                let slept_us = process.asleep_us(now_us).saturating_sub(asleep_us);
                if slept_us > 0 {
                    let (bell, asleep_us) = (bell.clone(), process.asleep_us(now_us));
                    core.set(timer.at_us + slept_us, What::Ring { bell, pid, asleep_us });
                    return;
                }
                drop(core);
                Bell::ring(&rings);
            }
        }
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        lock(&self.core)
    }
}

impl Core {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn set(&mut self, at_us: u64, what: What) {
        let tie = (self.rng.next(), self.id());
        self.timers.push(Reverse(Timer { at_us, tie, what }));
    }

    fn mix(&mut self, number: u64) {
        self.hash = (self.hash ^ number ^ (self.now_us << 20)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            lock(&self.ready).push(self.id);
        }
    }
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
