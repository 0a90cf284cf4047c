//! Deadlines of rounds, kept by the session's thread: a caller's runtime may have no timer, and may stand still. And what a
//! caller without a runtime leaves behind.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use leasehold_spec::GrantId;
use leasehold_spec::mark::{Mark, hit};
use tokio::sync::{Notify, oneshot};

use super::under_way::Work;
use crate::world::{Pending, World};

/// The longest sleep: the clock runs while the machine sleeps, and timers do not.
const TICK_US: u64 = 250_000;
/// The shortest: timers know no shorter one.
const PAUSE_US: u64 = 1_000;

/// What is to be woken when.
#[derive(Default)]
pub(super) struct Timers {
    set: Mutex<Set>,
    is_set: Notify,
}

#[derive(Default)]
struct Set {
    /// By time, then by the order in which they were set.
    due: BTreeMap<Key, Rings>,
    /// The keeper sleeps until then, and need not be woken for what is later.
    planned_us: u64,
    serial: u64,
    /// How many keep the time.
    keepers: u32,
    /// What one of them is to run.
    left: Vec<Pending<()>>,
}

/// When an alarm rings, and its serial number.
type Key = (u64, u64);

/// An alarm. Dropped, it does not ring.
pub(super) struct Alarm {
    pub(super) timers: Arc<Timers>,
    key: Key,
}

enum Rings {
    /// A round is over.
    Round(oneshot::Sender<()>),
    /// An attempt asks again, unless it was given another alarm since.
    Turn(GrantId, u64),
    /// The caller's runtime may stand still: what it has not finished is taken over.
    TakeOver(Weak<Work>),
}

impl Timers {
    /// Ends at that moment, while somebody [keeps](Self::keep) the time.
    pub(super) fn at(self: &Arc<Self>, at_us: u64) -> impl Future<Output = ()> + Send + 'static {
        let (rings, rung) = oneshot::channel();
        let alarm = self.alarm(at_us, Rings::Round(rings));
        async move {
            let _alarm = alarm;
            if rung.await.is_err() {
                // Never: an alarm is dropped only when it rings.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Has an attempt ask at that moment.
    pub(super) fn turn_at(&self, at_us: u64, id: GrantId, alarm: u64) {
        self.add(at_us, Rings::Turn(id, alarm));
    }

    /// Has this work taken over at that moment, if it is not finished then.
    pub(super) fn take_over_at(self: &Arc<Self>, at_us: u64, work: &Arc<Work>) -> Alarm {
        self.alarm(at_us, Rings::TakeOver(Arc::downgrade(work)))
    }

    /// Has it run by whoever keeps the time. Nobody does behind the end of a session: then it is dropped.
    pub(super) fn leave(&self, task: Pending<()>) {
        let mut set = self.set();
        if set.keepers > 0 {
            set.left.push(task);
            drop(set);
            self.is_set.notify_one();
        }
    }

    fn alarm(self: &Arc<Self>, at_us: u64, rings: Rings) -> Alarm {
        Alarm { timers: Arc::clone(self), key: self.add(at_us, rings) }
    }

    fn add(&self, at_us: u64, rings: Rings) -> Key {
        let mut set = self.set();
        set.serial += 1;
        let key = (at_us, set.serial);
        set.due.insert(key, rings);
        let is_earlier = at_us < set.planned_us;
        drop(set);
        if is_earlier {
            self.is_set.notify_one();
        }
        key
    }

    /// Keeps the time until `is_over` says so, at the latest a tick later. What is left from now on is run when the future
    /// is.
    pub(super) fn keep(
        self: Arc<Self>,
        world: Arc<dyn World>,
        is_over: impl Fn() -> bool + Send + 'static,
        turn: impl Fn(GrantId, u64) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let keeping = Keeping::begin(self);
        async move {
            let timers = &keeping.0;
            while !is_over() {
                let now_us = world.now_us();
                let for_us = timers.ring(now_us, &turn);
                let left = std::mem::take(&mut timers.set().left);
                left.into_iter().for_each(|task| drop(world.spawn(task)));
                let mut slept = world.sleep(Duration::from_micros(for_us));
                let mut set = pin!(timers.is_set.notified());
                poll_fn(|context| match set.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(()),
                    Poll::Pending => slept.as_mut().poll(context),
                })
                .await;
            }
        }
    }

    /// Wakes whoever is due, and answers how long nobody is.
    fn ring(&self, now_us: u64, turn: impl Fn(GrantId, u64)) -> u64 {
        let mut set = self.set();
        let later = set.due.split_off(&(now_us + 1, 0));
        let due = std::mem::replace(&mut set.due, later);
        let next_us = set.due.first_key_value().map_or(u64::MAX, |((at_us, _), _)| *at_us);
        let for_us = next_us.saturating_sub(now_us).clamp(PAUSE_US, TICK_US);
        set.planned_us = now_us + for_us;
        drop(set);
        for rings in due.into_values() {
            match rings {
                // Nobody there: it was decided.
                Rings::Round(round) => drop(round.send(())),
                Rings::Turn(id, alarm) => turn(id, alarm),
                Rings::TakeOver(work) => self.take_over(&work, now_us),
            }
        }
        for_us
    }

    fn take_over(&self, work: &Weak<Work>, now_us: u64) {
        let Some(work) = work.upgrade() else { return };
        match work.take_over() {
            Some(work) => {
                hit(Mark::TakenOver);
                self.set().left.push(work);
            }
            // Its runtime polls it just now.
            None => drop(self.add(now_us + TICK_US, Rings::TakeOver(Arc::downgrade(&work)))),
        }
    }

    fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody keeps the time.
struct Keeping(Arc<Timers>);

impl Keeping {
    fn begin(timers: Arc<Timers>) -> Self {
        timers.set().keepers += 1;
        Self(timers)
    }
}

impl Drop for Keeping {
    /// Of two links, one behind the other, each has somebody who keeps the time: the other one plans anew, with what this
    /// one was woken for.
    fn drop(&mut self) {
        let mut set = self.0.set();
        set.keepers -= 1;
        set.planned_us = u64::MAX;
        let left = if set.keepers == 0 { std::mem::take(&mut set.left) } else { Vec::new() };
        drop(set);
        // They have links, and with these what they were left with.
        drop(left);
        self.0.is_set.notify_one();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.timers.set().due.remove(&self.key);
    }
}

#[cfg(test)]
#[path = "timers_tests.rs"]
mod tests;
