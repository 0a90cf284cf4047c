//! The executor: virtual time, and processes that stand still, sleep, and die.
//!
//! Tokio's paused clock (and turmoil, and madsim on top of such) gives all tasks one time. But locks break because
//! there is more than one time: a process stands still while its clock continues, or sleeps while its timers stand
//! still, or runs a per mille too fast. So every task belongs to a process, and every process has
//!
//! - a clock of its own, which differs from true time in offset and rate;
//! - parts, as a real program has: the client's own thread (P17), threads without a runtime, and runtimes. Each of them
//!   stands still, ends and starts alone, while calls continue on the others;
//! - a state: it runs, stands still (nothing runs, its expired timers wait, its sockets fill), sleeps (its timers stand
//!   still as well, but its clock continues), or is dead.
//!
//! One thread runs everything. It takes one of the ready tasks at random, so that a seed is a schedule. A ready task
//! may also be kept waiting for a moment, as on a busy machine. If no task is ready, time advances to the next timer.

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
pub(super) use super::process::{Halt, Part};
use super::process::{Process, scale};
use super::rng::Rng;
use super::timer::{Bell, Sleep, Timer, What};

/// The number of a process.
pub(super) type Pid = usize;

/// The world around the clients: it has no clock but the true one, and it never stops.
pub(super) const WORLD: Pid = 0;

/// This many polls and events at one moment are a livelock.
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

    /// Runs until `until_us`, or until `is_done` returns true.
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

    /// Returns true time.
    pub(super) fn now_us(&self) -> u64 {
        self.core().now_us
    }

    /// Returns the clock of a process: the one that continues while the machine sleeps.
    pub(super) fn local_us(&self, pid: Pid) -> u64 {
        let core = self.core();
        core.processes[pid].clock_us(core.now_us)
    }

    pub(super) fn start(&self, offset_us: u64, rate_ppm: i64) -> Pid {
        let mut core = self.core();
        core.processes.push(Process::new(offset_us, rate_ppm));
        core.processes.len() - 1
    }

    /// Returns for how long a part of a process could not run so far.
    pub(super) fn halted_us(&self, pid: Pid, part: Part) -> u64 {
        let core = self.core();
        core.processes[pid].halted_us(part, core.now_us)
    }

    /// Returns for how long its parts could not run so far, added up.
    pub(super) fn halted_in_all_us(&self, pid: Pid) -> u64 {
        let core = self.core();
        core.processes[pid].halted_in_all_us(core.now_us)
    }

    /// Stops the process or part. It stands still until [`Exec::resume`] was called as many times.
    pub(super) fn halt(&self, pid: Pid, what: Halt) {
        let mut core = self.core();
        let now_us = core.now_us;
        core.processes[pid].halt(what, now_us);
    }

    pub(super) fn resume(&self, pid: Pid, what: Halt) {
        let mut core = self.core();
        let now_us = core.now_us;
        let (woken, late_timers) = core.processes[pid].resume(what, now_us);
        core.timers.extend(late_timers.into_iter().map(Reverse));
        lock(&self.ready).extend(woken);
    }

    /// Starts one more runtime of a process.
    pub(super) fn start_runtime(&self, pid: Pid) -> usize {
        let mut core = self.core();
        let now_us = core.now_us;
        core.processes[pid].start_runtime(now_us)
    }

    /// Returns the runtimes of a process.
    pub(super) fn runtimes(&self, pid: Pid) -> Vec<usize> {
        self.core().processes[pid].runtimes()
    }

    /// Ends a runtime. Its tasks are dropped, one after the other, and later tasks for it are dropped, too. Does
    /// nothing while one of its threads is blocked, because the shutdown of a runtime waits for its threads. Returns
    /// whether it has ended.
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
        self.core().current = (WORLD, Part::Thread);
        true
    }

    /// Returns the part of the process on which the caller runs, if the caller belongs to that process.
    pub(super) fn part_of(&self, pid: Pid) -> Option<Part> {
        let (current, part) = self.core().current;
        (current == pid).then_some(part)
    }

    /// Puts the machine to sleep: nothing runs, timers stand still, the clock continues.
    pub(super) fn suspend(&self, pid: Pid) {
        self.halt(pid, Halt::All);
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
        self.resume(pid, Halt::All);
    }

    /// Kills the process. Its tasks are dropped; tasks that this wakes or spawns do not run any more.
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

    /// Returns the tasks of a process that still run.
    pub(super) fn tasks_of(&self, pid: Pid) -> Vec<&'static str> {
        self.core().tasks.values().filter(|task| task.pid == pid).map(|task| task.what).collect()
    }

    pub(super) fn spawn(&self, pid: Pid, part: Part, what: &'static str, future: Pending<()>) {
        let mut core = self.core();
        if core.processes[pid].is_dead || core.processes[pid].has_ended(part) {
            // Dropping the future may wake, spawn and close, so the lock is released first.
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

    /// Runs a future on a part of a process. Returns `None` if the part or the process ended before the future was
    /// done.
    pub(super) fn on<T: Send + 'static>(
        &self,
        pid: Pid,
        part: Part,
        what: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Pending<Option<T>> {
        let (sender, receiver) = oneshot::channel();
        let work = async move { drop(sender.send(work.await)) };
        self.spawn(pid, part, what, Box::pin(work));
        Box::pin(async move { receiver.await.ok() })
    }

    /// Spawns on the runtime of the task that runs now. If there is no runtime, returns the future.
    pub(super) fn spawn_beside(&self, pid: Pid, what: &'static str, future: Pending<()>) -> Result<(), Pending<()>> {
        let part = match self.part_of(pid) {
            Some(Part::Inside(number)) => Part::Runtime(number),
            Some(Part::Thread) | None => return Err(future),
            Some(part) => part,
        };
        self.spawn(pid, part, what, future);
        Ok(())
    }

    /// Calls a function after this time, whatever happens to the processes.
    pub(super) fn after(&self, us: u64, call: impl FnOnce() + Send + 'static) {
        let mut core = self.core();
        let at_us = core.now_us + us;
        core.set(at_us, What::Call(Box::new(call)));
    }

    /// Sleeps by the timers of a process, and of the part that calls this. That part may stand still when they are due.
    pub(super) fn sleep(self: &Arc<Self>, pid: Pid, duration: Duration) -> Pending<()> {
        let part = match self.part_of(pid) {
            Some(Part::Inside(number)) => Part::Runtime(number),
            part => part.unwrap_or(Part::Thread),
        };
        let bell = Arc::new(Mutex::new(Bell::default()));
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).min(1 << 50);
        let mut core = self.core();
        let process = &core.processes[pid];
        // While the process sleeps, its timers stand still from the moment at which it fell asleep.
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
        // The first drops may have left timers behind.
        let timers = std::mem::take(&mut self.core().timers);
        drop(timers);
    }

    /// Mixes an event into the hash of the run.
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
        if hiccup_in > 0 && pid != WORLD && core.rng.below(hiccup_in) == 0 {
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
        core.current = (WORLD, Part::Thread);
        let done = match (polled, core.tasks.get_mut(&id)) {
            (Poll::Pending, Some(task)) => {
                task.future = Some(future);
                return;
            }
            (Poll::Ready(()), _) => core.tasks.remove(&id),
            (Poll::Pending, None) => None,
        };
        // Never under the lock: dropping a task may wake, spawn and close.
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
                    process.late_timers.push(timer);
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
