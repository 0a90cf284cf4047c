//! Deadlines of rounds, alarms, and work that no caller waits for: late answers, and votes that go back.
//!
//! The session's thread keeps the time: a caller's runtime may have no timer, and may stand still. Work begins on the
//! caller's runtime. A request that is dropped before it is written is never sent, and a runtime that stands still gives no
//! vote back. So the session's thread takes the work over if there is no runtime, if the runtime ends first, or if the work
//! takes longer than [`TAKE_OVER_US`].

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_spec::mark::{Mark, hit};
use leasehold_spec::node::Renewal;
use leasehold_spec::{GrantId, Name};
use tokio::sync::{Notify, oneshot};

use crate::world::{Pending, World};

/// The longest sleep: the clock runs while the machine sleeps, and timers do not.
const SLEEP_MAX_US: u64 = 250_000;
/// The shortest sleep that a timer supports.
const SLEEP_MIN_US: u64 = 1_000;
/// The time after which the session's thread takes over the work of a caller's runtime.
const TAKE_OVER_US: u64 = 250_000;

/// The alarms of one client, and the work for its session's thread.
#[derive(Default)]
pub(super) struct Timers {
    state: Mutex<State>,
    /// Notifies a keeper about an earlier alarm, or about adopted work.
    changed: Notify,
    unfinished: Arc<WorkCount>,
}

#[derive(Default)]
struct State {
    /// By time, then in the order in which they were set.
    alarms: BTreeMap<Key, Action>,
    /// The keeper sleeps until then. A later alarm need not wake it.
    planned_us: u64,
    serial: u64,
    /// The number of futures of [`Timers::keep`]. Each link of a session has one.
    keepers: u32,
    /// Work that one of the keepers spawns.
    adopted: Vec<Pending<()>>,
}

/// The time of an alarm, and its serial number.
type Key = (u64, u64);

/// An alarm. It does not ring after it was dropped.
pub(super) struct Alarm {
    timers: Arc<Timers>,
    key: Key,
}

/// The action of an alarm that rings.
enum Action {
    /// Ends the wait of a round.
    EndWait(oneshot::Sender<()>),
    /// Handles an event of the session's link.
    Due(Due),
    /// Takes over work from a caller's runtime, which may stand still.
    TakeOver(Weak<Work>),
}

/// An event that the session's link handles when its alarm rings.
pub(super) enum Due {
    /// An attempt asks again, unless the attempt has a later alarm than the one with this number.
    AskAgain(GrantId, u64),
    /// The client has not come back after the pause that began with the release of this attempt.
    PauseOver(Name, GrantId),
    /// This attempt was granted by a bare majority, and has held for long.
    AskOthers { name: Name, id: GrantId, lease_ms: u64 },
    /// This node refuses these renewals as late from now on. Their replies were lost: each may have filled the node.
    LateFills { node: usize, renewals: Vec<(Name, Renewal)> },
}

impl Timers {
    /// Waits until this time. Needs a keeper ([`Timers::keep`]).
    pub(super) fn at(self: &Arc<Self>, at_us: u64) -> impl Future<Output = ()> + Send + 'static {
        let (ring, rung) = oneshot::channel();
        let alarm = self.alarm(at_us, Action::EndWait(ring));
        async move {
            let _alarm = alarm;
            if rung.await.is_err() {
                // Never happens: an alarm drops its sender only when it rings.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The session's link handles this event at that time.
    pub(super) fn handle_at(&self, at_us: u64, due: Due) {
        self.add(at_us, Action::Due(due));
    }

    /// The same, unless the alarm is dropped before.
    pub(super) fn due_at(self: &Arc<Self>, at_us: u64, due: Due) -> Alarm {
        self.alarm(at_us, Action::Due(due))
    }

    /// Runs the work on the caller's runtime, until the session's thread takes it over.
    pub(super) fn spawn(self: &Arc<Self>, world: &dyn World, work: Pending<()>) {
        let work = Arc::new(Work::new(work, self.unfinished.begin()));
        let alarm = self.alarm(world.now_us() + TAKE_OVER_US, Action::TakeOver(Arc::downgrade(&work)));
        // Without a runtime the task is dropped. Its `Drop` gives the work to the session's thread.
        drop(world.spawn(Box::pin(Task { work, alarm })));
    }

    /// Runs the work on the session's thread.
    pub(super) fn run_at_home(&self, work: Pending<()>) {
        self.adopt(counted((work, self.unfinished.begin())));
    }

    pub(super) async fn idle(&self) {
        self.unfinished.idle().await;
    }

    /// Has a keeper run this work. After the end of the session there is no keeper, and the work is dropped.
    fn adopt(&self, work: Pending<()>) {
        let mut state = self.state();
        if state.keepers > 0 {
            state.adopted.push(work);
            drop(state);
            self.changed.notify_one();
        }
    }

    fn alarm(self: &Arc<Self>, at_us: u64, action: Action) -> Alarm {
        Alarm { timers: Arc::clone(self), key: self.add(at_us, action) }
    }

    fn add(&self, at_us: u64, action: Action) -> Key {
        let mut state = self.state();
        state.serial += 1;
        let key = (at_us, state.serial);
        state.alarms.insert(key, action);
        let is_earlier = at_us < state.planned_us;
        drop(state);
        if is_earlier {
            self.changed.notify_one();
        }
        key
    }

    /// Keeps the time until `is_over` is true, which is noticed within a tick. Runs the work adopted since this call.
    pub(super) fn keep(
        self: Arc<Self>,
        world: Arc<dyn World>,
        is_over: impl Fn() -> bool + Send + 'static,
        handle: impl Fn(Due) + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let keeper = Keeper::begin(self);
        async move {
            let timers = &keeper.0;
            while !is_over() {
                let now_us = world.now_us();
                let sleep_us = timers.ring(now_us, &handle);
                let adopted = std::mem::take(&mut timers.state().adopted);
                adopted.into_iter().for_each(|work| drop(world.spawn(work)));
                let mut slept = world.sleep(Duration::from_micros(sleep_us));
                let mut changed = pin!(timers.changed.notified());
                poll_fn(|context| match changed.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(()),
                    Poll::Pending => slept.as_mut().poll(context),
                })
                .await;
            }
        }
    }

    /// Rings all alarms that are due, and returns the time until the next one.
    fn ring(&self, now_us: u64, handle: impl Fn(Due)) -> u64 {
        let mut state = self.state();
        let later = state.alarms.split_off(&(now_us + 1, 0));
        let due = std::mem::replace(&mut state.alarms, later);
        let next_us = state.alarms.first_key_value().map_or(u64::MAX, |((at_us, _), _)| *at_us);
        let sleep_us = next_us.saturating_sub(now_us).clamp(SLEEP_MIN_US, SLEEP_MAX_US);
        state.planned_us = now_us + sleep_us;
        drop(state);
        for action in due.into_values() {
            match action {
                // Without a receiver the round is already decided.
                Action::EndWait(round) => drop(round.send(())),
                Action::Due(due) => handle(due),
                Action::TakeOver(work) => self.take_over(&work, now_us),
            }
        }
        sleep_us
    }

    fn take_over(&self, work: &Weak<Work>, now_us: u64) {
        let Some(work) = work.upgrade() else { return };
        match work.take_over() {
            Some(work) => {
                hit(Mark::TakenOver);
                self.state().adopted.push(work);
            }
            // Its runtime polls it at this moment.
            None => drop(self.add(now_us + SLEEP_MAX_US, Action::TakeOver(Arc::downgrade(&work)))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Keeper(Arc<Timers>);

impl Keeper {
    fn begin(timers: Arc<Timers>) -> Self {
        timers.state().keepers += 1;
        Self(timers)
    }
}

impl Drop for Keeper {
    /// If a newer link has a keeper, that keeper plans again, and rings the alarms for which this one was woken.
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.keepers -= 1;
        state.planned_us = u64::MAX;
        let adopted = if state.keepers == 0 { std::mem::take(&mut state.adopted) } else { Vec::new() };
        drop(state);
        // Outside of the lock: the work owns links, and links own background work.
        drop(adopted);
        self.0.changed.notify_one();
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.timers.state().alarms.remove(&self.key);
    }
}

struct Task {
    work: Arc<Work>,
    alarm: Alarm,
}

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.work.poll(context)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.alarm.timers.adopt(work);
        }
    }
}

/// Counts the unfinished work of a client.
#[derive(Default)]
struct WorkCount {
    tasks: AtomicUsize,
    is_idle: Notify,
}

/// Counts as one task until it is dropped.
struct Counted(Arc<WorkCount>);

/// Work that a task polls, and that another task can take over.
struct Work(Mutex<WorkState>);

#[derive(Default)]
struct WorkState {
    /// `None` while it is polled, and after it has finished: work that panics is not polled again.
    work: Option<(Pending<()>, Counted)>,
    /// Wakes the task that polled the work last.
    waker: Option<Waker>,
}

impl WorkCount {
    /// Adds one task, until the result is dropped.
    fn begin(self: &Arc<Self>) -> Counted {
        self.tasks.fetch_add(1, Ordering::AcqRel);
        Counted(Arc::clone(self))
    }

    async fn idle(&self) {
        loop {
            let mut is_idle = pin!(self.is_idle.notified());
            // From here on the end of the last task notifies.
            is_idle.as_mut().enable();
            if self.tasks.load(Ordering::Acquire) == 0 {
                return;
            }
            is_idle.await;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.is_idle.notify_waiters();
        }
    }
}

impl Work {
    fn new(work: Pending<()>, counted: Counted) -> Self {
        Self(Mutex::new(WorkState { work: Some((work, counted)), waker: None }))
    }

    /// Polls the work. Ready if it has finished or was taken over.
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let Some((mut work, counted)) = self.state().work.take() else { return Poll::Ready(()) };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            let mut state = self.state();
            state.work = Some((work, counted));
            match &mut state.waker {
                Some(known) => known.clone_from(context.waker()),
                unknown => *unknown = Some(context.waker().clone()),
            }
        }
        polled
    }

    /// Takes the work from its task, and ends the task. `None` if the task polls the work now, or has finished it.
    fn take_over(&self) -> Option<Pending<()>> {
        let mut state = self.state();
        let (work, waker) = (state.work.take()?, state.waker.take());
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Some(counted(work))
    }

    /// Takes the work from a task that is dropped. `None` if the task has finished it.
    fn take(&self) -> Option<Pending<()>> {
        self.state().work.take().map(counted)
    }

    fn state(&self) -> MutexGuard<'_, WorkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns work that counts as a task until it is dropped.
fn counted((work, counted): (Pending<()>, Counted)) -> Pending<()> {
    Box::pin(async move {
        let _counted = counted;
        work.await;
    })
}

#[cfg(test)]
#[path = "timers_tests.rs"]
mod tests;
