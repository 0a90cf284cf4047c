//! A world in which threads, tasks and time belong to the scheduler.
//!
//! Time is a thread of its own, and the scheduler runs it only when no other thread can go on (`explore.rs`): then the
//! time becomes that of the earliest timer. So work without a timer takes no time at all. A lost wake-up, which a tick
//! of the session repairs after 250 ms, shows in the time that a scene took. Without any timer left it is a deadlock,
//! and shuttle prints which threads wait.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::seam::{Address, Pending, Socket, World};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{future, thread};

const BEGIN_US: u64 = 1_000_000_000;
/// No wait needs this much time: a thread that still waits then waits for ever, and only the ticks of a session go on.
const END_US: u64 = BEGIN_US + 1_000_000_000;

/// The world that the threads of one schedule share.
#[derive(Clone)]
pub(crate) struct Staged(Arc<Inner>);

struct Inner {
    now_us: AtomicU64,
    drawn: AtomicU64,
    /// Locked for a few lines without any operation of the scheduler in them: never contended.
    timers: std::sync::Mutex<Timers>,
    running: Mutex<usize>,
    idle: Condvar,
}

#[derive(Default)]
struct Timers {
    waiting: BTreeMap<(u64, u64), Waker>,
    next: u64,
    clock: Option<thread::Thread>,
    is_over: bool,
}

impl Staged {
    /// Returns a world whose time begins to run. Call it before any other thread starts: the scheduler recognizes the
    /// clock by that.
    pub(crate) fn begin() -> Self {
        let world = Self(Arc::new(Inner {
            now_us: AtomicU64::new(BEGIN_US),
            drawn: AtomicU64::new(0),
            timers: std::sync::Mutex::default(),
            running: Mutex::new(0),
            idle: Condvar::new(),
        }));
        let keeper = world.clone();
        let clock = thread::spawn(move || keeper.keep_time());
        world.timers().clock = Some(clock.thread().clone());
        world
    }

    /// Waits until every task and every session has ended, and returns the time since the world began.
    pub(crate) fn end(&self) -> Duration {
        let mut running = self.0.running.lock().unwrap();
        while *running > 0 {
            running = self.0.idle.wait(running).unwrap();
        }
        drop(running);
        self.timers().is_over = true;
        self.fire_timers();
        self.age()
    }

    /// Returns the time since the world began.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_micros(self.now_us() - BEGIN_US)
    }

    /// Runs a task that [`Staged::end`] waits for.
    pub(crate) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let running = Running::of(self);
        drop(future::spawn(async move {
            task.await;
            drop(running);
        }));
    }

    fn keep_time(&self) {
        loop {
            let mut timers = self.timers();
            if timers.is_over {
                return;
            }
            let first = timers.waiting.pop_first();
            drop(timers);
            match first {
                Some(((at_us, _), waker)) => {
                    assert!(at_us < END_US, "a thread waits for ever");
                    self.0.now_us.fetch_max(at_us, Ordering::SeqCst);
                    waker.wake();
                    thread::yield_now();
                }
                None => thread::park(),
            }
        }
    }

    fn fire_timers(&self) {
        let clock = self.timers().clock.clone();
        clock.inspect(thread::Thread::unpark);
    }

    fn timers(&self) -> std::sync::MutexGuard<'_, Timers> {
        self.0.timers.lock().unwrap()
    }
}

impl World for Staged {
    fn now_us(&self) -> u64 {
        self.0.now_us.load(Ordering::SeqCst)
    }

    fn wall_us(&self) -> u64 {
        self.now_us()
    }

    fn random(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.0.drawn.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            chunk.copy_from_slice(&number.to_ne_bytes()[..chunk.len()]);
        }
    }

    fn host(&self) -> String {
        "stage".into()
    }

    fn process(&self) -> u32 {
        1
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        let at_us = self.now_us() + u64::try_from(duration.as_micros()).unwrap();
        Box::pin(Sleep { world: self.clone(), at_us, number: None })
    }

    fn connect(&self, _: &Address) -> Pending<io::Result<Box<dyn Socket>>> {
        Box::pin(std::future::ready(Err(io::Error::other("there is no network here"))))
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        self.start(task);
        Ok(())
    }

    fn spawn_session(&self, session: Pending<()>) -> io::Result<()> {
        let running = Running::of(self);
        drop(thread::spawn(move || {
            future::block_on(session);
            drop(running);
        }));
        Ok(())
    }
}

/// A task or session that has not ended yet.
struct Running(Staged);

impl Running {
    fn of(world: &Staged) -> Self {
        *world.0.running.lock().unwrap() += 1;
        Self(world.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let mut running = self.0.0.running.lock().unwrap();
        *running -= 1;
        if *running == 0 {
            self.0.0.idle.notify_all();
        }
    }
}

struct Sleep {
    world: Staged,
    at_us: u64,
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.get_mut();
        if sleep.world.now_us() >= sleep.at_us {
            return Poll::Ready(());
        }
        let mut timers = sleep.world.timers();
        let number = *sleep.number.get_or_insert(timers.next);
        timers.next = timers.next.max(number + 1);
        timers.waiting.insert((sleep.at_us, number), context.waker().clone());
        drop(timers);
        sleep.world.fire_timers();
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.world.timers().waiting.remove(&(self.at_us, number));
        }
    }
}
