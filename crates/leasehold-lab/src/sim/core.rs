//! The state of the executor: tasks, timers, processes, and the time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;

use leasehold::seam::Pending;

use super::exec::{Pid, WORLD, lock};
use super::process::{Part, Process};
use super::rng::Rng;
use super::timer::{Timer, What};

pub(super) type Ready = Mutex<Vec<u64>>;

pub(super) struct Core {
    pub(super) now_us: u64,
    pub(super) rng: Rng,
    pub(super) hash: u64,
    pub(super) steps: u64,
    pub(super) steps_now: u32,
    pub(super) next_id: u64,
    pub(super) timers: BinaryHeap<Reverse<Timer>>,
    pub(super) tasks: BTreeMap<u64, Task>,
    pub(super) processes: Vec<Process>,
    pub(super) current: (Pid, Part),
    /// One of this many polls is delayed.
    pub(super) hiccup_in: u64,
}

pub(super) struct Task {
    pub(super) pid: Pid,
    pub(super) part: Part,
    pub(super) what: &'static str,
    pub(super) future: Option<Pending<()>>,
    pub(super) waker: Arc<TaskWaker>,
}

pub(super) struct TaskWaker {
    pub(super) id: u64,
    pub(super) is_queued: AtomicBool,
    pub(super) ready: Arc<Ready>,
}

/// Why a run of the executor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The time is over.
    Time,
    /// No task is ready and no timer is set.
    Idle,
    /// Too many steps happened at one moment.
    Livelock,
    /// The awaited condition is met.
    Done,
}

impl Core {
    pub(super) fn new(rng: Rng, hiccup_in: u64) -> Self {
        Self {
            now_us: 0,
            rng,
            hash: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            steps_now: 0,
            next_id: 1,
            timers: BinaryHeap::new(),
            tasks: BTreeMap::new(),
            processes: vec![Process::default()],
            current: (WORLD, Part::Thread),
            hiccup_in,
        }
    }

    pub(super) fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn set(&mut self, at_us: u64, what: What) {
        let tie = (self.rng.next(), self.id());
        self.timers.push(Reverse(Timer { at_us, tie, what }));
    }

    pub(super) fn mix(&mut self, number: u64) {
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
