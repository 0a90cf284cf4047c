//! How schedules are chosen: at random, and by priorities that change a few times (PCT), which finds bugs that need one
//! thread to be stopped for long.

use std::cell::Cell;
use std::env;
use std::fmt::Display;
use std::str::FromStr;

use crate::seam::{Real, World};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// The number of schedules of each kind, for each scene.
const SCHEDULES: usize = 150;
/// How often priorities change, at most.
const DEPTH: usize = 4;
/// No schedule needs as many steps: one that reaches the limit is in an endless loop.
const STEPS: usize = 200_000;
/// Our futures are larger than those of shuttle's examples.
const STACK_BYTES: usize = 256 * 1024;

thread_local! {
    static RUNS_LEFT: Cell<u32> = const { Cell::new(0) };
}

/// From now on time may advance at any step, and threads may be stopped for as long as leases last. Before, and after
/// some hundred timers, time advances only when no thread can: a thread of the lowest priority must run at some time.
pub(crate) fn let_time_run() {
    RUNS_LEFT.set(RUNS);
}

/// Runs a scene in many schedules, or in the one that the environment names.
pub(crate) fn explore(scene: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config.failure_persistence = FailurePersistence::File(Some(env::temp_dir()));
    if let Ok(path) = env::var("LEASEHOLD_SCHEDULE") {
        let mut replay = ReplayScheduler::new_from_file(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        // The schedule ends where it failed. Code that was fixed goes on from there.
        replay.set_allow_incomplete();
        Runner::new(replay, config).run(scene);
        return;
    }
    let schedules = asked("LEASEHOLD_SCHEDULES").unwrap_or(SCHEDULES);
    let seed = asked("LEASEHOLD_FIRST_SEED").unwrap_or_else(|| {
        let mut bytes = [0; 8];
        Real.random(&mut bytes);
        u64::from_ne_bytes(bytes)
    });
    let _how = Replay { seed };
    let random = RandomScheduler::new_from_seed(seed, schedules);
    Runner::new(Timed { inner: random, turns: seed }, config.clone()).run(scene);
    let priorities = PctScheduler::new_from_seed(seed, DEPTH, schedules);
    Runner::new(Timed { inner: priorities, turns: seed }, config).run(scene);
}

fn asked<T: FromStr<Err: Display>>(variable: &str) -> Option<T> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{variable}={value}: {error}")))
}

/// Prints how to repeat a failure.
struct Replay {
    seed: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = std::thread::current().name().unwrap_or("").to_owned();
            let flags = "RUSTFLAGS=\"--cfg leasehold_shuttle\"";
            let command = format!("{flags} cargo test -p leasehold --lib {name}");
            eprintln!("the failing schedule again, from the file that is named above: LEASEHOLD_SCHEDULE=… {command}");
            eprintln!("and all of them: LEASEHOLD_FIRST_SEED={} {command}", self.seed);
        }
    }
}

/// Advances time when it may, and lets the inner scheduler choose among the other threads.
struct Timed<S> {
    inner: S,
    turns: u64,
}

/// The first thread that a scene starts.
const CLOCK: usize = 1;
/// If time may run, it advances at one in this many steps.
const RUNS_EVERY: u64 = 24;
/// At most this often in a schedule.
const RUNS: u32 = 100;

impl<S> Timed<S> {
    fn goes_on(&mut self) -> bool {
        self.turns = self.turns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (left, may_run) = (RUNS_LEFT.get(), (self.turns >> 33).is_multiple_of(RUNS_EVERY));
        RUNS_LEFT.set(left.saturating_sub(u32::from(may_run)));
        left > 0 && may_run
    }
}

impl<S: Scheduler> Scheduler for Timed<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        RUNS_LEFT.set(0);
        self.inner.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        let clock = TaskId::from(CLOCK);
        let others: Vec<&Task> = runnable.iter().copied().filter(|task| task.id() != clock).collect();
        if others.is_empty() || (others.len() < runnable.len() && self.goes_on()) {
            return Some(clock);
        }
        self.inner.next_task(&others, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.inner.next_u64()
    }
}
