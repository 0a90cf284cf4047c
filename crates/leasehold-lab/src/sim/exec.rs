//! The executor: virtual time, and processes that stand still, sleep, and die.
//!
//! Tokio's paused clock (and turmoil, and madsim on top of such) gives all tasks one time. What breaks locks is that
//! there is more than one: a process stands still while its clock goes on, or sleeps while its timers stand still, or runs
//! a per mille fast. So every task belongs to a process, and every process has
//!
//! - a clock of its own, of which offset and rate differ from true time;
//! - parts, as a real program has: the client's own thread (P17), threads without a runtime, and runtimes, each of which
//!   stands still alone, ends and starts, while calls go on elsewhere;
//! - a fate: it goes on, stands still (nothing runs, its timers ring unheard, its sockets fill), sleeps (its timers stand
//!   still as well, its clock does not), or is dead.
//!
//! One thread runs it all. Of the tasks that are ready one is taken by chance, so that a seed is a schedule; a ready task
//! may also be kept waiting for a moment, as on a busy machine. When nobody is ready time goes on to the next timer.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::seam::Pending;
use tokio::sync::oneshot;

pub(super) use super::core::Stop;
use super::core::{Core, Ready, Task, TaskWaker};
use super::plan::HICCUP_US;
pub(super) use super::process::{Part, Still};
use super::process::{Process, scale};
use super::rng::Rng;
use super::timer::{Bell, Sleep, Timer, What};

/// Which process.
pub(super) type Pid = usize;

/// The world around the clients: it has no clock but the true one, and nobody stops it.
pub(super) const NOBODY: Pid = 0;

/// So many polls and events at one moment are a livelock.
const STEPS_AT_ONCE: u32 = 200_000;

pub(super) struct Exec {
    core: Mutex<Core>,
    ready: Arc<Ready>,
}

impl Exec {
    pub(super) fn new(rng: Rng, hiccup_in: u64) -> Self {
        let core = Core::new(rng, hiccup_in);
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

    /// For how long a part of a process could not run so far.
    pub(super) fn halted_us(&self, pid: Pid, part: Part) -> u64 {
        let core = self.core();
        core.processes[pid].halted_us(part, core.now_us)
    }

    /// The same of all of its parts together.
    pub(super) fn halted_in_all_us(&self, pid: Pid) -> u64 {
        let core = self.core();
        core.processes[pid].halted_in_all_us(core.now_us)
    }

    /// It stands still until as many [`Exec::resume`] have come.
    pub(super) fn halt(&self, pid: Pid, what: Still) {
        let mut core = self.core();
        let now_us = core.now_us;
        core.processes[pid].halt(what, now_us);
    }

    pub(super) fn resume(&self, pid: Pid, what: Still) {
        let mut core = self.core();
        let now_us = core.now_us;
        let (woken, unheard) = core.processes[pid].resume(what, now_us);
        core.timers.extend(unheard.into_iter().map(Reverse));
        lock(&self.ready).extend(woken);
    }

    /// A process starts one more runtime.
    pub(super) fn start_runtime(&self, pid: Pid) -> usize {
        let mut core = self.core();
        let now_us = core.now_us;
        core.processes[pid].start_runtime(now_us)
    }

    /// The runtimes that a process has.
    pub(super) fn runtimes(&self, pid: Pid) -> Vec<usize> {
        self.core().processes[pid].runtimes()
    }

    /// A runtime ends: its tasks are dropped, one after the other, and what it is asked to run from now on is dropped, too.
    /// Not while one of its threads is blocked: whoever shuts a runtime down waits for that. Answers whether it has ended.
    pub(super) fn end_runtime(&self, pid: Pid, number: usize) -> bool {
        let mut core = self.core();
        let is_of = |task: &Task, part: Part| task.pid == pid && task.part == part;
        if core.tasks.values().any(|task| is_of(task, Part::Inside(number))) || !core.processes[pid].end_runtime(number)
        {
            return false;
        }
        let part = Part::Runtime(number);
        let ids: Vec<u64> = core.tasks.iter().filter(|(_, task)| is_of(task, part)).map(|(id, _)| *id).collect();
        let ended: Vec<Task> = ids.into_iter().filter_map(|id| core.tasks.remove(&id)).collect();
        core.current = (pid, part);
        drop(core);
        drop(ended);
        self.core().current = (NOBODY, Part::Thread);
        true
    }

    /// On which part of a process the caller runs, if it is that process at all.
    pub(super) fn part_of(&self, pid: Pid) -> Option<Part> {
        let (current, part) = self.core().current;
        (current == pid).then_some(part)
    }

    /// The machine sleeps: nothing runs, timers stand still, the clock goes on.
    pub(super) fn suspend(&self, pid: Pid) {
        self.halt(pid, Still::All);
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
        self.resume(pid, Still::All);
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

    pub(super) fn is_alive(&self, pid: Pid) -> bool {
        !self.core().processes[pid].is_dead
    }

    /// What still runs of a process.
    pub(super) fn tasks_of(&self, pid: Pid) -> Vec<&'static str> {
        self.core().tasks.values().filter(|task| task.pid == pid).map(|task| task.what).collect()
    }

    pub(super) fn spawn(&self, pid: Pid, part: Part, what: &'static str, future: Pending<()>) {
        let mut core = self.core();
        if core.processes[pid].is_dead || core.processes[pid].has_ended(part) {
            // What it is may wake, spawn and close as it is dropped.
            drop(core);
            drop(future);
            return;
        }
        let id = core.id();
        let waker = Arc::new(TaskWaker { id, is_queued: AtomicBool::new(true), ready: Arc::clone(&self.ready) });
        core.tasks.insert(id, Task { pid, part, what, future: Some(future), waker });
        drop(core);
        lock(&self.ready).push(id);
    }

    /// Runs a future on a part of a process. `None`: that has ended, or the process has, before it was done.
    pub(super) fn on<T: Send + 'static>(
        &self,
        pid: Pid,
        part: Part,
        what: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Pending<Option<T>> {
        let (tell, told) = oneshot::channel();
        let work = async move { drop(tell.send(work.await)) };
        self.spawn(pid, part, what, Box::pin(work));
        Box::pin(async move { told.await.ok() })
    }

    /// Spawns on the runtime of the task that runs now, and gives the future back where there is none.
    pub(super) fn spawn_beside(&self, pid: Pid, what: &'static str, future: Pending<()>) -> Result<(), Pending<()>> {
        let part = match self.part_of(pid) {
            Some(Part::Inside(number)) => Part::Runtime(number),
            Some(Part::Thread) | None => return Err(future),
            Some(part) => part,
        };
        self.spawn(pid, part, what, future);
        Ok(())
    }

    /// Does something so much later, whatever becomes of the processes.
    pub(super) fn after(&self, us: u64, call: impl FnOnce() + Send + 'static) {
        let mut core = self.core();
        let at_us = core.now_us + us;
        core.set(at_us, What::Call(Box::new(call)));
    }

    /// Sleeps by the timers of a process: of the part that asks for it, which may stand still when they are due.
    pub(super) fn sleep(self: &Arc<Self>, pid: Pid, duration: Duration) -> Pending<()> {
        let part = match self.part_of(pid) {
            Some(Part::Inside(number)) => Part::Runtime(number),
            part => part.unwrap_or(Part::Thread),
        };
        let bell = Arc::new(Mutex::new(Bell::default()));
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(1 << 50);
        let mut core = self.core();
        let process = &core.processes[pid];
        // While it sleeps its timers stand still from the moment at which it fell asleep.
        let asleep_us = process.asleep_us(core.now_us);
        let at_us = core.now_us + scale(us, -process.rate_ppm);
        core.set(at_us, What::Ring { bell: Arc::downgrade(&bell), pid, part, asleep_us });
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
        if core.processes[pid].stands_still(part) {
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
        core.current = (NOBODY, Part::Thread);
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
            What::Ring { ref bell, pid, part, asleep_us } => {
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
                    core.set(timer.at_us + slept_us, What::Ring { bell, pid, part, asleep_us });
                    return;
                }
                if process.has_ended(part) {
                    return;
                }
                if process.stands_still(part) {
                    process.unheard.push(timer);
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

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
