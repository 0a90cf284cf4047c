//! How schedules are chosen: at random, and by priorities that change a few times (PCT), which finds what needs one thread
//! to stand still for long.

use std::env;
use std::fmt::Display;
use std::str::FromStr;

use leasehold::seam::{Real, World};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Schedules of each kind, for each scene.
const SCHEDULES: usize = 150;
/// How often priorities change, at most.
const DEPTH: usize = 4;
/// No schedule has as many steps: what has them goes round in circles.
const STEPS: usize = 200_000;
/// Our futures are larger than those of shuttle's examples.
const STACK_BYTES: usize = 256 * 1024;

/// Plays a scene in many schedules; in one, if the environment names it.
pub(crate) fn explore(scene: fn()) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.max_steps = MaxSteps::FailAfter(STEPS);
    config.silence_warnings = true;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config.failure_persistence = FailurePersistence::File(Some(env!("CARGO_TARGET_TMPDIR").into()));
    if let Ok(path) = env::var("LEASEHOLD_SCHEDULE") {
        let replay = ReplayScheduler::new_from_file(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
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
    Runner::new(Patient(RandomScheduler::new_from_seed(seed, schedules)), config.clone()).run(scene);
    Runner::new(Patient(PctScheduler::new_from_seed(seed, DEPTH, schedules)), config).run(scene);
}

fn asked<T: FromStr<Err: Display>>(variable: &str) -> Option<T> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|error| panic!("{variable}={value}: {error}")))
}

/// Says how to see a failure again.
struct Replay {
    seed: u64,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = std::thread::current().name().unwrap_or("").to_owned();
            let command = format!("cargo test -p leasehold --features shuttle --test shuttle {name}");
            eprintln!("the failing schedule again, from the file that is named above: LEASEHOLD_SCHEDULE=… {command}");
            eprintln!("and all of them: LEASEHOLD_FIRST_SEED={} {command}", self.seed);
        }
    }
}

/// Lets time go on only when nobody else can.
struct Patient<S>(S);

/// The first thread that a scene starts.
const CLOCK: usize = 1;

impl<S: Scheduler> Scheduler for Patient<S> {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.0.new_execution()
    }

    fn next_task(&mut self, runnable: &[&Task], current: Option<TaskId>, is_yielding: bool) -> Option<TaskId> {
        let others: Vec<&Task> = runnable.iter().copied().filter(|task| task.id() != TaskId::from(CLOCK)).collect();
        let may_go = if others.is_empty() { runnable } else { &others };
        self.0.next_task(may_go, current, is_yielding)
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
}
